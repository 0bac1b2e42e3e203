"""What the monitor must know of an engine: its queries and their budgets, as protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from penstock.adapt.join_budget import Overload
from penstock.join.operator import JoinOperator


class ObservedQuery(Protocol):
    """A running query, as far as the monitor knows it."""

    @property
    def name(self) -> str: ...
    def shapes_of(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]: ...
    def own_names(self, join: JoinOperator) -> Mapping[str, str]: ...


Q = TypeVar("Q", bound=ObservedQuery)
Q_contra = TypeVar("Q_contra", bound=ObservedQuery, contravariant=True)


class ObservedBudgets(Protocol[Q_contra]):
    """The budgets of the running queries."""

    def overloads(self, running: Q_contra, /) -> list[Overload]: ...
    def may_bind(self, running: Q_contra, /) -> bool: ...
    def alone(self, running: Q_contra, /) -> bool: ...
