"""A join in a snapshot: the base windows of its streams, and what gives them their meaning.

Law: a join restored from a dump gives the results that the dumped join would have given from then on. States of nodes
are not saved: they follow from the windows. Rows of relations are not saved: they follow from the relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.join.early_reader import EarlyReader
from penstock.join.join_inputs import JoinInputs
from penstock.join.leaf_snapshot import dump_leaf, restore_leaf
from penstock.join.sharing.interest import NO_INTEREST, Interest, compute_ends
from penstock.join.sharing.shared_join import SharedJoin
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.join.tree import JoinTree
from penstock.state import ALWAYS


@dataclass(frozen=True)
class SavedJoin:
    """The time up to which all results are known, unread tuples by alias, the filter groups, and the windows.

    `complete`: the time up to which queries that wait for whole instants have all results. `sets` gives the codes of
    interest in the windows their meaning; `column_gaps` are the columns that older tuples lack.
    """

    done: int
    complete: int
    unread: Mapping[str, int]
    filter_groups: Sequence[FilterGroup]
    sets: Sequence[int] | None
    column_gaps: Mapping[str, Mapping[str, int]]
    tables: Mapping[str, pa.Table]


def save_join(shared: SharedJoin, inputs: JoinInputs, scope: frozenset[str] | None) -> SavedJoin:
    """The windows for the queries that read the root (`scope` None), or for those that read the early node."""
    tree, interest = shared.tree, shared.interest
    groups = [group for group in shared.needs.filter_groups if group.scope == scope]
    if inputs.early is not None and interest is not None:
        places = [shared.needs.filter_groups.index(group) for group in groups]
        return _ScopeDump(tree, interest, inputs, inputs.early).save(scope, groups, places)
    windows = [alias for alias in inputs.aliases if not tree.stores[alias].plan.source.window.announced]
    tables = {alias: dump_leaf(tree.stores[alias], tree.keys, inputs.complete) for alias in windows}
    unread = {alias: rows for alias, rows in inputs.unread().items() if alias in windows}
    sets = None if interest is None else interest.sets
    gaps = _collect_column_gaps(tree, tables)
    return SavedJoin(inputs.done, inputs.complete, unread, groups, sets, gaps, tables)


@dataclass(frozen=True)
class _ScopeDump:
    """Saves a join with an early node for the readers of the root or of the early node only."""

    tree: JoinTree
    interest: Interest
    inputs: JoinInputs
    early: EarlyReader

    def save(self, scope: frozenset[str] | None, groups: Sequence[FilterGroup], places: Sequence[int]) -> SavedJoin:
        """Without the tuples that only the other queries need, or that the join has not read yet."""
        own = Interest([self.interest.filter_groups[place] for place in places], self.tree.maintenance)
        done, complete = (self.early.done,) * 2 if scope else (self.inputs.done, self.inputs.complete)
        unread, tables = self.inputs.unread(), {}
        for alias in self.inputs.aliases:
            if scope is not None and alias not in scope:
                del unread[alias]
                continue
            behind = scope is None and alias in self.early.inlets
            if behind:
                unread[alias] = self.early.unread(alias)
            end = self.early.mark(alias) if behind else None
            table = dump_leaf(self.tree.stores[alias], self.tree.keys, complete, end)
            tables[alias] = self._restrict(alias, table, own, places, complete)
        sets = own.sets if len(groups) > 1 else None
        return SavedJoin(done, complete, unread, groups, sets, _collect_column_gaps(self.tree, tables), tables)

    def _restrict(self, alias: str, table: pa.Table, own: Interest, places: Sequence[int], bound: int) -> pa.Table:
        """The rows that groups of one scope need after `bound`, with their codes of interest and deaths."""
        born, wanted = (table.column(name).to_numpy() for name in ("_born", "_wanted"))
        codes = own.recode_from(wanted, self.interest, places)
        dies = np.where(codes == NO_INTEREST, ALWAYS, compute_ends(born, own.longest_window(alias, codes)))
        table = table.set_column(1, "_dies", pa.array(dies)).set_column(2, "_wanted", pa.array(codes))
        return table.filter(pa.array(dies > bound))


def _collect_column_gaps(tree: JoinTree, tables: Mapping[str, pa.Table]) -> dict[str, dict[str, int]]:
    return {alias: tree.stores[alias].gaps.list_ends() for alias in tables}


def restore_windows(
    shared: SharedJoin,
    windows: Mapping[str, pa.Table],
    column_gaps: Mapping[str, Mapping[str, int]],
    sets: Sequence[int] | None,
) -> None:
    """Store the rows of a dump in the leaves. `sets` gives the codes of interest in the windows their meaning."""
    interest, tree = shared.interest, shared.tree
    for alias, table in windows.items():
        rows = table
        if interest is not None and sets is not None:
            place = table.schema.get_field_index("_wanted")
            codes = interest.recode(table.column(place).to_numpy(), sets)
            rows = table.set_column(place, "_wanted", pa.array(codes))
        restore_leaf(tree.stores[alias], tree.keys, rows, column_gaps[alias])
