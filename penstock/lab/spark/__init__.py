"""The pipeline on Spark: micro-batches, shuffle and restart."""
