"""Declared streams, tables and sinks. Names are case-insensitive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from penstock.cql.errors import Span
from penstock.expr import UserFunction

if TYPE_CHECKING:
    from penstock.cql.bound import View

Timestamps = Literal["external", "internal", "latent"]


@dataclass(frozen=True)
class Connector:
    """FROM or TO `format` OPTIONS (...): what the pipeline reads or writes."""

    format: str
    options: tuple[tuple[str, str], ...] = ()

    def describe(self) -> str:
        """The format, and the folder, topic or table."""
        options = dict(self.options)
        place = next((str(options[name]) for name in ("path", "topic", "subscribe", "table") if name in options), None)
        return self.format if place is None else f"{self.format} {place}"


@dataclass(frozen=True)
class Stream:
    """A declared stream. Durations are in units of its time column: microseconds or ticks."""

    name: str
    schema: pa.Schema
    time: str
    lateness: int = 0
    timestamps: Timestamps = "external"
    skew: int = 0
    idle_after: int | None = None
    ahead: int | None = None
    """How far ahead of the clock a time may be; None for any."""
    required: tuple[str, ...] = ()
    """The columns that must not be NULL, besides the time column."""
    connector: Connector | None = None
    key: tuple[str, ...] = ()
    """If the stream has the changes of an updating table: the columns by which its rows are found."""
    rejects: tuple[pa.Field, ...] = ()
    """Columns of its dead letters on Spark, besides its own."""

    @property
    def dead_schema(self) -> pa.Schema:
        """The columns of its dead letters on Spark."""
        own = [field.with_nullable(True) for field in self.schema] if self.rejects else list(self.schema)
        return pa.schema([*own, *self.rejects])

    @property
    def time_type(self) -> pa.DataType:
        return self.schema.field(self.time).type

    @cached_property
    def columns(self) -> tuple[list[str], list[pa.DataType]]:
        """The names and the types of its columns: it takes time to read them from a schema."""
        return self.schema.names, self.schema.types


@dataclass(frozen=True)
class Table:
    """A static table: its rows are always valid."""

    name: str
    schema: pa.Schema
    connector: Connector | None = None
    required: tuple[str, ...] = ()
    """The columns that must not be NULL."""


@dataclass(frozen=True)
class SinkDeclaration:
    """A named output of a script."""

    name: str
    connector: Connector
    span: Span
    """The format and options in the script."""


class HasName(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=HasName)


class NameMap(Mapping[str, T], Generic[T]):
    """A case-insensitive mapping of names that keeps the spelling and order of declaration."""

    def __init__(self) -> None:
        self._items: dict[str, T] = {}

    def add(self, item: T) -> None:
        self._items[item.name.casefold()] = item

    def copy(self) -> NameMap[T]:
        copied: NameMap[T] = NameMap()
        copied._items = dict(self._items)
        return copied

    def remove(self, name: str) -> T:
        return self._items.pop(name.casefold())

    def __getitem__(self, name: str) -> T:
        if name not in self:  # a name is a text
            raise KeyError(name)
        return self._items[name.casefold()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.casefold() in self._items

    def __iter__(self) -> Iterator[str]:
        return (item.name for item in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def values(self) -> ValuesView[T]:
        return self._items.values()


@dataclass(frozen=True)
class UserDefined:
    """User-defined aggregates and functions, by their names in lower case."""

    aggregates: Mapping[str, type] = field(default_factory=dict)
    functions: Mapping[str, UserFunction] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter((*self.aggregates, *self.functions))


@dataclass
class Catalog:
    """Everything that a query can name. Streams, tables and views share one namespace."""

    relations: NameMap[Stream | Table | View] = field(default_factory=NameMap)
    sinks: NameMap[SinkDeclaration] = field(default_factory=NameMap)
    aggregates: dict[str, type] = field(default_factory=dict)  # user-defined aggregates, lower-case
    functions: dict[str, UserFunction] = field(default_factory=dict)  # user-defined functions, lower-case

    @property
    def user_defined(self) -> UserDefined:
        return UserDefined(self.aggregates, self.functions)

    def copy(self) -> Catalog:
        """A catalog whose streams, tables and sinks can change without this one."""
        return Catalog(self.relations.copy(), self.sinks.copy(), self.aggregates, self.functions)
