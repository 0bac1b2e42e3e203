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
from penstock.cql.windows import Window
from penstock.expr import Expr

Emit = Literal["istream", "dstream", "rstream"]
SeqMode = Literal["recent", "chronicle"]


@dataclass(frozen=True)
class Source:
    """One FROM item. `relation` is the declaration; the window of a table is `STATIC`."""

    alias: str
    relation: Stream | Table
    window: Window
    freshness: int | None = None
    span: Span | None = field(default=None, compare=False)
    """Its place in the text that was bound."""

    @property
    def is_table(self) -> bool:
        return isinstance(self.relation, Table)


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
        return self.sources


@dataclass(frozen=True)
class SetOperation:
    """UNION ALL or EXCEPT of two queries with columns of the same types; the left one gives their names."""

    kind: Literal["union all", "except"]
    left: QueryBody
    right: QueryBody

    @property
    def items(self) -> tuple[SelectItem, ...]:
        return self.left.items

    @property
    def inputs(self) -> tuple[Source, ...]:
        return self.left.inputs + self.right.inputs


QueryBody = Select | SetOperation


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
        """The type of `_ts`: the type of the streams' time columns, the widest one if integers differ."""
        types = [s.relation.time_type for s in self.body.inputs if isinstance(s.relation, Stream)]
        return max(types, key=lambda type_: int(type_.bit_width))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result, `_ts` last."""
        fields = [pa.field(item.name, item.expr.type) for item in self.body.items]
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


Statement = CreateStream | CreateStreamAs | CreateTable | CreateSink | InsertInto | BareQuery
