"""The pipeline beside Spark's own joins, and the embedded engine beside PyFlink and Pathway."""
