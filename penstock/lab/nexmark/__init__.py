"""The benchmark Nexmark: its events, its queries, and their answers compared with DuckDB."""
