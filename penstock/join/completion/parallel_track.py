"""Parallel Track (Zhu, Rundensteiner and Heineman, 2004): the old tree and the new one run side by side for a while.

Law: while both run, the rows handed out are exactly those of one tree. The new tree starts with empty states and sees
only the tuples that arrive from then on, so its rows are the combinations of new tuples; from the old tree, which has
everything, only the rows with an older tuple are taken. When the last older tuple has died, the new tree has all that
lives, and the old one can go.

State: a second set of states over the same windows and key codes. Both trees refer to the same leaf rows, so whatever
maintenance does to the windows concerns both in the same way. Cost: every tuple probes and is combined twice until the
end of the longest window. Until then the old tree alone is enough to go on from: a further change of plan, of the
queries or of the slices, or a snapshot, leaves the new one behind.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import UnsupportedError
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.tree import JoinTree
from penstock.plan.physical import JoinPlan, LeafPlan


class ParallelTrack:
    """The new tree beside an old one. `tree` takes the old one's place when `settle` says so."""

    def __init__(self, old: JoinTree, plan: JoinPlan) -> None:
        self._old_tree = old
        self.new_tree = JoinTree(plan, old.policy, old.maintenance, beside=old)

    def step(self, rows: JoinRows, until: int) -> JoinRows:
        """The new rows of both trees without duplicates, given those of the old one; aliases in the old order."""
        aliases = self._old_tree.plan.root.aliases
        older = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(aliases):
            older |= rows.ids[place] < self.new_tree.context.first_row(alias)
        new = self.new_tree.step(until)
        order = [self.new_tree.plan.root.aliases.index(alias) for alias in aliases]
        return concat_rows([rows.take(older), JoinRows(new.ids[order], new.born, new.dies)], len(aliases))

    @property
    def finished(self) -> bool:
        """Whether the old tree has nothing left that the new one lacks."""
        stores = self.new_tree.stores
        return all(stores[alias].rows.base >= self.new_tree.context.first_row(alias) for alias in stores)


def refuse_endless(plan: JoinPlan) -> None:
    """Refuse a plan under which two tracks would never be one again."""
    for leaf in plan.leaves:
        _refuse_endless_leaf(leaf)


def _refuse_endless_leaf(leaf: LeafPlan) -> None:
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
