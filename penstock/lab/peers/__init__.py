"""The pipeline beside Spark's own joins, the embedded engine beside PyFlink and Pathway."""
