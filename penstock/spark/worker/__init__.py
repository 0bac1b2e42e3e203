"""What runs in Spark's tasks: packed rows, cells and their state."""
