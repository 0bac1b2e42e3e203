"""`ps.sql` and `ps.queries`: CQL over DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from penstock.cql import FunctionSpec, describe_functions
from penstock.display import format_summary
from penstock.errors import DataError, QueryError, UnsupportedError, name_arguments
from penstock.expr import quote_name
from penstock.spark.driver.launch import check_speculation
from penstock.spark.environment import is_connect, require_session, require_spark
from penstock.spark.frames.batch_frame import build_batch_frame
from penstock.spark.frames.frame_spec import bind_frame_query, build_frame_spec
from penstock.spark.frames.inputs import FrameInputs, read_inputs
from penstock.spark.frames.session import check_cells, choose_session, count_cores
from penstock.spark.frames.stream_frame import build_stream_frame
from penstock.spark.frames.tables import store_tables
from penstock.spark.query_warnings import warn_of_query
from penstock.spark.session import choose_batch_settings
from penstock.spark.shipped_functions import ShippedFunction

if TYPE_CHECKING:
    from penstock.spark.run import Run
    from penstock.spark.sinks import Sink

_NAME = "query"


def sql(
    spark: SparkSession,
    text: str,
    /,
    *,
    cells: int | None = None,
    functions: Mapping[str, FunctionSpec] | None = None,
    **frames: Any,
) -> DataFrame:
    """The results of a query over DataFrames, as a DataFrame.

    >>> hot = ps.sql(spark, "SELECT t.room FROM t [RANGE 5 MINUTES], h [RANGE 5 MINUTES] WHERE t.room = h.room",
    ...              t=ps.timed(temperature, "ts", lateness="5 seconds"), h=ps.timed(humidity, "ts"))

    A frame with `ps.timed` is a stream, any other is a static table, which is read once, now. If the streams are
    streaming DataFrames, so is the result, in append mode; if they are batch DataFrames, the result is a batch
    DataFrame with the answer of the same text. Its columns are those of the SELECT and, last, `_ts`.

    `cells` is the number of parts of the work, by default the number of the session's cores. It is fixed for a
    checkpoint. `functions` are scalar functions that the text can call, with the types that they return:
    {"half": (half, "double")}; see `Engine.function`.
    """
    inputs = _read_frames(spark, cells, frames, functions)
    return _build_frame(spark, inputs, _NAME, text, cells, caller=4)


def queries(
    spark: SparkSession,
    texts: Mapping[str, str],
    /,
    *,
    cells: int | None = None,
    functions: Mapping[str, FunctionSpec] | None = None,
    **frames: Any,
) -> FrameQueries:
    """Several queries over the same DataFrames; see `sql` for the frames and functions."""
    inputs = _read_frames(spark, cells, frames, functions)
    if not isinstance(texts, Mapping) or not texts:
        raise QueryError("NO_QUERY", f"queries are given as {{name: text}}, not as {texts!r}")
    seen: set[str] = set()
    for name, text in texts.items():
        if not isinstance(name, str) or not name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")
        if name.casefold() in seen:
            raise QueryError("DUPLICATE_NAME", f"there are two queries {name}; names are case-insensitive")
        seen.add(name.casefold())
        bind_frame_query(inputs, name, text)
    return FrameQueries(spark, dict(texts), inputs, cells)


@name_arguments
class FrameQueries:
    """Queries over DataFrames: each as a DataFrame of its own, or all in one streaming query with one engine."""

    def __init__(self, spark: SparkSession, texts: Mapping[str, str], inputs: FrameInputs, cells: int | None) -> None:
        self._spark = spark
        self._texts = texts
        self._inputs = inputs
        self._cells = cells

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the queries."""
        return tuple(self._texts)

    def __repr__(self) -> str:
        return format_summary("penstock.queries", {
            "stream": list(self._inputs.streams), "table": list(self._inputs.tables), "query": list(self._texts)
        })  # fmt: skip

    def frame(self, name: str) -> DataFrame:
        """The results of one query as a DataFrame; started by itself, it runs this query alone."""
        found = self._find_name(name)
        return _build_frame(self._spark, self._inputs, found, self._texts[found], self._cells, caller=5)

    def start(
        self,
        checkpointLocation: str | Path,  # noqa: N803 - Spark's spelling
        sinks: Mapping[str, Sink],
        trigger: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start all queries as ONE streaming query, with one engine in each cell. Every query has its sink.

        Queries over the same streams share the reading, the shuffle and, where they can, the joins. Late and bad rows
        are written below the checkpoint; see `ps.Pipeline`, which this starts.
        """
        if is_connect(self._spark):
            message = "queries over Spark Connect are started one by one: .frame(name).writeStream"
            raise UnsupportedError("SPARK_CONNECT", message)
        wanted = self._match_sinks(sinks)
        batch = [name for name, each in self._inputs.streams.items() if not each.frame.isStreaming]
        if batch:
            message = f"{', '.join(batch)}: batch DataFrames; write each answer with .frame(name).write"
            raise DataError("NOT_STREAMING", message, streams=batch)
        from penstock.spark.pipeline import Pipeline  # noqa: PLC0415 - frames do not need it

        pipe = Pipeline(self._spark)
        for name, each in self._inputs.streams.items():
            columns = [each.frame[quote_name(column)] for column in each.stream.schema.names]
            stream = each.stream
            pipe.stream(
                name, each.frame.select(*columns), stream.time, stream.lateness, skew=stream.skew,
                idle_after=stream.idle_after,
            )  # fmt: skip
        for name, table in self._inputs.tables.items():
            pipe.table(name, table.collect())
        for function in self._inputs.functions:
            pipe.function(function.name, *function.as_spec())
        for name, text in self._texts.items():
            pipe.query(name, text, sink=wanted[name])
        return pipe.start(checkpointLocation, trigger=trigger, cells=self._cells)

    def _find_name(self, name: str) -> str:
        found = next((each for each in self._texts if each.casefold() == str(name).casefold()), None)
        if found is None:
            message = f"there is no query {name}; there are {', '.join(self._texts)}"
            raise QueryError("UNKNOWN_QUERY", message, query=name)
        return found

    def _match_sinks(self, sinks: Mapping[str, Sink]) -> dict[str, Sink]:
        if not isinstance(sinks, Mapping):
            raise QueryError("NOT_A_SINK", f"sinks are given as {{query: sink}}, not as {sinks!r}")
        wanted = {self._find_name(name): sink for name, sink in sinks.items()}
        missing = [name for name in self._texts if name not in wanted]
        if missing:
            raise QueryError("NO_SINK", f"every query has a sink; there is none for {', '.join(missing)}")
        return wanted


def _read_frames(
    spark: SparkSession, cells: int | None, frames: Mapping[str, Any], functions: Mapping[str, FunctionSpec] | None
) -> FrameInputs:
    if not (is_connect(spark) or isinstance(spark, SparkSession)):
        raise QueryError("NOT_A_SESSION", f"the first argument is a SparkSession, not a {type(spark).__name__}")
    check_cells(cells)
    if is_connect(spark):
        require_spark()
    else:
        require_session(spark)
    if not frames:
        raise QueryError("NO_STREAM", 'give the frames of the query by their names, such as t=ps.timed(df, "ts")')
    shipped = tuple(map(ShippedFunction.of, describe_functions(functions or {}).values()))
    return replace(read_inputs(spark, frames), functions=shipped)


def _build_frame(
    spark: SparkSession, inputs: FrameInputs, name: str, text: str, cells: int | None, caller: int
) -> DataFrame:
    """`caller`: the frame that warnings are about, seen from `warn`."""
    read, query = bind_frame_query(inputs, name, text)
    if read.is_streaming:
        if not is_connect(spark):  # which does not show that setting
            check_speculation(spark)
        streams = {each: stream.frame for each, stream in read.streams.items()}
        batches = choose_batch_settings(each.stream.schema for each in read.streams.values())
        session, count = choose_session(spark, streams, cells, batches)
    else:
        session, count = spark, cells or count_cores(spark)
    rows = {each: table.collect() for each, table in read.tables.items()}
    tables = store_tables(spark, rows, streaming=read.is_streaming)
    spec = build_frame_spec(read, name, text, tables, count)
    if read.is_streaming:
        found = build_stream_frame(session, read, spec, query.schema)
    else:
        found = build_batch_frame(read, spec, query.schema)
    warn_of_query(name, query, tables, caller)
    return found
