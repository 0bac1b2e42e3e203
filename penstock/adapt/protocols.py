"""Protocols by which the monitor reads an engine: its queries and their budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from penstock.adapt.join_budget import JoinBudget
from penstock.join import JoinOperator


class ObservedQuery(Protocol):
    """A running query, as far as the monitor reads it."""

    @property
    def name(self) -> str: ...
    def list_shapes(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]: ...
    def own_aliases(self, join: JoinOperator) -> Mapping[str, str]: ...


Q = TypeVar("Q", bound=ObservedQuery)
Q_contra = TypeVar("Q_contra", bound=ObservedQuery, contravariant=True)


class ObservedBudgets(Protocol[Q_contra]):
    """The budgets of the running queries."""

    def join_budgets(self, running: Q_contra, /) -> list[JoinBudget]: ...
    def can_bind(self, running: Q_contra, /) -> bool: ...
    def has_own_budget(self, running: Q_contra, /) -> bool: ...
