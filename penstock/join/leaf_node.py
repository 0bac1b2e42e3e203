"""The leaves of a join tree, and what all of its nodes share: probes, answers, the test for demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_store import KeyCodes, LeafStore
from penstock.plan.physical import LeafPlan, SubPlan
from penstock.plan.ranges import RangeCondition
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.sorted_index import F64

if TYPE_CHECKING:
    from penstock.join.tree import JoinTree


@dataclass(frozen=True)
class Probes:
    """What rows of a sibling ask for: codes in some classes, lives that overlap, perhaps numbers in a range."""

    key_codes: KeyCodes
    born: I64
    dies: I64
    old_only: bool = False
    """Only rows without a tuple of the batch in progress."""
    ranges: tuple[F64, F64] | None = None
    born_after: I64 | None = None
    """Rows born at this time or before count for nothing."""
    probe_interest: tuple[str, I32] | None = None
    """If the probes are tuples of one stream and not all want the same: its alias, and who wants each."""

    def __len__(self) -> int:
        return self.born.size


@dataclass(frozen=True)
class ProbeResult:
    """Rows that answer probes: rows[i] answers probe[i], with the interval they share."""

    probe: I64
    rows: JoinRows


class LeafNode:
    """A leaf of the tree: always complete; probes go to the indexes of its store."""

    def __init__(self, plan: LeafPlan, store: LeafStore, tree: JoinTree) -> None:
        self.plan = plan
        self.store = store
        self.gate: Gate | None = None
        self.gates: tuple[Gate, ...] = ()
        self.ordered_by: RangeCondition | None = None
        self.suppressed: Counter[str] = Counter()
        self.probes = self.sought = 0
        self._tree = tree

    def compute_delta(self) -> JoinRows:
        """This batch's rows that are demanded."""
        return filter_demanded(self, self.fresh_rows(), self.suppressed)

    def fresh_rows(self) -> JoinRows:
        """This batch's rows."""
        return self._make_rows(self.store.fresh_ids())

    def _make_rows(self, ids: I64) -> JoinRows:
        born, dies = self.store.read_lifetimes(ids)
        rows = JoinRows(ids[np.newaxis, :], born, dies)
        return rows.take(born < dies) if self.store.rows_window else rows

    def expand(self, alias: str, ids: I64) -> JoinRows:
        """The rows with these ids; the leaf has no other alias than its own."""
        assert alias == self.plan.alias
        return self._make_rows(ids)

    def read_living(self) -> JoinRows:
        """All rows, dead ones that were not cleared away yet included."""
        return self._make_rows(np.arange(self._tree.first_row(self.plan.alias), self.store.end))

    def filter_demanded(self, rows: JoinRows) -> JoinRows:
        return filter_demanded(self, rows)

    def codes(self, class_id: int, rows: JoinRows) -> I32:
        return self.store.codes(class_id, rows.ids[0])

    def match(self, probes: Probes) -> Iterator[ProbeResult]:
        self.probes += len(probes)
        scratch = self._tree.probe_buffer
        span = self.store.id_range(self._tree.first_row(self.plan.alias), old_only=probes.old_only)
        if probes.ranges is not None and self.ordered_by is not None:
            column = self.ordered_by.left if self.ordered_by.left.alias == self.plan.alias else self.ordered_by.right
            blocks = self.store.probe_range(column, *probes.ranges, probes.born, probes.dies, span, scratch)
        elif probes.probe_interest is not None:
            alias, wanted = probes.probe_interest
            asked = probes.key_codes, probes.born, probes.dies, span
            blocks = self.store.probe_with_interest(*asked, scratch, wanted, alias)
        else:
            blocks = self.store.probe(probes.key_codes, probes.born, probes.dies, span, scratch, probes.born_after)
        for block in blocks:
            yield ProbeResult(block.probe, JoinRows(block.row[np.newaxis, :], block.born, block.dies, block.interest))

    @property
    def complete(self) -> bool:
        return True

    def end_batch(self) -> None:
        self.store.end_batch()


def make_full_intervals(rows: int) -> tuple[I64, I64]:
    """Lives that overlap every other."""
    return np.full(rows, ALWAYS), np.full(rows, FOREVER)


class GatedNode(Protocol):
    """A node of the tree, as far as the test for demand knows it."""

    gate: Gate | None
    gates: tuple[Gate, ...]

    @property
    def plan(self) -> SubPlan: ...
    def codes(self, class_id: int, rows: JoinRows) -> I32: ...


def read_codes(node: GatedNode, rows: JoinRows, class_id: int) -> I32:
    return node.codes(class_id, rows)


def filter_demanded(node: GatedNode, rows: JoinRows, suppressed: Counter[str] | None = None) -> JoinRows:
    """The rows that every gate above the node admits; `held` counts the others by the type of their MNS."""
    for gate in node.gates:
        if gate.closed and len(rows):
            before = len(rows)
            rows = rows.take(gate.find_demanded(node.plan.classes, partial(read_codes, node, rows), before))
            if suppressed is not None:
                kind = "empty" if gate.empty else "type II" if gate is node.gate else "type I"
                suppressed[kind] += before - len(rows)
    return rows
