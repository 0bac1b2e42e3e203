"""Bound queries: CQL text with every name and type resolved, as frozen values.

All durations are integers in the unit of the time column (microseconds for timestamps, else ticks).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from penstock.cql.catalog import SinkDeclaration, Stream, Table
from penstock.cql.errors import Span
from penstock.cql.types import find_common_time_type
from penstock.cql.windows import Window
from penstock.expr import Column, Expr

Emit = Literal["istream", "dstream", "rstream", "changes", "close"]
SeqMode = Literal["recent", "chronicle"]


@dataclass(frozen=True)
class Subquery:
    """A query in FROM or WITH, or an outer join: a relation, whose rows are those of its answer."""

    name: str
    body: QueryBody
    qualified: bool = False
    """Whether its columns are named alias.column: it is a part of a FROM clause."""

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(item.name, item.expr.type) for item in self.body.items])

    @property
    def time_type(self) -> pa.DataType:
        return find_time_type(self.body)


@dataclass(frozen=True)
class View(Subquery):
    """A query that CREATE VIEW names: it runs once, and other queries read its answer."""


@dataclass(frozen=True)
class Source:
    """One FROM item. `relation` is the declaration; the window of a table is `STATIC`, that of a subquery `CURRENT`."""

    alias: str
    relation: Stream | Table | Subquery
    window: Window
    freshness: int | None = None
    hidden: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns that the planner adds; no text can name them."""
    clock_freshness: bool = False
    """Whether FRESHNESS compares with the clock at which a result leaves."""
    span: Span | None = field(default=None, compare=False)
    """Its place in the text that was bound."""
    written: str = field(default="", compare=False)
    """Its alias in the text, where another item has that one too, so that this one has another."""
    surrounds: bool = field(default=False, compare=False)
    """Whether these are the rows of the query around a subquery, joined to it because the subquery reads them."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that can be read."""
        return pa.schema([*self.relation.schema, *(pa.field(*column) for column in self.hidden)])

    @property
    def name(self) -> str:
        """Its alias in the text."""
        return self.written or self.alias

    @property
    def is_table(self) -> bool:
        return isinstance(self.relation, Table)

    @property
    def base_sources(self) -> tuple[Source, ...]:
        """The streams and tables that it reads: itself, or those of the subquery."""
        return self.relation.body.inputs if isinstance(self.relation, Subquery) else (self,)


@dataclass(frozen=True)
class SelectItem:
    """One output column."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class SequenceClause:
    """FROM SEQ(...): how consecutive sources pair."""

    mode: SeqMode


@dataclass(frozen=True)
class Select:
    """A bound SELECT. `where` holds the conjuncts of WHERE and of every ON.

    `group_by` is None without GROUP BY and () for a global aggregate.
    """

    sources: tuple[Source, ...]
    where: tuple[Expr, ...]
    items: tuple[SelectItem, ...]
    distinct: bool = False
    group_by: tuple[Expr, ...] | None = None
    having: Expr | None = None
    sequence: SequenceClause | None = None

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The streams and tables that it reads, those of subqueries included."""
        return tuple(base for source in self.sources for base in source.base_sources)


SetKind = Literal["union all", "union", "except", "except all", "intersect", "intersect all"]


@dataclass(frozen=True)
class SetOperation:
    """A set operation of two queries with columns of the same types; the left one gives their names."""

    kind: SetKind
    left: QueryBody
    right: QueryBody

    @property
    def items(self) -> tuple[SelectItem, ...]:
        return self.left.items

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.left.inputs + self.right.inputs


OuterJoinKind = Literal["left", "full", "semi", "anti", "mark"]


@dataclass(frozen=True)
class OuterJoin:
    """A join that keeps rows of the left side, or of both, that have no partner; or that filters the left side.

    A mark join has all rows of the left side, and says of each whether it has a partner. `on` are conjuncts over both
    sides. `items` are the columns of both sides, or of the left side only; of a mark join the mark too, a column
    without an alias.
    """

    kind: OuterJoinKind
    left: Source
    right: Source
    on: tuple[Expr, ...]
    items: tuple[SelectItem, ...]
    final: bool = False
    """Whether each row is written once, when it is final: two rows are partners if they are valid at one instant."""

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.left.base_sources + self.right.base_sources


@dataclass(frozen=True)
class RowTransform:
    """A body that adds columns to the rows of one FROM item, or changes how long they are valid."""

    source: Source
    items: tuple[SelectItem, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source,)

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.source.base_sources


WindowKind = Literal["tumble", "hop", "session"]
WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True)
class WindowedRows(RowTransform):
    """TUMBLE, HOP or SESSION over a stream: its rows with `window_start` and `window_end`, the last two items.

    `size` is the gap of a session. `partition` has the columns that divide sessions.
    """

    kind: WindowKind
    size: int
    slide: int
    partition: tuple[Column, ...] = ()


RankFunction = Literal["row_number", "rank", "dense_rank"]


@dataclass(frozen=True)
class SortTerm:
    """A column of the source that rows are ordered by."""

    column: Column
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class RankedRows(RowTransform):
    """Rows with their rank in a partition, above `offset` and at most `limit`.

    Rows that are equal in all terms of `order` are ordered by all columns of the source. `rank` is the name of the last
    item, which has the rank; None if the rank is not read: then a row stays when only its rank changes.
    """

    function: RankFunction
    partition: tuple[Column, ...]
    order: tuple[SortTerm, ...]
    rank: str | None
    offset: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class Frame:
    """The rows that a window function reads: from `start` to `end` before the current row, both included.

    Distances are in rows, or in units of time; negative ones are behind the row. `start` is None for all earlier rows.
    Rows of one time are in the same frames of time.
    """

    unit: Literal["rows", "range"]
    start: int | None
    end: int = 0

    @property
    def ahead(self) -> int:
        """How far behind the row the frame ends, 0 if it ends at the row or before it."""
        return max(-self.end, 0)


FrameFunctionKind = Literal["aggregate", "first", "last", "nth"]


@dataclass(frozen=True)
class FrameFunction:
    """A function of the rows of a frame. `name` is that of its item.

    `value` is an aggregate over columns of the source, or the column that is read at the first, the last or the
    `place`-th row. `default` is the column of the current row that is read if there is no such row.
    """

    name: str
    kind: FrameFunctionKind
    value: Expr
    place: int = 1
    default: Column | None = None


@dataclass(frozen=True)
class FrameWindow:
    """OVER (PARTITION BY ... ORDER BY time ...), and the functions over it."""

    partition: tuple[Column, ...]
    frame: Frame
    functions: tuple[FrameFunction, ...]


@dataclass(frozen=True)
class FramedRows(RowTransform):
    """Rows of a source that only grows, each once, with functions of the rows around it.

    `time` is the column with the time at which a row enters. Rows of one time are in the order of their arrival if
    `by_arrival`, else in that of all columns of the source. Windows whose frames end behind the row are of one unit; if
    they count rows, they have one partition.
    """

    windows: tuple[FrameWindow, ...]
    time: Column
    by_arrival: bool

    @property
    def ahead(self) -> int:
        """How far behind a row its last frame ends."""
        return max(window.frame.ahead for window in self.windows)


QueryBody = Select | SetOperation | OuterJoin | RowTransform


def is_by_value(body: QueryBody) -> bool:
    """Whether a row of a body stays if an equal one takes its place: it is ranked or marked, also below a view or join.

    A rank and a mark change while the row stays. Groups, DISTINCT and set operations that count rows tell their own
    rows apart.
    """
    match body:
        case RankedRows() | OuterJoin(kind="mark"):
            return True
        case SetOperation():
            return body.kind == "union all" and (is_by_value(body.left) or is_by_value(body.right))
        case Select() if body.group_by is not None or body.distinct or body.sequence is not None:
            return False
        case RowTransform():
            return False
    sources = (body.left, body.right) if isinstance(body, OuterJoin) else body.sources
    return any(isinstance(each.relation, Subquery) and is_by_value(each.relation.body) for each in sources)


def reads_final_joins(body: QueryBody) -> bool:
    """Whether a body reads outer joins whose rows are written when they are final."""
    if isinstance(body, OuterJoin):
        return body.final
    if isinstance(body, SetOperation):
        return reads_final_joins(body.left) or reads_final_joins(body.right)
    relations = (source.relation for source in body.sources) if isinstance(body, Select) else ()
    return any(reads_final_joins(each.body) for each in relations if isinstance(each, Subquery))


def find_time_type(body: QueryBody) -> pa.DataType:
    """The type of the streams' time columns; see `find_common_time_type` if they differ."""
    types = [source.relation.time_type for source in body.inputs if isinstance(source.relation, Stream)]
    return find_common_time_type(types)


@dataclass(frozen=True)
class Query:
    """A whole continuous query: a body, and how changes of its answer become a stream."""

    text: str
    emit: Emit
    body: QueryBody
    offset: int = field(default=0, compare=False)
    """The place of `text` in the text that was bound."""

    @property
    def time_type(self) -> pa.DataType:
        """The type of `_ts`."""
        return find_time_type(self.body)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result, `_ts` last, and before it `_op` if changes are emitted."""
        shown = self.body.items[:-1] if self.emit == "close" else self.body.items
        fields = [pa.field(item.name, item.expr.type) for item in shown]
        if self.emit == "changes":
            fields.append(pa.field("_op", pa.string()))
        return pa.schema([*fields, pa.field("_ts", self.time_type)])


@dataclass(frozen=True)
class CreateStream:
    stream: Stream
    span: Span
    """The name in the script; also in the other statements."""


@dataclass(frozen=True)
class CreateStreamAs:
    """A derived stream: its schema is the schema of the query, its time column is `_ts`."""

    name: str
    query: Query
    span: Span


@dataclass(frozen=True)
class CreateView:
    """A relation with the rows of the query's answer."""

    name: str
    query: Query
    span: Span


@dataclass(frozen=True)
class CreateTable:
    table: Table
    span: Span


@dataclass(frozen=True)
class CreateSink:
    sink: SinkDeclaration


@dataclass(frozen=True)
class InsertInto:
    """A query and the sink that it writes to."""

    sink: str
    query: Query
    span: Span


@dataclass(frozen=True)
class BareQuery:
    """A SELECT without INSERT INTO: a script prints it to the console."""

    query: Query


Statement = CreateStream | CreateStreamAs | CreateView | CreateTable | CreateSink | InsertInto | BareQuery
