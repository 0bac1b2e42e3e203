"""The experiments of the State-Slice paper: many queries over one join, Figures 17 to 19."""
