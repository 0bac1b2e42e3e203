"""The leaves of a join tree, and what all of its nodes share: probes, answers, the test for demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.join_rows import Rows
from penstock.join.leaf_store import Given, LeafStore
from penstock.plan.physical import LeafPlan, Part
from penstock.plan.ranges import RangeCondition
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.sorted_index import F64

if TYPE_CHECKING:
    from penstock.join.tree import JoinTree


@dataclass(frozen=True)
class Probes:
    """What rows of a sibling ask for: codes in some classes, lives that overlap, perhaps numbers in a range."""

    given: Given
    born: I64
    dies: I64
    old_only: bool = False
    """Only rows without a tuple of the batch in progress."""
    spans: tuple[F64, F64] | None = None
    oldest: I64 | None = None
    """Rows born at this time or before count for nothing."""
    tuples: tuple[str, I32] | None = None
    """If the probes are tuples of one stream and not all want the same: its alias, and who wants each."""

    def __len__(self) -> int:
        return self.born.size


@dataclass(frozen=True)
class Found:
    """Rows that answer probes: rows[i] answers probe[i], with the interval they share."""

    probe: I64
    rows: Rows


class LeafNode:
    """A leaf of the tree: always complete; probes go to the indexes of its store."""

    def __init__(self, plan: LeafPlan, store: LeafStore, tree: JoinTree) -> None:
        self.plan = plan
        self.store = store
        self.gate: Gate | None = None
        self.gates: tuple[Gate, ...] = ()
        self.ordered_by: RangeCondition | None = None
        self.held: Counter[str] = Counter()
        self.probes = self.sought = 0
        self._tree = tree

    def delta(self) -> Rows:
        """This batch's rows that are demanded."""
        return demanded(self, self.fresh(), self.held)

    def fresh(self) -> Rows:
        """This batch's rows."""
        return self._rows(self.store.fresh())

    def _rows(self, ids: I64) -> Rows:
        born, dies = self.store.lives(ids)
        rows = Rows(ids[np.newaxis, :], born, dies)
        return rows.take(born < dies) if self.store.rows_window else rows

    def expand(self, alias: str, ids: I64) -> Rows:
        """The rows with these ids; the leaf has no other alias than its own."""
        assert alias == self.plan.alias
        return self._rows(ids)

    def living(self) -> Rows:
        """All rows, dead ones that were not cleared away yet included."""
        return self._rows(np.arange(self._tree.first_row(self.plan.alias), self.store.end))

    def demanded(self, rows: Rows) -> Rows:
        return demanded(self, rows)

    def codes(self, class_id: int, rows: Rows) -> I32:
        return self.store.codes(class_id, rows.ids[0])

    def match(self, probes: Probes) -> Iterator[Found]:
        self.probes += len(probes)
        scratch = self._tree.scratch
        span = self.store.span(self._tree.first_row(self.plan.alias), old_only=probes.old_only)
        if probes.spans is not None and self.ordered_by is not None:
            column = self.ordered_by.left if self.ordered_by.left.alias == self.plan.alias else self.ordered_by.right
            blocks = self.store.probe_range(column, *probes.spans, probes.born, probes.dies, span, scratch)
        elif probes.tuples is not None:
            alias, wanted = probes.tuples
            asked = probes.given, probes.born, probes.dies, span
            blocks = self.store.probe_wanted(*asked, scratch, wanted, alias)
        else:
            blocks = self.store.probe(probes.given, probes.born, probes.dies, span, scratch, probes.oldest)
        for block in blocks:
            yield Found(block.probe, Rows(block.row[np.newaxis, :], block.born, block.dies, block.wanted))

    @property
    def complete(self) -> bool:
        return True

    def settle(self) -> None:
        self.store.settle()


def whole_time(rows: int) -> tuple[I64, I64]:
    """Lives that overlap every other."""
    return np.full(rows, ALWAYS), np.full(rows, FOREVER)


class Coded(Protocol):
    """A node of the tree, as far as the test for demand knows it."""

    gate: Gate | None
    gates: tuple[Gate, ...]

    @property
    def plan(self) -> Part: ...
    def codes(self, class_id: int, rows: Rows) -> I32: ...


def codes_of(node: Coded, rows: Rows, class_id: int) -> I32:
    return node.codes(class_id, rows)


def demanded(node: Coded, rows: Rows, held: Counter[str] | None = None) -> Rows:
    """The rows that every gate above the node admits; `held` counts the others by the type of their MNS."""
    for gate in node.gates:
        if gate.shut and len(rows):
            before = len(rows)
            rows = rows.take(gate.admits(node.plan.classes, partial(codes_of, node, rows), before))
            if held is not None:
                kind = "empty" if gate.empty else "type II" if gate is node.gate else "type I"
                held[kind] += before - len(rows)
    return rows
