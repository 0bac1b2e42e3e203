"""Which rows the states of a join tree lack, and how they are completed (JISC).

Law: a node that is not tracked here lacks no demanded row. A tracked node may lack only rows made of leaf rows before
its marks, none whose key is among its complete keys, and none that contains a complete leaf row. It is complete once
all marked rows of one of its leaves have died, are complete or have been pushed up, or once the keys of all of them are
complete.

Rows that a node lost because a budget shed probes are tracked apart, by marks of their own. While the budget lasts they
are not looked up, or nothing would be shed; a completion may still find some. Without the budget they are like others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.join.completion.key_count import KeyCount
from penstock.join.completion.missing_rows import MissingRows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode, TreeNode
from penstock.join.tree_context import TreeContext
from penstock.plan import Key, Tree
from penstock.state import I32, CodeSet, Renumbering


class CompletionTracker:
    """The incomplete nodes of a tree, lower ones first."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._stores = context.stores
        self._missing: dict[JoinNode, MissingRows] = {}
        self._lost: dict[JoinNode, dict[str, int]] = {}
        """By node the marks before which it lost rows to a budget."""
        self._has_new_marks = False
        """Whether a node became incomplete since the last batch."""

    def __bool__(self) -> bool:
        """Whether a state may lack rows."""
        return bool(self._missing or self._lost)

    @property
    def has_losses(self) -> bool:
        """Whether a state may lack rows that are not completed while the budget lasts."""
        return bool(self._lost)

    def mark_incomplete(self, node: JoinNode) -> None:
        """The state of the node may lack any row made of the tuples stored so far."""
        if node.state is not None:
            self._track(node, MissingRows({alias: self._stores[alias].rows.end for alias in node.plan.aliases}))
            self._has_new_marks = True

    def forget(self, node: JoinNode) -> None:
        """The node has no state any more."""
        self._missing.pop(node, None)
        self._lost.pop(node, None)

    def inherit(self, node: JoinNode, former: JoinNode | None, before: CompletionTracker, *, complete: bool) -> None:
        """Let a node take over the state of a former node over the same leaves, if there is one, and its missing rows.

        Rows are always kept. Complete keys and complete leaf rows are kept only if no gate held rows back.
        """
        state, old = node.state, None if former is None else former.state
        if state is None:
            return
        if old is not None:
            state.take_over(old)
        if complete:
            return
        if former is None or old is None or not former.ungated:
            self.mark_incomplete(node)
            return
        if former in before._lost:
            self._lose(node, before._lost[former])
        if former in before._missing:
            missing = before._missing[former]
            keys = missing.complete_keys if old.key == state.key else CodeSet()
            self._track(node, replace(missing, complete_keys=keys, key_count=None))

    def record_losses(self, nodes: Iterable[JoinNode], shed_at: Collection[Tree]) -> None:
        """Mark the states that lost rows in a batch under a budget.

        A join that shed probes may lack any row made of the tuples stored so far. A join above a state that lost rows
        could not find them: it may lack rows whose parts below that state are older than the marks there, with any
        tuple of its other side. All of them become complete together, when all marked rows of one leaf have died.
        A join above a state that is only incomplete loses nothing: what it asked for was completed.
        """
        ends = {alias: store.rows.end for alias, store in self._stores.items()}
        lacking: dict[TreeNode, dict[str, int]] = {}
        for node in nodes:
            causes = [
                {**{alias: ends[alias] for alias in node.plan.aliases}, **lacking[child]}
                for child in (node.left, node.right)
                if child in lacking
            ]
            if node.plan.tree in shed_at:
                causes.append({alias: ends[alias] for alias in node.plan.aliases})
            if node.state is None:
                if causes:
                    lacking[node] = _merge_marks(causes)
                continue
            if causes:
                before = [self._lost[node]] if node in self._lost else []
                self._lose(node, _merge_marks([*causes, *before]))
            if node in self._lost:
                lacking[node] = self._lost[node]

    def defer_losses(self) -> None:
        """Let what was lost to a budget be completed from now on: the budget has ended."""
        for node, marks in list(self._lost.items()):
            before = [self._missing[node].marks] if node in self._missing else []
            self._recover(node)
            self._track(node, MissingRows(_merge_marks([marks, *before])))

    def complete_batch_keys(self, nodes: Sequence[JoinNode]) -> None:
        """Complete states for the keys that this batch will probe, from below, each state once for all probing nodes.

        If the deltas completed them, every node would do so on its own, each time through up to n states.
        """
        probed: dict[JoinNode, list[list[I32]]] = {}
        for node in reversed(nodes):
            lazy, driver = node.lazy, node.driver
            if not isinstance(lazy, JoinNode) or lazy.state is None or lazy.complete:
                continue
            keys = probed.get(node, []) if node.state is not None and node.state.key == lazy.state.key else []
            if isinstance(driver, LeafNode):
                rows = driver.filter_demanded(driver.fresh_rows())
                keys = [*keys, [driver.codes(id_, rows) for id_ in node.plan.key]]
            probed[lazy] = keys
        for node in reversed(probed):
            parts = [np.concatenate(columns) for columns in zip(*probed[node], strict=True)]
            if parts:
                node.complete_for(parts, parts[0].size, old_only=True)

    def apply_renumbering(self, renumbered: Mapping[str, Renumbering]) -> None:
        """Renumber the marks, and find the nodes that are complete by now."""
        for node, missing in list(self._missing.items()):
            missing.renumber(renumbered)
            done = self._has_outlived(missing.marks) or self._has_complete_rows(missing)
            if done or self._has_complete_keys(node, missing):
                self._mark_complete(node)
        for node, marks in list(self._lost.items()):
            for alias in marks.keys() & renumbered.keys():
                marks[alias] = renumbered[alias].map_mark(marks[alias])
            if self._has_outlived(marks):
                self._recover(node)

    def _has_outlived(self, marks: Mapping[str, int]) -> bool:
        """Whether all marked rows of one leaf have died."""
        return any(self._stores[alias].rows.base >= mark for alias, mark in marks.items())

    def _has_complete_rows(self, missing: MissingRows) -> bool:
        """Whether all marked rows of one leaf are complete."""
        lacking = (missing.list_lacking(alias, self._context.first_row(alias)) for alias in missing.complete_rows)
        return any(not rows.size for rows in lacking)

    def _has_complete_keys(self, node: JoinNode, missing: MissingRows) -> bool:
        """Whether the keys of all marked rows of one leaf are known and complete."""
        if node.state is None or not missing.complete_keys:
            return False
        if missing.key_count is None:
            leaves = [leaf for leaf in missing.marks if self._has_classes(leaf, node.state.key)]
            if not leaves:
                return False
            alias = min(leaves, key=lambda name: missing.marks[name] - self._context.first_row(name))
            missing.key_count = KeyCount(alias, node.state.key)
        count = missing.key_count
        first, mark = self._context.first_row(count.alias), missing.marks[count.alias]
        known = count.add_rows(self._stores[count.alias], first, mark, self._context.maintenance.counted_rows)
        return known and count.is_within(missing.complete_keys)

    def _has_classes(self, alias: str, key: Key) -> bool:
        return all(self._stores[alias].rows.has_class(id_) for id_ in key)

    def forget_keys(self) -> None:
        """Forget which keys are complete, because codes stand for other values from now on."""
        for missing in self._missing.values():
            missing.key_count = None
            missing.complete_keys = CodeSet()

    def complete_some(self, rows: int) -> None:
        """Push about `rows` older rows of leaves up the lowest incomplete nodes.

        The first batch after a change pushes none: it completes what it probes, and builds indexes.
        """
        if self._has_new_marks:
            self._has_new_marks = False
            return
        while rows > 0 and self._missing:
            node, missing = next(iter(self._missing.items()))
            alias = missing.pushed_leaf or self._choose_leaf(node, missing)
            first = max(missing.cursor, self._context.first_row(alias))
            end = max(first, min(first + rows, missing.marks[alias]))
            node.insert_absent(node.filter_demanded(node.expand(alias, np.arange(first, end))))
            missing.pushed_leaf, missing.cursor = alias, end
            rows -= end - first
            if end >= missing.marks[alias]:
                self._mark_complete(node)

    def complete_all(self) -> None:
        """Complete every node."""
        self.defer_losses()
        while self._missing:
            self.complete_some(1 + sum(len(store) for store in self._stores.values()))

    def _choose_leaf(self, node: JoinNode, missing: MissingRows) -> str:
        """A leaf directly below the node if there is one: its rows are joined with the other child, complete by now."""
        near = [child.plan.alias for child in (node.left, node.right) if isinstance(child, LeafNode)]
        return min(near or missing.marks, key=lambda name: missing.marks[name] - self._stores[name].rows.base)

    def _track(self, node: JoinNode, missing: MissingRows) -> None:
        if node.state is not None:
            node.state.missing = self._missing[node] = missing

    def _lose(self, node: JoinNode, marks: Mapping[str, int]) -> None:
        if node.state is not None:
            node.state.lossy = True
            self._lost[node] = dict(marks)

    def _recover(self, node: JoinNode) -> None:
        if node.state is not None:
            node.state.lossy = False
        del self._lost[node]

    def _mark_complete(self, node: JoinNode) -> None:
        if node.state is not None:
            node.state.missing = None
        del self._missing[node]


def _merge_marks(marks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """For each alias its latest mark."""
    return {alias: max(each[alias] for each in marks) for alias in marks[0]}
