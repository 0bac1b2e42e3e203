"""State-Slice: queries with different windows and filters that share one join."""
