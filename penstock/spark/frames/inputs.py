"""The DataFrames that a query reads, by name: which are streams and which are static tables.

A DataFrame with a time column (`ps.timed`) is a stream, any other is a static table. Either all streams are streaming
DataFrames, and the result is one, or all are batch DataFrames, and the result is a batch DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.cql import Stream, build_schema, describe_stream
from penstock.errors import DataError, PenstockError, QueryError
from penstock.expr import quote_name
from penstock.spark.arrow_schema import convert_schema
from penstock.spark.frames.session import is_same_session
from penstock.spark.frames.timed_frame import TimedFrame
from penstock.spark.shipped_functions import ShippedFunction

_TIMED_HINT = 'give it a time column: {name}=ps.timed(df, "ts")'


@dataclass(frozen=True)
class FrameColumns:
    """The columns of a DataFrame as Arrow types, and those left out because Penstock has no such type."""

    schema: pa.Schema
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class StreamInput:
    """A DataFrame that is read as a stream."""

    frame: DataFrame
    stream: Stream


@dataclass(frozen=True)
class TableInput:
    """A DataFrame or an Arrow table that is read as a static table."""

    rows: DataFrame | pa.Table
    schema: pa.Schema

    def collect(self) -> pa.Table:
        """Its rows, in the driver."""
        rows = self.rows
        if isinstance(rows, DataFrame):
            rows = rows.select(*(rows[quote_name(name)] for name in self.schema.names)).toArrow()
        return rows.cast(self.schema)


@dataclass(frozen=True)
class FrameInputs:
    """The inputs of a query by name. Streams are sorted by name, so that the order of the arguments does not matter."""

    streams: Mapping[str, StreamInput]
    tables: Mapping[str, TableInput]
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By input, the columns that queries cannot read, with their types in Spark."""
    functions: tuple[ShippedFunction, ...] = ()
    """The user-defined functions."""

    @property
    def is_streaming(self) -> bool:
        return any(each.frame.isStreaming for each in self.streams.values())

    def select(self, names: Iterable[str]) -> FrameInputs:
        """Some of the inputs."""
        kept = set(names)
        streams = {name: each for name, each in self.streams.items() if name in kept}
        tables = {name: each for name, each in self.tables.items() if name in kept}
        return FrameInputs(streams, tables, self.left_out, self.functions)

    def check_kinds(self) -> None:
        """Refuse streams of which some are streaming DataFrames and others are not."""
        batch = [name for name, each in self.streams.items() if not each.frame.isStreaming]
        if self.is_streaming and batch:
            streaming = ", ".join(name for name in self.streams if name not in batch)
            raise DataError(
                "MIXED_FRAMES",
                f"{streaming}: streaming, {', '.join(batch)}: batch; streams that are read together are all streaming "
                f"or all batch: read {batch[0]} with spark.readStream, or pass {batch[0]}=df without ps.timed to read "
                "it as a static table",
                streams=batch,
            )

    def explain(self, error: QueryError) -> QueryError:
        """An error of the binder, with what it has to do with the frames."""
        if error.condition == "NO_STREAM":
            first = next(iter(self.tables))
            return _add_note(error, f'a stream is a frame with a time column: {first}=ps.timed(df, "ts")')
        notes = [
            f"{name}.{column} is {kind}"
            for name, columns in self.left_out.items()
            for column, kind in columns.items()
            if column.casefold() in error.message.casefold()
        ]
        if error.condition != "UNKNOWN_COLUMN" or not notes:
            return error
        return _add_note(error, f"queries cannot read columns of these types, cast them first: {', '.join(notes)}")


def _add_note(error: QueryError, note: str) -> QueryError:
    return QueryError(error.condition, f"{error.message}\n{note}", **error.parameters)


def read_inputs(spark: SparkSession, frames: Mapping[str, Any]) -> FrameInputs:
    """The inputs of a query; a frame that cannot be one is refused by name."""
    streams: dict[str, StreamInput] = {}
    tables: dict[str, TableInput] = {}
    left_out: dict[str, Mapping[str, str]] = {}
    seen: set[str] = set()
    for name, given in sorted(frames.items(), key=lambda item: (item[0].casefold(), item[0])):
        if name.casefold() in seen:
            raise QueryError("DUPLICATE_NAME", f"there are two frames {name}; names are case-insensitive")
        seen.add(name.casefold())
        if isinstance(given, TimedFrame):
            _check_session(spark, name, given.frame)
            with _name_errors(name):
                columns = read_columns(given.frame)
                declared = _declare(name, given, columns)
            streams[name] = StreamInput(given.frame, declared)
        else:
            columns = _read_table_columns(spark, name, given)
            tables[name] = TableInput(given, columns.schema)
        if columns.left_out:
            left_out[name] = columns.left_out
    return FrameInputs(streams, tables, left_out)


def read_columns(frame: DataFrame) -> FrameColumns:
    """The columns of a DataFrame that queries can read."""
    found, left_out = [], {}
    for column in frame.schema.fields:
        try:
            kind = convert_schema(StructType([column]))
            found.append(build_schema(kind).field(0))
        except Exception:  # pyspark and Penstock have several errors for types they do not know
            left_out[column.name] = column.dataType.simpleString()
    if not found:
        raise DataError("NO_COLUMNS", "queries can read none of the columns of the DataFrame")
    return FrameColumns(build_schema(pa.schema(found)), left_out)


def _declare(name: str, given: TimedFrame, columns: FrameColumns) -> Stream:
    folded = {column.casefold(): kind for column, kind in columns.left_out.items()}
    if given.time.casefold() in folded:
        kind = folded[given.time.casefold()]
        raise QueryError("BAD_TIME", f"{given.time} is {kind}; a time column is a TIMESTAMP or an integer")
    return describe_stream(
        name, columns.schema, given.time, given.lateness, skew=given.skew, idle_after=given.idle_after
    )


def _read_table_columns(spark: SparkSession, name: str, given: Any) -> FrameColumns:
    if isinstance(given, pa.Table):
        with _name_errors(name):
            return FrameColumns(build_schema(given.schema), {})
    if not isinstance(given, DataFrame):
        raise DataError(
            "NOT_A_FRAME",
            f"{name} is a {type(given).__name__}; frames are DataFrames of Spark, with ps.timed for streams, or "
            "pyarrow tables",
        )
    _check_session(spark, name, given)
    if given.isStreaming:
        message = f"{name} is a streaming DataFrame; {_TIMED_HINT.format(name=name)}"
        raise DataError("NOT_TIMED", message, frame=name)
    with _name_errors(name):
        return read_columns(given)


def _check_session(spark: SparkSession, name: str, frame: DataFrame) -> None:
    if not is_same_session(frame.sparkSession, spark):
        message = f"{name} is a DataFrame of another session than the one given; read it with the same session"
        raise DataError("OTHER_SESSION", message, frame=name)


@contextmanager
def _name_errors(name: str) -> Iterator[None]:
    """Errors that are raised inside say which frame they are about."""
    try:
        yield
    except PenstockError as error:
        if error.message.startswith((f"{name}:", f"{name} ", f"{name}.")):
            raise
        raise type(error)(error.condition, f"{name}: {error.message}", **error.parameters) from error
