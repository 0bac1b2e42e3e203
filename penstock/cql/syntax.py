"""The syntax tree of a text before names are resolved: frozen values with their positions.

Scalar expressions are nodes of sqlglot; every construct that CQL adds to SQL has a type here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.cql.bound import Emit, SeqMode, SetKind, WindowKind
from penstock.cql.catalog import Timestamps
from penstock.cql.errors import Span
from penstock.cql.windows import Window


@dataclass(frozen=True)
class Name:
    text: str
    span: Span
    qualifier: str | None = None


@dataclass(frozen=True)
class Amount:
    """A number and an optional unit, as written."""

    number: str
    unit: str | None
    span: Span


@dataclass(frozen=True)
class FreshnessSyntax:
    """FRESHNESS alias amount [BY CLOCK]."""

    alias: Name
    amount: Amount
    by_clock: bool


@dataclass(frozen=True)
class RangeSyntax:
    size: Amount
    slide: Amount | None


@dataclass(frozen=True)
class RowsSyntax:
    count: Amount
    partition: tuple[Name, ...]
    slide: Amount | None = None


WindowForm = RangeSyntax | RowsSyntax | Window
"""The text between the brackets. A window without operands, such as NOW, needs no binding."""


@dataclass(frozen=True)
class WindowSyntax:
    form: WindowForm
    span: Span


WINDOW_KINDS: Mapping[str, WindowKind] = {"TUMBLE": "tumble", "HOP": "hop", "SESSION": "session"}


@dataclass(frozen=True)
class WindowCallSyntax:
    """TUMBLE, HOP or SESSION over a stream: its time column and durations, and the columns of PARTITION BY."""

    kind: WindowKind
    time: Name
    amounts: tuple[Amount, ...]
    partition: tuple[Name, ...]
    span: Span


@dataclass(frozen=True)
class SourceSyntax:
    """A FROM item: a name or, if `subquery` is given, a query with the name of its alias.

    `call`: the window function that reads the stream.
    """

    relation: Name
    alias: Name | None
    window: WindowSyntax | None
    subquery: BodySyntax | None = None
    call: WindowCallSyntax | None = None
    columns: tuple[Name, ...] = ()
    """The names that expressions have for its columns, in their order; none for the columns' own names."""

    @property
    def name(self) -> Name:
        """What expressions call it."""
        return self.alias or self.relation


JoinSyntaxKind = Literal["inner", "cross", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class JoinSyntax:
    """A join of two FROM items, with its condition, the columns of USING, or NATURAL."""

    kind: JoinSyntaxKind
    left: FromSyntax
    right: FromSyntax
    condition: exp.Expr | None
    using: tuple[Name, ...]
    natural: bool
    span: Span


FromSyntax = SourceSyntax | JoinSyntax


@dataclass(frozen=True)
class TopSyntax:
    """ORDER BY, and the rows of it that count: `limit` of them after the first `offset`; None: all."""

    order: tuple[exp.Expr, ...]
    limit: int | None
    offset: int
    span: Span


@dataclass(frozen=True)
class SelectSyntax:
    """A SELECT."""

    span: Span
    distinct: bool
    items: tuple[exp.Expr, ...]
    from_items: tuple[FromSyntax, ...]
    sequence: SeqMode | None
    where: exp.Expr | None
    window: Amount | None
    group_by: tuple[exp.Expr, ...] | None
    having: exp.Expr | None
    qualify: exp.Expr | None
    top: TopSyntax | None
    distinct_on: tuple[exp.Expr, ...]
    freshness: tuple[FreshnessSyntax, ...]
    windows: tuple[tuple[Name, exp.Expr], ...] = ()
    """The windows of OVER that the clause WINDOW name AS (...) names."""


@dataclass(frozen=True)
class SetSyntax:
    kind: SetKind
    left: BodySyntax
    right: BodySyntax
    span: Span  # of the right side; errors about columns point at it


@dataclass(frozen=True)
class WithSyntax:
    """WITH name (columns) AS (query), ...: queries that the body can name."""

    queries: tuple[tuple[Name, tuple[Name, ...], BodySyntax], ...]
    body: BodySyntax


BodySyntax = SelectSyntax | SetSyntax | WithSyntax


@dataclass(frozen=True)
class QuerySyntax:
    emit: Emit
    body: BodySyntax
    span: Span


@dataclass(frozen=True)
class ConnectorSyntax:
    format: str
    options: tuple[tuple[str, str], ...]
    span: Span


@dataclass(frozen=True)
class ColumnSyntax:
    name: Name
    type: Name


@dataclass(frozen=True)
class CreateStreamSyntax:
    name: Name
    columns: tuple[ColumnSyntax, ...]
    time: Name
    lateness: Amount | None
    timestamps: Timestamps
    skew: Amount | None
    idle_after: Amount | None
    ahead: Amount | None
    connector: ConnectorSyntax | None


@dataclass(frozen=True)
class CreateStreamAsSyntax:
    name: Name
    query: QuerySyntax


@dataclass(frozen=True)
class CreateViewSyntax:
    name: Name
    query: QuerySyntax


@dataclass(frozen=True)
class CreateTableSyntax:
    name: Name
    columns: tuple[ColumnSyntax, ...]
    connector: ConnectorSyntax | None


@dataclass(frozen=True)
class CreateUpdatingTableSyntax:
    """CREATE TABLE with a PRIMARY KEY: `changes` declares the stream of its changes, under the name of the table."""

    changes: CreateStreamSyntax
    key: tuple[Name, ...]


@dataclass(frozen=True)
class CreateSinkSyntax:
    name: Name
    connector: ConnectorSyntax


@dataclass(frozen=True)
class InsertSyntax:
    sink: Name
    query: QuerySyntax


StatementSyntax = (
    CreateStreamSyntax
    | CreateStreamAsSyntax
    | CreateViewSyntax
    | CreateTableSyntax
    | CreateSinkSyntax
    | InsertSyntax
    | QuerySyntax
)
