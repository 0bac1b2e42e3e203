"""What a push returns: a table for every query, made when it is first looked at.

Ten thousand queries that share a join find their results at once; what each of them shows costs something only if
somebody looks. Tables that nobody has looked at are dropped with the mapping that holds them.

A table is made from the engine's windows, so that reading one waits for calls of the engine that are running. If it
raises, the table can be read again; after the engine broke, tables that were not made before are refused.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import pyarrow as pa

from penstock.engine.guard import Guard
from penstock.engine.query import RunningQuery
from penstock.join.match_batch import MatchBatch
from penstock.join.operator import JoinOperator


class Results(dict[str, pa.Table]):
    """A dictionary of tables by query."""

    def __init__(
        self,
        queries: Mapping[str, RunningQuery],
        match_batches: Mapping[JoinOperator, list[MatchBatch]],
        guard: Guard,
        warn: Callable[[RunningQuery], None],
    ) -> None:
        """`queries` in their order; those that ask a join for their rows find them in its harvests.

        `warn` is called with a query that stopped before its table is given.
        """
        super().__init__(queries)
        self._match_batches = match_batches
        self._guard = guard
        self._warn = warn

    def __getitem__(self, name: str) -> pa.Table:
        value = super().__getitem__(name)
        return self._make_table(name) if isinstance(value, RunningQuery) else value

    def _make_table(self, name: str) -> pa.Table:
        with self._guard.enter("reading results"):
            value = super().__getitem__(name)
            if isinstance(value, RunningQuery):  # else another thread was faster
                running = value
                value = running.results(
                    self._match_batches.get(running.pull_part.join, ()) if running.pull_part else ()
                )
                if running.failure is not None:
                    self._warn(running)
                super().__setitem__(name, value)
            return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is that get

    def pop(self, name: str, *default: Any) -> Any:
        value = self.get(name, *default) if default else self[name]
        super().pop(name, None)
        return value

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def items(self) -> ItemsView[str, pa.Table]:  # type: ignore[override]
        return dict.items(self._make_all())

    def values(self) -> ValuesView[pa.Table]:  # type: ignore[override]
        return dict.values(self._make_all())

    def copy(self) -> dict[str, pa.Table]:
        return dict.copy(self._make_all())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._make_all(), other)

    __hash__ = dict.__hash__

    def __repr__(self) -> str:
        return dict.__repr__(self._make_all())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    def _make_all(self) -> Results:
        for name in list(self):
            self[name]
        return self
