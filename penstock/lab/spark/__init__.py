"""The pipeline on Spark by itself."""
