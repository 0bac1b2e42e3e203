"""Invariants of a join's state between two batches, with any maintenance; checked after every batch of the law tests.

A wrong id rarely gives a wrong result at once; these checks detect it immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from penstock.join import JoinNode, JoinTree, LeafStore
from penstock.state import ALWAYS, RowsWindow


def check_after_each_batch(patch: pytest.MonkeyPatch) -> None:
    """Make every join check its state at the end of a batch."""
    settle = JoinTree.end_batch

    def settle_and_check(self: JoinTree, bound: int, beside: Sequence[JoinTree] = ()) -> Mapping[str, Any]:
        renumbered = settle(self, bound, beside)
        for store in self.stores.values():
            check_store(store)
        for tree in (self, *beside):
            check_tree(tree, bound)
        return renumbered

    patch.setattr(JoinTree, "end_batch", settle_and_check)


def check_store(store: LeafStore) -> None:
    """Queues of a ROWS window refer to stored rows that were not freed, each to rows of its own partition."""
    rows = store.rows
    assert rows.base <= store.fresh_from == rows.end, store.alias
    window = store.late_ends
    if not isinstance(window, RowsWindow):
        return
    mask = window._partitions.size - 1
    for part in np.flatnonzero(window._oldest >= 0).tolist():
        row, last = int(window._oldest[part]), int(window._newest[part])
        seen = []
        while row >= 0:
            assert rows.base <= row < rows.end, f"{store.alias}: row {row} of a queue is not stored"
            assert window._partitions[row & mask] == part, (
                f"{store.alias}: row {row} is in the queue of another partition"
            )
            assert rows.dies[row & (rows.dies.size - 1)] > ALWAYS, f"{store.alias}: row {row} of a queue was freed"
            seen.append(row)
            row = int(window._successor[row & mask])
        assert seen == sorted(set(seen)), f"{store.alias}: a queue is not in order"
        assert seen[-1] == last, f"{store.alias}: a queue does not end where it should"


def check_tree(tree: JoinTree, bound: int) -> None:
    """States, pending rows and marks refer to stored rows, and rows are indexed by the codes of their keys."""
    for node in tree.walk_joins():
        _check_state(tree, node, bound)
        for rows in node.pending._parts if node.pending is not None else ():
            for alias, ids in zip(node.plan.aliases, rows.ids, strict=True):
                assert (ids >= tree.stores[alias].rows.base).all(), (
                    f"{node.plan.tree}: a pending row has lost its {alias}"
                )
    tracker = tree.completion
    marked = [(node, missing.marks) for node, missing in tracker._missing.items()]
    for node, marks in (*marked, *tracker._lost.items()):
        for alias, mark in marks.items():
            store = tree.stores[alias].rows
            assert store.base <= mark <= store.end, f"{node.plan.tree}: the mark {mark} of {alias} is out of its window"
    for alias, row in tree.context.first_rows.items():
        assert row <= tree.stores[alias].rows.end, f"the first row of {alias} that the tree sees was never stored"


def _check_state(tree: JoinTree, node: JoinNode, bound: int) -> None:
    if node.state is None or not len(node.state):
        return
    rows, codes = node.state.table.rows(), node.state.table.codes()
    living = np.flatnonzero(node.reader.refresh_expirations(rows).dies > bound)
    rows, codes = rows.take(living), codes[living]
    for alias, ids in zip(node.plan.aliases, rows.ids, strict=True):
        store = tree.stores[alias].rows
        assert ((ids >= store.base) & (ids < store.end)).all(), f"{node.plan.tree}: a living row has lost its {alias}"
        born, _ = store.read_lifetimes(ids)
        assert (born <= rows.born).all(), f"{node.plan.tree}: a row is older than its {alias}"
    assert np.unique(rows.ids, axis=1).shape[1] == len(rows), f"{node.plan.tree}: a row is there twice"
    key = node.state.key
    known = tree.keys.encode(key, [node.codes(id_, rows) for id_ in key], len(rows), insert=False)
    assert (known == codes).all(), f"{node.plan.tree}: a row does not stand under the code of its key"
