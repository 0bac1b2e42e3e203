"""Throughput and memory of the embedded engine compared with a compiled loop and DuckDB."""
