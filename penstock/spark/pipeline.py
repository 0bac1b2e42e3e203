"""A pipeline: streams, tables and continuous queries on Spark, started as ONE streaming query."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from penstock.adapt import (
    ACTIONS,
    AddQuery,
    AlterQuery,
    DeriveStream,
    DropQuery,
    Migrate,
    QueryCommand,
    Rules,
    SetPolicy,
    as_rules,
)
from penstock.cql import (
    OPERATION,
    Duration,
    NameMap,
    Query,
    Stream,
    Timestamps,
    add_function,
    bind_query,
    build_schema,
    describe_changes,
    describe_function,
    describe_stream,
    read_script,
    write_table_query,
    zone_columns,
)
from penstock.display import format_summary, render_block, render_svg
from penstock.engine import Descriptions, QueryDescription
from penstock.errors import DataError, InternalError, QueryError, UnsupportedError, name_arguments
from penstock.spark.arrow_schema import convert_schema
from penstock.spark.descriptions import describe_queries
from penstock.spark.driver.adaptive import BatchTiming
from penstock.spark.driver.batch_sink import BatchSink
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.launch import (
    check_not_running,
    check_speculation,
    remove_unfinished_offsets,
    set_local_properties,
    start_query,
)
from penstock.spark.driver.query_frame import build_query_frame, pack_streams
from penstock.spark.driver.started_pipeline import AdaptSettings, StartedPipeline
from penstock.spark.environment import require_session
from penstock.spark.heartbeat import is_clocked
from penstock.spark.kafka import find_kafka_use, select_records
from penstock.spark.layout import Layout
from penstock.spark.payloads import REJECT_COLUMNS, Payload
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.query_warnings import warn_of_query
from penstock.spark.run import Run
from penstock.spark.session import (
    WIDE_ROWS,
    apply_query_settings,
    choose_batch_settings,
    local_session,
    parse_trigger_seconds,
)
from penstock.spark.shipped_functions import ShippedFunction
from penstock.spark.sinks import (
    ConsoleSink,
    Sink,
    as_sink,
    check_folders,
    clear_folders,
    from_connector,
    parquet,
    sink_connector,
)
from penstock.spark.spec import PipelineSpec, SamplingSettings
from penstock.spark.static_tables import StaticTable, TableCleaner, store_tables
from penstock.spark.storage import Folder, as_file_name
from penstock.spark.view_texts import ViewTexts
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT, OutputKey
from penstock.spark.worker.processor import CellProcessor
from penstock.state import SHIPPED, Maintenance, parse_size

_LOG = logging.getLogger(__name__)


@name_arguments
class Pipeline:
    """Declare streams, tables and queries, then `start`."""

    processor: type[CellProcessor] = CellProcessor

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        state: str = "auto",
        maintenance: Maintenance = SHIPPED,
        memory: int | str | None = None,
    ) -> None:
        """`state`: the state policy of its queries; `maintenance`: when state is reorganised.

        `memory`: how much the engine of each cell may hold, such as "512 MB". Then the oldest rows of windows move to
        the local folders of the executor, and a micro-batch that still does not fit is refused with MEMORY_LIMIT.
        Without it the limit follows from `spark.executor.pyspark.memory`, if the session has that; see docs/limits.md.
        """
        self.spark = spark or local_session()
        require_session(self.spark)
        self._state = state
        self._maintenance = maintenance
        self._memory = None if memory is None else parse_size(memory)
        self._streams: NameMap[Stream] = NameMap()
        self._frames: dict[str, DataFrame] = {}
        self._packed: dict[str, Payload | None] = {}
        self._tables: dict[str, StaticTable] = {}
        self._views = ViewTexts()
        self._functions: dict[str, ShippedFunction] = {}
        self._config = PipelineConfig(())
        self._lock = RLock()
        self._sinks: dict[OutputKey, Sink] = {}

    @classmethod
    def from_script(
        cls, path: str | Path, spark: SparkSession | None = None, *, memory: int | str | None = None
    ) -> Pipeline:
        """The pipeline of a CQL script. `memory`: the limit of each cell, as of `Pipeline`."""
        from penstock.spark.script_pipeline import build_pipeline  # noqa: PLC0415 - it needs this class

        return build_pipeline(read_script(Path(path)), spark, memory=memory)

    @property
    def queries(self) -> Descriptions[QueryDescription]:
        """The declared queries by name, each with its text and columns, and its plan if one was given."""
        return describe_queries(lambda: self._build_spec(1, self._config))

    def __repr__(self) -> str:
        return format_summary("penstock.Pipeline", {
            "stream": list(self._streams), "table": list(self._tables), "query": list(self.queries)
        })  # fmt: skip

    def _repr_html_(self) -> str:
        graph = ""
        if self.queries:
            svg = import_module("penstock.web").draw_spec(self._build_spec(1, self._config))  # a higher package
            graph = render_svg(svg, "query graph")
        return render_block(repr(self), self.queries._repr_html_(), graph)

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
        packed: bool | Payload = False,
    ) -> None:
        """Declare a stream: a streaming DataFrame, its time column, how late a row may be.

        By default only rows and `Run.advance` advance its time. With `skew` (the longest delay between the time of a
        row and its arrival) or `idle_after` (after that long without rows, older rows are not expected) the clock
        advances it too, if a query waits for it. With `ahead`, a row whose time is further than that ahead of the time
        of its micro-batch goes to the dead letters.

        `schema` has the types of the columns, by default those of the DataFrame. With `packed` the DataFrame has one
        binary column: Arrow IPC streams of rows of that schema, so Spark does not convert rows to columns. If
        `packed` is a `ps.Payload`, the DataFrame has the columns of Spark's Kafka source, and their values are decoded.

        `late` and `dead` are sinks for rows that came too late and for rows without a time; by default they are
        written as Parquet below the checkpoint.
        """
        self._check_name_free(name)
        if not getattr(df, "isStreaming", False):
            raise DataError("NOT_STREAMING", f"{name} is not a streaming DataFrame; use spark.readStream, or `table`")
        if not isinstance(time, str):
            raise QueryError("UNKNOWN_COLUMN", f"{name}: the time column is named by a text, not {time!r}")
        payload = packed if isinstance(packed, Payload) else None
        if payload is not None:
            df = select_records(name, df, schema)
        elif packed and (schema is None or [kind for _, kind in df.dtypes] != ["binary"]):
            raise DataError("NOT_PACKED", f"{name}: a packed stream has one binary column, and a schema must be given")
        columns = build_schema(schema or convert_schema(df.schema))
        if timestamps == "external":
            late_by = lateness
        else:  # rows that get their time on arrival are never late
            late_by = 0
            if time.casefold() not in {name.casefold() for name in columns.names}:
                columns = columns.append(pa.field(time, pa.timestamp("us", "UTC")))
        declared = describe_stream(name, columns, time, late_by, timestamps, skew, idle_after, ahead)
        if (is_clocked(declared) or ahead is not None) and not pa.types.is_timestamp(declared.time_type):
            raise UnsupportedError(
                "CLOCK_NEEDED",
                f"{name}: skew, idle_after, ahead and rows stamped by a clock need a timestamp, but {declared.time} "
                "counts ticks; use Run.advance",
            )
        if payload is not None:
            payload.check(declared)
            declared = replace(declared, rejects=tuple(REJECT_COLUMNS))
        self._streams.add(declared)
        self._frames[name] = df
        if packed:
            self._packed[name] = payload
        for kind, sink in ((LATE, late), (DEAD, dead)):
            if sink is not None:
                self._sinks[kind, name] = as_sink(sink)

    def changes(self, stream: Stream, df: DataFrame, payload: Payload | None = None) -> None:
        """Declare the stream with the changes of an updating table, as CREATE TABLE of a script describes it."""
        if not getattr(df, "isStreaming", False):
            raise DataError("NOT_STREAMING", f"{stream.name} is not a streaming DataFrame; use spark.readStream")
        self._check_name_free(stream.name)
        declared = replace(stream, schema=zone_columns(stream.schema))
        if payload is not None:
            payload.check(declared)
            declared, df = (
                replace(declared, rejects=tuple(REJECT_COLUMNS)),
                select_records(stream.name, df, stream.schema),
            )
            self._packed[stream.name] = payload
        self._streams.add(declared)
        self._frames[stream.name] = df

    def table(
        self,
        name: str,
        df: DataFrame | pa.Table,
        *,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        lateness: Duration = 0,
    ) -> None:
        """Declare a static table: it is read once, now. A run writes it to its checkpoint, where the cells read it.

        With `key` and `time` the table is updating: `df` is a streaming DataFrame with its changes. A row with a key
        ends the earlier one with the same key; with '-' in the column `_op` it only ends it.
        """
        self._check_name_free(name)
        if key is not None or time is not None:
            schema = convert_schema(df.schema) if isinstance(df, DataFrame) else df.schema
            stream = describe_changes(name, schema, key, time, lateness)
            frame = df if OPERATION in df.columns else df.withColumn(OPERATION, lit(None).cast("string"))
            self.changes(stream, frame)
            self.view(name, write_table_query(stream))
            return
        table = df if isinstance(df, pa.Table) else _collect_table(name, df)
        self._tables[name] = StaticTable.of(table.cast(build_schema(table.schema)))

    def function(self, name: str, function: Callable[..., Any], returns: str | pa.DataType) -> None:
        """Declare a scalar function that queries can call: it takes Arrow arrays and returns one of the same length.

        It is pickled now and sent to the workers. See `Engine.function`.
        """
        known = {each.name: each.load() for each in self._functions.values()}
        described = describe_function(name, function, returns)
        shipped = ShippedFunction.of(described)
        if self._functions.get(shipped.name) != shipped:
            add_function(known, {}, described)
            self._functions[shipped.name] = shipped

    def query(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Declare a continuous query and the sink of its results, by default the console."""
        into = ConsoleSink() if sink is None else as_sink(sink)
        with self._lock:
            self.change(AddQuery(name, text, plan), into)
            self._config = self._config.change_query(name, added=False, sink=None)
            query = self._bind_query(name)
        warn_of_query(name, query, self._tables)

    def derive(self, name: str, text: str, plan: str | None = None) -> None:
        """Declare a stream of the results of a query, for other queries to read; its time column is `_ts`."""
        self._check_name_free(name)
        self.change(DeriveStream(name, text, plan))
        warn_of_query(name, self._bind_query(name), self._tables)

    def view(self, name: str, text: str) -> None:
        """Declare a view: a relation whose rows are those of the query's answer. Queries that read it compute it."""
        with self._lock:
            self._check_name_free(name)
            query = self._views.add(name, text, self._build_spec(1, self._config).catalog)
        warn_of_query(name, query, self._tables)

    def drop(self, name: str) -> None:
        """Remove a query."""
        self.change(DropQuery(name))

    def migrate(self, name: str, plan: str) -> None:
        """Give a query another plan."""
        self.change(Migrate(name, plan))

    def change(self, given: QueryCommand, sink: Sink | None = None, cells: int = 1) -> QueryCommand:
        """Change the declared queries or orders. The change is tried in an engine: what that refuses is refused now.

        Returns the command with its query spelled as declared. `sink`: where the results of an added query go. A run
        calls this too: a query that it adds is marked, so that a later start knows that no script declares it.
        """
        with self._lock:
            given.check()
            command = self._inline_views(self._config.resolve_names(given))
            config = tried = command.configure(self._config, 0)
            if isinstance(command, AddQuery | AlterQuery | Migrate | SetPolicy):
                changed = config.find_query(command.name)
                tried = replace(
                    config, queries=tuple(each for each in config.queries if each.derived or each is changed)
                )
            Cell(Layout(self._build_spec(cells, tried)))
            self._config = config
            if isinstance(command, AddQuery) and sink is not None:
                self._sinks[RESULT, command.name] = sink
                self._config = config.mark_added(command.name, sink_connector(sink))
            elif isinstance(command, DropQuery):
                del self._sinks[RESULT, command.name]
            return command

    def _inline_views(self, command: QueryCommand) -> QueryCommand:
        if not isinstance(command, AddQuery | AlterQuery | DeriveStream):
            return command
        catalog = self._build_spec(1, self._config).catalog
        return replace(command, text=self._views.inline(command.text, catalog))

    def bind(self, text: str) -> Query:
        """A query text with its names resolved, those of views and derived streams too."""
        catalog = self._build_spec(1, self._config).catalog
        return bind_query(self._views.inline(text, catalog), catalog)

    def _bind_query(self, name: str) -> Query:
        return self._build_spec(1, self._config).bound_queries[name]

    def _check_name_free(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")
        derived = (query.name for query in self._config.queries if query.derived)
        taken = {other.casefold() for other in (*self._tables, *derived)}
        if name in self._streams or name in self._views or name.casefold() in taken:
            raise QueryError("DUPLICATE_NAME", f"there is a stream, table or view {name} already")

    def _build_spec(self, cells: int, config: PipelineConfig) -> PipelineSpec:
        streams, tables = tuple(self._streams.values()), dict(self._tables)
        return PipelineSpec(
            streams, tables, config.queries, cells, self._state, config.orders, maintenance=self._maintenance,
            functions=tuple(self._functions.values()), memory=self._memory,
        )  # fmt: skip

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
        evolve: bool = False,
    ) -> Run:
        """Start ONE Spark streaming query for all queries.

        `trigger` is what Spark's `trigger` takes, such as {"processingTime": "1 second"} or {"availableNow": True}.
        `cells` is the number of parts of the work, fixed for a checkpoint; by default that of the checkpoint, and for a
        new one the number of the session's cores. With `adapt` plans, state policies and budgets follow measurements,
        by some `Rules`; see docs/adapt.md. A pipeline that falls behind a processingTime trigger sheds work of queries
        with FRESHNESS also without it.

        A checkpoint of a pipeline whose streams or queries differ is refused, unless `evolve` is set: then queries keep
        their windows where they can, others start with empty ones; `run.status["evolved"]` says which.
        """
        rules = as_rules(adapt)
        if trigger is not None and not isinstance(trigger, Mapping):
            raise QueryError("BAD_TRIGGER", f'a trigger is such as {{"processingTime": "1 second"}}, not {trigger!r}')
        if cells is not None and (isinstance(cells, bool) or not isinstance(cells, int) or cells < 1):
            raise QueryError("BAD_CELLS", f"cells is a number, at least 1, not {cells!r}")
        place = str(checkpointLocation) if checkpointLocation else tempfile.mkdtemp(prefix="penstock-")
        check_speculation(self.spark)
        with _refuse_unreachable(place):
            chosen = cells or self._find_cells(place)
        settings = self._build_adapt_settings(rules, trigger, chosen)
        return Run(self, self._launch(place, trigger, chosen, settings, evolve=evolve))

    def _find_cells(self, place: str) -> int:
        """The number of cells of a checkpoint; for a new one the number of the session's cores."""
        metadata = CheckpointMetadata.read(Folder(place))
        return self.spark.sparkContext.defaultParallelism if metadata is None else metadata.current.cells

    def _count_cells_per_core(self, cells: int) -> int:
        return -(-cells // self.spark.sparkContext.defaultParallelism)

    def _build_adapt_settings(
        self, rules: Rules | None, trigger: Mapping[str, Any] | None, cells: int
    ) -> AdaptSettings | None:
        every = (trigger or {}).get("processingTime")
        if rules is None and not every:
            return None
        seconds = parse_trigger_seconds(self.spark, every) if every else None
        timing = BatchTiming(seconds, self._count_cells_per_core(cells))
        return AdaptSettings(rules or Rules(), ACTIONS if rules is not None else ("budget",), timing)

    def _launch(
        self, place: str, trigger: Mapping[str, Any] | None, cells: int, settings: AdaptSettings | None, *, evolve: bool
    ) -> StartedPipeline:
        if all(query.derived for query in self._config.queries):
            raise QueryError("NO_QUERY", "the pipeline has no query; declare one with `query`")
        folder = Folder(place)
        check_not_running(self.spark, folder)
        watch = None if settings is None else SamplingSettings(settings.rules.effort, "migrate" not in settings.actions)
        declared = self._build_spec(cells, self._config)
        declared = replace(declared, sampling=watch, cells_per_core=self._count_cells_per_core(cells))
        with _refuse_unreachable(place):
            remove_unfinished_offsets(folder)
            is_new = CheckpointMetadata.read(folder) is None
            if is_new:
                check_folders(self._sinks.values())
            declared = replace(declared, tables=store_tables(self.spark.sparkContext, folder, declared.tables))
            metadata, found = CheckpointMetadata.open(folder, declared, evolve=evolve)
            log, spec = CommandLog(folder), found.layout.spec
        restored = {(RESULT, query.name): _build_restored_sink(query) for query in found.restored}
        sinks = {**self._build_reject_sinks(folder), **self._sinks, **restored}
        batch_sink = BatchSink(spec, metadata, sinks, self.spark.sparkContext.setLocalProperty)
        batch_sink.observe(TableCleaner(folder, spec.tables.values()).observe)
        if is_new:
            clear_folders(self._sinks.values(), metadata.run)
        metadata.prepare()
        tasks = max(cells, self.spark.sparkContext.defaultParallelism)
        packed = pack_streams(spec, self._frames, self._packed, tasks)
        frame = build_query_frame(self.spark, spec, packed, log, self.processor(metadata.run, spec))
        batches = WIDE_ROWS if self._packed else choose_batch_settings(stream.schema for stream in spec.streams)
        with (
            apply_query_settings(self.spark, cells, local=folder.is_local, batches=batches),
            set_local_properties(self.spark, batch_sink.list_properties()),
        ):
            query = start_query(frame, batch_sink, place, metadata.run, trigger)
        with self._lock:  # the run can change the restored queries like declared ones
            self._config = replace(self._config, queries=(*self._config.queries, *found.restored))
            self._sinks.update(restored)
        for note in found.notes:
            _LOG.warning("%s: %s", place, note)
        kafka = find_kafka_use(self._frames.values())
        return StartedPipeline(query, batch_sink, log, place, settings, found.notes, kafka)

    def _build_reject_sinks(self, folder: Folder) -> dict[OutputKey, Sink]:
        names = [stream.name for stream in self._streams.values()]
        return {
            (kind, name): parquet(folder.child(f"{kind}/{as_file_name(name)}").path)
            for kind in (LATE, DEAD)
            for name in names
        }


def _collect_table(name: str, df: DataFrame) -> pa.Table:
    if not isinstance(df, DataFrame):
        raise DataError("NOT_A_TABLE", f"table {name} is a DataFrame or a pyarrow.Table, not a {type(df).__name__}")
    if df.isStreaming:
        raise DataError("IS_STREAMING", f"table {name} is a streaming DataFrame; declare it with `stream`")
    return df.toArrow()


@contextmanager
def _refuse_unreachable(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError("FOLDER_UNREACHABLE", f"{place} cannot be a checkpoint: {error}", folder=place) from error


def _build_restored_sink(query: QuerySpec) -> Sink:
    if query.sink is None:
        raise InternalError("NO_SINK", f"{query.name} was restored without the description of its sink")
    return from_connector(query.name, query.sink.format, dict(query.sink.options))
