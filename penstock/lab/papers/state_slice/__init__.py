"""The experiments of the State-Slice paper: many queries over one join."""
