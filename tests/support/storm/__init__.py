"""The storm: random queries over shared streams, with random events, all drawn from one seed and checked by DuckDB."""
