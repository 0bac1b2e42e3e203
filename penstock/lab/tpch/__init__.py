"""The benchmark TPC-H as continuous queries: its tables as streams, its queries, and their answers by DuckDB."""
