"""The demo: its streams and queries, on Spark and on the embedded engine."""
