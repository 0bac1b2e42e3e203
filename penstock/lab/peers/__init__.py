"""The pipeline compared with Spark's own joins, and the embedded engine compared with PyFlink and Pathway."""
