"""Iceberg for tests: a catalog in a file of SQLite, and its tables in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

import penstock as ps


class Lake:
    """A catalog of its own, with the namespace db."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"}

    def sink(self, table: str, **options: Any) -> Any:
        return ps.sinks.iceberg(f"db.{table}", **{**self.options, **options})

    def create(self, table: str, schema: pa.Schema) -> None:
        catalog = load_catalog("default", **self.options)
        catalog.create_namespace_if_not_exists("db")
        catalog.create_table(f"db.{table}", schema)

    def drop(self, table: str) -> None:
        load_catalog("default", **self.options).drop_table(f"db.{table}")

    def load(self, table: str) -> Any:
        return load_catalog("default", **self.options).load_table(f"db.{table}")

    def read(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.load(table).scan(selected_fields=columns or ("*",)).to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in columns or row) for row in rows), key=repr)

    def count(self, table: str) -> int:
        """The number of rows; 0 if there is no table yet."""
        catalog = load_catalog("default", **self.options)
        exists = catalog.table_exists(f"db.{table}")
        return len(catalog.load_table(f"db.{table}").scan().to_arrow()) if exists else 0

    def describe_options(self) -> str:
        """The options of the catalog, for a script."""
        return ", ".join(f"{name} '{value}'" for name, value in self.options.items())
