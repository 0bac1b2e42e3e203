"""Throughput and memory of the embedded engine, beside a compiled loop and DuckDB."""
