"""Functions with OVER: aggregates and values of the rows before each row."""
