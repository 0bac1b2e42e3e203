"""What a pipeline is made of, as plain values that travel to Spark's tasks and into the checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.cql import Catalog, bind_query
from penstock.cql.bound import Query
from penstock.cql.catalog import Stream, Table
from penstock.cql.types import sql_type
from penstock.spark.frames import encoded


@dataclass(frozen=True)
class QuerySpec:
    """A continuous query as it was written. `since`: the micro-batch from which on it runs; it sees what comes then."""

    name: str
    text: str
    plan: str | None = None
    since: int = 0


@dataclass(frozen=True)
class Spec:
    """Streams, static tables and queries of a pipeline, and into how many cells its work is cut."""

    streams: tuple[Stream, ...]
    tables: Mapping[str, pa.Table]
    queries: tuple[QuerySpec, ...]
    cells: int
    state: str = "auto"

    @cached_property
    def catalog(self) -> Catalog:
        catalog = Catalog()
        for stream in self.streams:
            catalog.relations.add(stream)
        for name, table in self.tables.items():
            catalog.relations.add(Table(name, table.schema))
        return catalog

    @cached_property
    def bound(self) -> dict[str, Query]:
        return {query.name: bind_query(query.text, self.catalog) for query in self.queries}

    def declared(self) -> dict[str, Any]:
        """What must stay the same while a checkpoint lives."""
        return {
            "cells": self.cells,
            "streams": {s.name: {"time": s.time, "lateness": s.lateness, **_columns(s.schema)} for s in self.streams},
            "tables": {name: _columns(table.schema) for name, table in self.tables.items()},
        }

    @cached_property
    def id(self) -> str:
        """Equal for specs that do the same."""
        queries = [[query.name, query.text, query.plan, query.since] for query in self.queries]
        digest = hashlib.sha256(json.dumps([self.declared(), queries, self.state], sort_keys=True).encode())
        for table in self.tables.values():
            digest.update(encoded(table))
        return digest.hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be worked out again."""
        return {name: self.__dict__[name] for name in ("streams", "tables", "queries", "cells", "state")}


def _columns(schema: pa.Schema) -> dict[str, Any]:
    return {"columns": {field.name: sql_type(field.type) for field in schema}}
