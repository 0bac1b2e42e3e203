"""What queries can name: streams and their sources, static tables, and user-defined aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.cql import (
    BUILT_IN,
    Catalog,
    FunctionSpec,
    Source,
    Stream,
    Table,
    View,
    add_function,
    build_schema,
    describe_functions,
    format_type,
)
from penstock.engine.guard import Guard
from penstock.engine.inputs import TableData, read_table
from penstock.engine.streams import Clock, StreamNode, StreamRegistry, ViewNode
from penstock.engine.table_history import TableHistory, has_timestamps
from penstock.errors import QueryError
from penstock.expr import UserFunction
from penstock.graph import Graph
from penstock.join import JoinOperator, TableVersions
from penstock.ops import check_aggregate_class, fit_columns
from penstock.state import FOREVER


def require_name(name: object) -> None:
    """Refuse a name that is empty or not a string."""
    if not isinstance(name, str) or not name:
        raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {name!r}")


def _has_timestamps(source: Source) -> bool:
    """Whether a FROM item reads a stream whose times are timestamps."""
    streams = [base.relation for base in source.base_sources if isinstance(base.relation, Stream)]
    return any(pa.types.is_timestamp(stream.time_type) for stream in streams)


class Relations:
    """All declarations. `stream_order` has the streams in the order of declaration: it orders rows of one time."""

    def __init__(self, graph: Graph, clock: Clock | None, guard: Guard) -> None:
        self._guard = guard
        self.catalog = Catalog()
        self.streams = StreamRegistry(graph, self.catalog, clock)
        self.nodes: dict[str, StreamNode] = {}
        """The streams in the graph, sources and derived ones, by name."""
        self.views: dict[str, ViewNode] = {}
        """The views in the graph, by name."""
        self.tables = TableHistory()
        self.stream_order: list[str] = []

    @property
    def stream_ranks(self) -> dict[str, int]:
        return {stream: place for place, stream in enumerate(self.stream_order)}

    def require_free(self, name: str) -> None:
        """Refuse a name that is empty, is not a string, or is taken."""
        require_name(name)
        if name in self.catalog.relations:
            taken = self.catalog.relations[name].name
            raise QueryError("DUPLICATE_NAME", f"there is a stream, table or view {taken} already")

    def add_stream(self, stream: Stream) -> None:
        """Declare a stream and create its source."""
        self.require_free(stream.name)
        source = self.streams.make_source(stream)
        with self._guard.change():
            self.register_stream(stream, self.streams.add(source))

    def register_stream(self, stream: Stream, node: StreamNode) -> None:
        """Declare a stream whose source, or whose query, is in the graph already."""
        self.catalog.relations.add(stream)
        self.nodes[stream.name] = node
        if stream.name not in self.stream_order:
            self.stream_order.append(stream.name)

    def unregister_stream(self, stream: Stream) -> None:
        """Forget a derived stream. If it is declared again, it has the same place in `stream_order`."""
        self.catalog.relations.remove(stream.name)
        del self.nodes[stream.name]

    def register_view(self, view: View, node: ViewNode) -> None:
        """Declare a view whose query is in the graph already."""
        self.catalog.relations.add(view)
        self.views[view.name] = node

    def unregister_view(self, view: View) -> None:
        """Forget a view."""
        self.catalog.relations.remove(view.name)
        del self.views[view.name]

    def add_table(self, name: str, data: TableData) -> None:
        self.require_free(name)
        table = read_table(name, data)
        schema = build_schema(table.schema)
        rows = pa.table(fit_columns(name, table, schema), schema=schema)
        with self._guard.change():
            self.tables.add(name, rows)
            self.catalog.relations.add(Table(name, schema))

    def replace_table(self, table: Table, data: TableData, joins: Iterable[JoinOperator]) -> None:
        """Give a static table other rows, and the joins that read it."""
        given = read_table(table.name, data, table.schema)
        rows = pa.table(fit_columns(table.name, given, table.schema), schema=table.schema)
        with self._guard.change():
            self.drop_former_rows(joins)
            self.tables.replace(table.name, rows, self.streams)
            for join in joins:
                sources = join.shared_join.needs.host.sources
                if any(source.relation == table for source in sources):
                    join.replace_tables(self.read_tables(sources))

    def read_tables(self, sources: Iterable[Source]) -> dict[str, TableVersions]:
        """The tables among the items of a join, by alias."""
        sources = list(sources)
        timed = any(map(_has_timestamps, sources))
        tables = {source.alias: source.relation.name for source in sources if isinstance(source.relation, Table)}
        return {alias: self.tables.read_versions(name, timed=timed) for alias, name in tables.items()}

    def drop_former_rows(self, joins: Iterable[JoinOperator]) -> None:
        """Forget rows of tables that no combination gets any more, and no restored join."""
        if not self.tables.replaced:
            return
        oldest = {timed: int(FOREVER) for timed in (False, True)}
        for source in self.streams:
            oldest[has_timestamps(source)] = min(oldest[has_timestamps(source)], source.frontier)
        for join in joins:
            sources = join.shared_join.needs.host.sources
            if any(source.is_table for source in sources):
                timed = any(map(_has_timestamps, sources))
                oldest[timed] = min(oldest[timed], join.find_oldest_birth())
        self.tables.drop_former(oldest)

    def add_aggregate(self, name: str, cls: type) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise QueryError("BAD_NAME", f"an aggregate's name is a word, not {name!r}")
        if name.casefold() in BUILT_IN or name.casefold() in (*self.catalog.user_defined,):
            raise QueryError("DUPLICATE_NAME", f"there is a function {name} already")
        self.catalog.aggregates[name.casefold()] = check_aggregate_class(name, cls)

    def add_function(self, function: UserFunction) -> None:
        add_function(self.catalog.functions, self.catalog.aggregates, function)

    def restore_functions(self, functions: Sequence[tuple[str, str]], given: Mapping[str, FunctionSpec]) -> None:
        """Take over the functions of a snapshot, which must be given again, with the types that they had."""
        for function in describe_functions(given).values():
            self.add_function(function)
        missing = [name for name, _ in functions if name not in self.catalog.functions]
        if missing:
            message = f"the snapshot uses the functions {', '.join(missing)}; give them: functions={{name: (f, type)}}"
            raise QueryError("MISSING_FUNCTIONS", message, functions=missing)
        for name, type_ in functions:
            found = format_type(self.catalog.functions[name].type)
            if found != type_:
                message = f"the function {name} returned {type_} in the snapshot, and is given with {found}"
                raise QueryError("FUNCTION_TYPE", message, function=name)

    def restore(self, order: list[str], aggregates: list[str], classes: Mapping[str, type]) -> None:
        """Take over the order of streams of a snapshot, and its aggregates, whose classes must be given again."""
        self.stream_order = order
        for name, class_ in classes.items():
            self.add_aggregate(name, class_)
        missing = [name for name in aggregates if name not in self.catalog.aggregates]
        if missing:
            message = f"the snapshot uses the aggregates {', '.join(missing)}; give their classes: aggregates="
            raise QueryError("MISSING_AGGREGATES", message, aggregates=missing)
