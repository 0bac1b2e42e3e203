"""The experiments of the JIT paper: Figures 10 to 17."""
