"""Parallel Track (Zhu, Rundensteiner and Heineman, 2004): the old tree and the new one run side by side for a while.

Law: while both run, the rows returned are exactly those of one tree. The new tree starts with empty states and reads
only the tuples that arrive from then on, so its rows are the combinations of new tuples. Of the rows of the old tree,
which reads everything, only those with an older tuple are returned. When the last older tuple has died, the new tree
holds all living rows and replaces the old one.

State: a second set of states over the same windows and key codes. Both trees refer to the same leaf rows, so
maintenance of the windows applies to both. Cost: every tuple probes and is combined twice until the end of the longest
window. Until then the old tree alone is sufficient: another change of the plan, the queries or the slices, or a
snapshot, drops the new tree.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import UnsupportedError
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.tree import JoinTree
from penstock.plan import JoinPlan, LeafPlan


class ParallelTrack:
    """The new tree beside an old one. `new_tree` replaces the old one when `finished` is true."""

    def __init__(self, old: JoinTree, plan: JoinPlan) -> None:
        self._old_tree = old
        self.new_tree = JoinTree(plan, old.policy, old.maintenance, beside=old)

    def step(self, rows: JoinRows, until: int) -> JoinRows:
        """The new rows of both trees without duplicates, given the rows of the old tree; aliases in the old order."""
        aliases = self._old_tree.plan.root.aliases
        older = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(aliases):
            older |= rows.ids[place] < self.new_tree.context.first_row(alias)
        new = self.new_tree.step(until)
        order = [self.new_tree.plan.root.aliases.index(alias) for alias in aliases]
        return concat_rows([rows.take(older), JoinRows(new.ids[order], new.born, new.dies)], len(aliases))

    @property
    def finished(self) -> bool:
        """Whether the old tree holds no row that the new one lacks."""
        stores = self.new_tree.stores
        return all(stores[alias].rows.base >= self.new_tree.context.first_row(alias) for alias in stores)


def refuse_endless(plan: JoinPlan) -> None:
    """Refuse a plan under which a parallel track may never finish."""
    for leaf in plan.leaves:
        _refuse_endless_leaf(leaf)


def _refuse_endless_leaf(leaf: LeafPlan) -> None:
    """Old tuples must die for certain, and in the order of their ids; otherwise a parallel track may never finish."""
    window = leaf.source.window
    if not window.bounded and not leaf.source.is_table:
        raise UnsupportedError(
            "PARALLEL_TRACK_NEVER_ENDS",
            f"the two plans of a parallel-track migration run until the last old tuple has died, which in the "
            f"{window.keyword} window of {leaf.alias} may never happen; use how='jisc'",
            alias=leaf.alias,
        )
