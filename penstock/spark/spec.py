"""The specification of a pipeline, as plain values that are sent to Spark's tasks and written to the checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.adapt import EngineOrder
from penstock.cql import (
    Catalog,
    Query,
    Source,
    Stream,
    Table,
    bind_query,
    build_schema,
    format_type,
    reads_clock,
    refuse_clock_reader,
)
from penstock.errors import QueryError
from penstock.spark.from_items import map_sources
from penstock.spark.hashing import hash_rows
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.shipped_functions import ShippedFunction
from penstock.spark.static_tables import StaticTable
from penstock.state import SHIPPED, Maintenance, flatten_table


@dataclass(frozen=True)
class SamplingSettings:
    """`effort`: the part of the clock that sampling may take; `fresh_only`: sample only if a query has FRESHNESS."""

    effort: float
    fresh_only: bool


@dataclass(frozen=True)
class PipelineSpec:
    """Streams, static tables and queries of a pipeline, and the number of its cells.

    Only queries and orders may change within a checkpoint.
    """

    streams: tuple[Stream, ...]
    tables: Mapping[str, StaticTable]
    queries: tuple[QuerySpec, ...]
    cells: int
    state: str = "auto"
    orders: tuple[EngineOrder, ...] = ()
    sampling: SamplingSettings | None = None
    """How cells sample their joins for adaptation; None without it."""
    maintenance: Maintenance = SHIPPED
    functions: tuple[ShippedFunction, ...] = ()
    """User-defined functions."""
    next_inlet: int = 1
    memory: int | None = None
    """The limit of each cell's engine in bytes; without it Spark's settings determine it, if they do."""
    cells_per_core: int = 1
    """How many cells a core of the session has, rounded up."""
    clocked: bool = False
    """Whether rows bring the time of their micro-batch, which advances streams with a skew or an idle time.

    A pipeline has the heartbeats of its driver instead."""

    def with_config(self, config: PipelineConfig) -> PipelineSpec:
        """The same pipeline with these queries and orders."""
        return replace(self, queries=config.queries, orders=config.orders, next_inlet=config.next_inlet)

    def with_inlets(self, config: PipelineConfig) -> PipelineSpec:
        """The same pipeline with the same queries, whose inlets have numbers."""
        spec = replace(self, queries=config.queries, orders=config.orders, next_inlet=config.next_inlet)
        computed = ("catalog", "bound_queries")
        spec.__dict__.update({name: self.__dict__[name] for name in computed if name in self.__dict__})
        return spec

    @property
    def config(self) -> PipelineConfig:
        return PipelineConfig(self.queries, self.orders, self.next_inlet)

    @cached_property
    def catalog(self) -> Catalog:
        catalog = Catalog(functions={each.name: each.load() for each in self.functions})
        for stream in self.streams:
            catalog.relations.add(stream)
        for name, table in self.tables.items():
            catalog.relations.add(Table(name, table.schema))
        for query in self.queries:
            if query.derived and query.copy_of is None:
                catalog.relations.add(Stream(query.name, bind_query(query.text, catalog).schema, "_ts"))
        return catalog

    @cached_property
    def derived_streams(self) -> frozenset[str]:
        """The streams that queries derive."""
        return frozenset(query.name for query in self.queries if query.derived)

    @cached_property
    def bound_queries(self) -> dict[str, Query]:
        return {query.name: self.bind(query) for query in self.queries}

    def bind(self, query: QuerySpec) -> Query:
        """A query with its names resolved. In place of derived streams it reads the copies that began with it."""
        copies = {each.copy_of: each.name for each in self.queries if each.copy_of and each.since == query.since}

        def read_copy(source: Source) -> Source:
            relation = source.relation
            if not isinstance(relation, Stream) or relation.name not in copies:
                return source
            return replace(source, relation=replace(relation, name=copies[relation.name]))

        bound = bind_query(query.text, self.catalog)
        if query.derived:
            refuse_clock_reader(query.name, bound)
        if reads_clock(bound) and not pa.types.is_timestamp(bound.time_type):
            message = f"{query.name}: FRESHNESS BY CLOCK compares times with the clock, but its streams count ticks"
            raise QueryError("CLOCK_NEEDED", message, query=query.name)
        return replace(bound, body=map_sources(bound.body, read_copy)) if copies else bound

    def describe(self) -> dict[str, Any]:
        """The declarations that must not change within a checkpoint."""
        return {
            "cells": self.cells,
            "streams": {stream.name: _describe_stream(stream) for stream in self.streams},
            "tables": {name: _describe_columns(table.schema) for name, table in self.tables.items()},
        }

    @property
    def tables_id(self) -> str:
        """Equal for equal tables."""
        return ",".join(table.id for table in self.tables.values())

    @cached_property
    def id(self) -> str:
        """Equal for equal specs."""
        parts = [
            self.describe(),
            self.config.as_json(),
            self.state,
            self.tables_id,
            repr(self.sampling),
            repr(self.maintenance),
            [self.memory, self.cells_per_core],
            [each.id for each in self.functions],
            [(each.skew, each.idle_after) for each in self.streams] if self.clocked else None,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        """Without values that are cheap to compute again."""
        return {each.name: self.__dict__[each.name] for each in fields(self)}


def build_declared_spec(declared: Mapping[str, Any], config: PipelineConfig, cells: int) -> PipelineSpec:
    """The pipeline of declarations as `PipelineSpec.describe` returns them. Its static tables are empty."""
    streams = tuple(
        Stream(
            name, build_schema(entry["columns"]), entry["time"], entry["lateness"], entry.get("timestamps", "external")
        )
        for name, entry in declared["streams"].items()
    )
    empty = {name: build_schema(entry["columns"]).empty_table() for name, entry in declared["tables"].items()}
    tables = {name: StaticTable.of(table) for name, table in empty.items()}
    return PipelineSpec(streams, tables, config.queries, cells, orders=config.orders, next_inlet=config.next_inlet)


def digest_rows(table: pa.Table) -> str:
    """A digest of the rows of a table that does not depend on their order."""
    words = hash_rows(list(flatten_table(table).values()), table.num_rows)
    return f"{table.num_rows}:{int(words.sum(dtype=np.uint64)):016x}"


def count_digest_rows(digest: str) -> int:
    """The number of rows of the table that a digest was made of."""
    return int(digest.partition(":")[0])


def _describe_stream(stream: Stream) -> dict[str, Any]:
    stamps = {} if stream.timestamps == "external" else {"timestamps": stream.timestamps}
    return {"time": stream.time, "lateness": stream.lateness, **stamps, **_describe_columns(stream.schema)}


def _describe_columns(schema: pa.Schema) -> dict[str, Any]:
    return {"columns": {field.name: format_type(field.type) for field in schema}}
