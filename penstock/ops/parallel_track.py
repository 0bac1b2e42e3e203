"""Parallel Track (Zhu, Rundensteiner and Heineman, 2004): the old tree and the new one run side by side for a while.

Law: while both run, the rows handed out are exactly those of one tree. The new track starts with empty windows and
takes in what arrives from then on, so its rows are the combinations of new tuples only; from the old track, which has
everything, only the rows with an older tuple are taken. When the last older tuple has died, the new track has all that
lives, and the old one can go.

State: a second set of windows and states, in which a tuple has the same id as in the first; so whoever keeps ids, and
reads payload by them, need not know which track a row came from. Cost: every tuple is worked on twice until the end of
the longest window. Until then the old track alone is enough to go on from: a further change of plan, or a snapshot,
simply leaves the new one behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.ops.join_tree import JoinTree
from penstock.plan.physical import JoinPlan, LeafPlan
from penstock.state.kernels import I32, I64
from penstock.state.rows import Rows, concat


class ParallelTrack:
    """The new track beside an old tree. `tree` takes the old one's place when `settle` says so."""

    def __init__(self, old: JoinTree, plan: JoinPlan) -> None:
        self._old = old
        self.tree = JoinTree(plan, old.policy)
        self._marks: dict[str, int] = {}
        """For each stream, the first id of a tuple that both tracks have."""
        self.tree.interest = old.interest
        for alias, store in self.tree.stores.items():
            before = old.stores[alias]
            if before.table is not None:
                store.load(before.table, len(next(iter(before.table.values()))))
            else:
                self._marks[alias] = store.base = store.end = before.end
            if old.interest is not None:
                store.share(store.plan, old.interest, before.wanted(before.stored()[: len(store)]))
        self.tree.rebuild(plan)

    def ingest(self, alias: str, times: I64, columns: Mapping[str, pa.Array], wanted: I32 | None) -> None:
        """What the old tree's leaf takes in as well."""
        self.tree.stores[alias].ingest(times, columns, wanted)

    def step(self, rows: Rows) -> Rows:
        """The new rows of both tracks without duplicates, given those of the old one; aliases in the old order."""
        aliases = self._old.plan.root.aliases
        older = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(aliases):
            if alias in self._marks:
                older |= rows.ids[place] < self._marks[alias]
        new = self.tree.step()
        order = [self.tree.plan.root.aliases.index(alias) for alias in aliases]
        return concat([rows.take(older), Rows(new.ids[order], new.born, new.dies)], len(aliases))

    def settle(self, bound: int) -> bool:
        """End the batch, after the old tree did; whether the old tree has nothing left that the new one lacks."""
        self.tree.settle(bound)
        return all(self._old.stores[alias].base >= mark for alias, mark in self._marks.items())


def refuse_endless(plan: JoinPlan) -> None:
    """Refuse a plan under which two tracks would never be one again."""
    for leaf in plan.leaves:
        _refuse_endless(leaf)


def _refuse_endless(leaf: LeafPlan) -> None:
    """Old tuples must die for certain, and in the order of their ids; else the two tracks would never be one again."""
    window = leaf.source.window
    if window is not None and (window.kind == "unbounded" or window.partition):
        kind = "UNBOUNDED" if window.kind == "unbounded" else "PARTITION BY"
        raise UnsupportedError(
            "PARALLEL_TRACK_NEVER_ENDS",
            f"the two plans of a parallel-track migration run until the last old tuple has died, which in the {kind} "
            f"window of {leaf.alias} may never happen; use how='jisc'",
            alias=leaf.alias,
        )
