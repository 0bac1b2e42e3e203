"""The demos of `penstock demo`: on local Spark, and on the embedded engine."""
