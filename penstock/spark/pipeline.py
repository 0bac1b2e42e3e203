"""A pipeline: streams, tables and continuous queries on Spark, started as ONE streaming query."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, current_timestamp
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.adapt import ACTIONS, AddQuery, DeriveStream, DropQuery, Migrate, QueryCommand, Rules, SetPolicy, as_rules
from penstock.cql import Duration, NameMap, Query, Stream, Timestamps, build_schema, describe_stream, read_script
from penstock.errors import DataError, QueryError, UnsupportedError, name_arguments
from penstock.expr import quote_name
from penstock.spark.driver.adaptive import BatchTiming
from penstock.spark.driver.batch_sink import BatchSink
from penstock.spark.driver.cell_reports import OutputKey
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.control import CommandLog, build_command_map
from penstock.spark.driver.started_pipeline import AdaptSettings, StartedPipeline
from penstock.spark.heartbeat import is_clocked, is_stamped
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import CONFIG_PROPERTY, PipelineConfig
from penstock.spark.query_warnings import warn_of_query
from penstock.spark.run import Run
from penstock.spark.session import apply_query_settings, local_session, parse_trigger_seconds, wait_for_sources
from penstock.spark.sinks import ConsoleSink, Sink, as_sink, parquet
from penstock.spark.spec import PipelineSpec, SamplingSettings
from penstock.spark.storage import Folder, as_file_name
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT
from penstock.spark.worker.pack import NOW_COLUMN, PACKED_DDL, build_pack_map
from penstock.spark.worker.processor import OUTPUT_TYPE, CellProcessor
from penstock.state import SHIPPED, Maintenance


@name_arguments
class Pipeline:
    """Declare streams, tables and queries, then `start`."""

    processor: type[CellProcessor] = CellProcessor

    def __init__(
        self, spark: SparkSession | None = None, *, state: str = "auto", maintenance: Maintenance = SHIPPED
    ) -> None:
        """`state`: the state policy of its queries; `maintenance`: when state is reorganised."""
        self.spark = spark or local_session()
        self._state = state
        self._maintenance = maintenance
        self._streams: NameMap[Stream] = NameMap()
        self._frames: dict[str, DataFrame] = {}
        self._packed: set[str] = set()
        self._tables: dict[str, pa.Table] = {}
        self._config = PipelineConfig(())
        self._lock = RLock()
        self._sinks: dict[OutputKey, Sink] = {}

    @classmethod
    def from_script(cls, path: str | Path, spark: SparkSession | None = None) -> Pipeline:
        """The pipeline of a CQL script."""
        from penstock.spark.script_pipeline import build_pipeline  # noqa: PLC0415 - it needs this class

        return build_pipeline(read_script(Path(path)), spark)

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def stream(
        self,
        name: str,
        df: DataFrame,
        time: str,
        lateness: Duration = 0,
        *,
        timestamps: Timestamps = "external",
        skew: Duration = 0,
        idle_after: Duration | None = None,
        ahead: Duration | None = None,
        late: Sink | None = None,
        dead: Sink | None = None,
        schema: pa.Schema | None = None,
        packed: bool = False,
    ) -> None:
        """Declare a stream: a streaming DataFrame, its time column, how late a row may be.

        By default only rows and `Run.advance` advance its time. With `skew` (the longest delay between the time of a
        row and its arrival) or `idle_after` (after that long without rows, older rows are not expected) the clock
        advances it too, if a query waits for it. With `ahead`, a row whose time is further than that ahead of the time
        of its micro-batch goes to the dead letters.

        `schema` has the types of the columns, by default those of the DataFrame. With `packed` the DataFrame has one
        binary column: Arrow IPC streams of rows of that schema, so Spark does not convert rows to columns.

        `late` and `dead` are sinks for rows that came too late and for rows without a time; by default they are
        written as Parquet below the checkpoint.
        """
        self._check_name_free(name)
        if not getattr(df, "isStreaming", False):
            raise DataError("NOT_STREAMING", f"{name} is not a streaming DataFrame; use spark.readStream, or `table`")
        if not isinstance(time, str):
            raise QueryError("UNKNOWN_COLUMN", f"{name}: the time column is named by a text, not {time!r}")
        if packed and (schema is None or [kind for _, kind in df.dtypes] != ["binary"]):
            raise DataError("NOT_PACKED", f"{name}: a packed stream has one binary column, and a schema must be given")
        columns = build_schema(schema or to_arrow_schema(df.schema, timezone="UTC"))
        if timestamps == "external":
            late_by = lateness
        else:  # rows that get their time on arrival are never late
            late_by = 0
            if time.casefold() not in {name.casefold() for name in columns.names}:
                columns = columns.append(pa.field(time, pa.timestamp("us")))
        declared = describe_stream(name, columns, time, late_by, timestamps, skew, idle_after, ahead)
        if (is_clocked(declared) or ahead is not None) and not pa.types.is_timestamp(declared.time_type):
            raise UnsupportedError(
                "CLOCK_NEEDED",
                f"{name}: skew, idle_after, ahead and rows stamped by a clock need a timestamp, but {declared.time} "
                "counts ticks; use Run.advance",
            )
        self._streams.add(declared)
        self._frames[name] = df
        if packed:
            self._packed.add(name)
        for kind, sink in ((LATE, late), (DEAD, dead)):
            if sink is not None:
                self._sinks[kind, name] = as_sink(sink)

    def table(self, name: str, df: DataFrame | pa.Table) -> None:
        """Declare a static table: it is read once, now, and kept in every cell."""
        self._check_name_free(name)
        table = df if isinstance(df, pa.Table) else _collect_table(name, df)
        self._tables[name] = table.cast(build_schema(table.schema))

    def query(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Declare a continuous query and the sink of its results, by default the console."""
        into = ConsoleSink() if sink is None else as_sink(sink)
        self.change(AddQuery(name, text, plan), into)
        warn_of_query(name, self._bind_query(name), self._tables)

    def derive(self, name: str, text: str, plan: str | None = None) -> None:
        """Declare a stream of the results of a query, for other queries to read; its time column is `_ts`."""
        self._check_name_free(name)
        self.change(DeriveStream(name, text, plan))
        warn_of_query(name, self._bind_query(name), self._tables)

    def drop(self, name: str) -> None:
        """Remove a query."""
        self.change(DropQuery(name))

    def migrate(self, name: str, plan: str) -> None:
        """Give a query another plan."""
        self.change(Migrate(name, plan))

    def change(self, given: QueryCommand, sink: Sink | None = None, cells: int = 1) -> QueryCommand:
        """Change the declared queries or orders. The change is tried in an engine: what that refuses is refused now.

        Returns the command with its query spelled as declared. `sink`: where the results of an added query go.
        """
        with self._lock:
            given.check()
            command = self._config.resolve_names(given)
            config = tried = command.configure(self._config, 0)
            if isinstance(command, AddQuery | Migrate | SetPolicy):
                changed = config.find_query(command.name)
                tried = replace(
                    config, queries=tuple(each for each in config.queries if each.derived or each is changed)
                )
            Cell(Layout(self._build_spec(cells, tried)))
            self._config = config
            if isinstance(command, AddQuery) and sink is not None:
                self._sinks[RESULT, command.name] = sink
            elif isinstance(command, DropQuery):
                del self._sinks[RESULT, command.name]
            return command

    def _bind_query(self, name: str) -> Query:
        return self._build_spec(1, self._config).bound_queries[name]

    def _check_name_free(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")
        derived = (query.name for query in self._config.queries if query.derived)
        if name in self._streams or name.casefold() in {other.casefold() for other in (*self._tables, *derived)}:
            raise QueryError("DUPLICATE_NAME", f"there is a stream or table {name} already")

    def _build_spec(self, cells: int, config: PipelineConfig) -> PipelineSpec:
        streams, tables = tuple(self._streams.values()), dict(self._tables)
        return PipelineSpec(
            streams, tables, config.queries, cells, self._state, config.orders, maintenance=self._maintenance
        )

    def explain(self, cells: int = 1) -> str:
        """How the queries are placed on a number of cells."""
        layout = Layout(self._build_spec(cells, self._config))
        return "\n".join(f"{name}: {placement}" for name, placement in layout.placements.items())

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(
        self,
        checkpointLocation: str | Path | None = None,  # noqa: N803 - Spark's spelling
        trigger: Mapping[str, Any] | None = None,
        cells: int | None = None,
        adapt: bool | Rules = False,
    ) -> Run:
        """Start ONE Spark streaming query for all queries.

        `trigger` is what Spark's `trigger` takes, such as {"processingTime": "1 second"} or {"availableNow": True}.
        `cells` is the number of parts of the work, fixed for a checkpoint; by default the number of the session's
        cores. With `adapt` plans, state policies and budgets follow measurements, by some `Rules`; see docs/adapt.md.
        A pipeline that falls behind a processingTime trigger sheds work of queries with FRESHNESS also without it.
        """
        rules = as_rules(adapt)
        if trigger is not None and not isinstance(trigger, Mapping):
            raise QueryError("BAD_TRIGGER", f'a trigger is such as {{"processingTime": "1 second"}}, not {trigger!r}')
        chosen = cells if cells is not None else self.spark.sparkContext.defaultParallelism
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 1:
            raise QueryError("BAD_CELLS", f"cells is a number, at least 1, not {cells!r}")
        place = str(checkpointLocation) if checkpointLocation else tempfile.mkdtemp(prefix="penstock-")
        return Run(self, self._launch(place, trigger, chosen, self._build_adapt_settings(rules, trigger, chosen)))

    def _build_adapt_settings(
        self, rules: Rules | None, trigger: Mapping[str, Any] | None, cells: int
    ) -> AdaptSettings | None:
        every = (trigger or {}).get("processingTime")
        if rules is None and not every:
            return None
        cells_per_core = -(-cells // self.spark.sparkContext.defaultParallelism)
        timing = BatchTiming(parse_trigger_seconds(self.spark, every) if every else None, cells_per_core)
        return AdaptSettings(rules or Rules(), ACTIONS if rules is not None else ("budget",), timing)

    def _launch(
        self, place: str, trigger: Mapping[str, Any] | None, cells: int, settings: AdaptSettings | None
    ) -> StartedPipeline:
        if all(query.derived for query in self._config.queries):
            raise QueryError("NO_QUERY", "the pipeline has no query; declare one with `query`")
        folder = Folder(place)
        watch = None if settings is None else SamplingSettings(settings.rules.effort, "migrate" not in settings.actions)
        declared = replace(self._build_spec(cells, self._config), sampling=watch)
        try:
            metadata, log = CheckpointMetadata.open(folder, declared), CommandLog(folder)
        except OSError as error:
            raise DataError("FOLDER_UNREACHABLE", f"{place} cannot be a checkpoint: {error}", folder=place) from error
        spec = declared.with_config(metadata.schedule.last)
        publish = partial(self.spark.sparkContext.setLocalProperty, CONFIG_PROPERTY)
        batch_sink = BatchSink(spec, metadata, {**self._build_reject_sinks(folder), **self._sinks}, publish)
        with apply_query_settings(self.spark, cells, local=folder.is_local):
            writer = self._build_frame(metadata.run, spec, log).writeStream.foreachBatch(batch_sink)
            writer = writer.option("checkpointLocation", place).outputMode("append")
            writer = writer.queryName(f"penstock-{metadata.run[:8]}")
            publish(metadata.schedule.encode())  # the thread of the streaming query inherits it
            try:
                query = wait_for_sources((writer.trigger(**trigger) if trigger else writer).start())
            except TypeError as error:
                raise QueryError("BAD_TRIGGER", f"Spark knows no trigger {dict(trigger or {})!r}: {error}") from error
            except PySparkException as error:
                raise DataError("START_FAILED", f"Spark did not start the pipeline: {error}") from error
        return StartedPipeline(query, batch_sink, log, place, settings)

    def _build_reject_sinks(self, folder: Folder) -> dict[OutputKey, Sink]:
        names = [stream.name for stream in self._streams.values()]
        return {
            (kind, name): parquet(folder.child(f"{kind}/{as_file_name(name)}").path)
            for kind in (LATE, DEAD)
            for name in names
        }

    def _build_frame(self, run: str, spec: PipelineSpec, log: CommandLog) -> DataFrame:
        """The frame of the streaming query: every declared stream with all columns, which later queries may read.

        The columns have numbers as names: `mapInArrow` does not take a name with a dot or a backtick.
        """
        packed = []
        for stream in spec.streams:
            frame, blobs = self._frames[stream.name], stream.name in self._packed
            # Spark's current_timestamp() is that of the micro-batch: the same when it is repeated
            now = [current_timestamp()] if is_stamped(stream) or stream.ahead is not None else []
            given = [name for name in stream.schema.names if not is_stamped(stream) or name != stream.time]
            read = [col(quote_name(name)) for name in (frame.columns if blobs else given)]
            numbered = [column.alias(f"c{number}") for number, column in enumerate([*read, *now])]
            clock = stream.time if is_stamped(stream) else NOW_COLUMN
            names = None if blobs else [*given, *([clock] if now else [])]
            packed.append(frame.select(*numbered).mapInArrow(build_pack_map(spec, stream, names), PACKED_DDL))
        commands = self.spark.readStream.format("text").option("wholetext", True).load(log.path)
        packed.append(commands.mapInArrow(build_command_map(spec.cells), PACKED_DDL))
        together = reduce(DataFrame.unionAll, packed)
        return together.groupBy("cell").transformWithState(
            self.processor(run, spec), outputStructType=OUTPUT_TYPE, outputMode="Append", timeMode="None"
        )


def _collect_table(name: str, df: DataFrame) -> pa.Table:
    if not isinstance(df, DataFrame):
        raise DataError("NOT_A_TABLE", f"table {name} is a DataFrame or a pyarrow.Table, not a {type(df).__name__}")
    if df.isStreaming:
        raise DataError("IS_STREAMING", f"table {name} is a streaming DataFrame; declare it with `stream`")
    return df.toArrow()
