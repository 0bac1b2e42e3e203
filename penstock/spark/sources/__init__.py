"""Streams and static rows of lake tables: `ps.sources.delta(spark, path)` and `ps.sources.iceberg(spark, table)`."""

from penstock.spark.sources.factories import delta, iceberg, open_lake_stream, read_lake_table

__all__ = ["delta", "iceberg", "open_lake_stream", "read_lake_table"]
