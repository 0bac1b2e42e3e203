"""The specification of a frame: a pipeline of one query, over the columns that the query reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from penstock.cql import Query, Stream
from penstock.errors import QueryError
from penstock.spark.frames.inputs import FrameInputs
from penstock.spark.heartbeat import is_clocked
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.static_tables import StaticTable
from penstock.spark.worker.cell import Cell


def bind_frame_query(inputs: FrameInputs, name: str, text: str) -> tuple[FrameInputs, Query]:
    """The inputs that a query reads, and the bound query. What an engine refuses is refused here."""
    if not isinstance(text, str):
        raise QueryError("NOT_A_TEXT", f"a query is a text, not a {type(text).__name__}")
    tables = {each: StaticTable.of(table.schema.empty_table()) for each, table in inputs.tables.items()}
    spec = _build_spec(inputs, name, text, tables, 1)
    try:
        query = spec.bound_queries[name]
    except QueryError as error:
        raise inputs.explain(error) from None
    read = inputs.select(source.relation.name for source in query.body.inputs)
    read.check_kinds()
    Cell(Layout(spec))
    return read, query


def build_frame_spec(
    inputs: FrameInputs, name: str, text: str, tables: Mapping[str, StaticTable], cells: int
) -> PipelineSpec:
    """The spec of a query over its inputs. Its streams have the columns that the query reads, its inlets numbers."""
    layout = Layout(_build_spec(inputs, name, text, tables, cells))
    streams = tuple(_prune_stream(layout, stream) for stream in layout.spec.streams)
    return Layout(replace(layout.spec, streams=streams, clocked=any(map(is_clocked, streams)))).spec


def _build_spec(
    inputs: FrameInputs, name: str, text: str, tables: Mapping[str, StaticTable], cells: int
) -> PipelineSpec:
    streams = tuple(each.stream for each in inputs.streams.values())
    return PipelineSpec(streams, tables, (QuerySpec(name, text),), cells, functions=inputs.functions)


def _prune_stream(layout: Layout, stream: Stream) -> Stream:
    read = {stream.time}.union(*(inlet.schema.names for inlet in layout.list_inlets(stream.name)))
    return replace(stream, schema=pa.schema([field for field in stream.schema if field.name in read]))
