"""Whether a gate is worth its cost: the rows it saves against the work it causes, both counted in rows.

A closed gate costs a fixed amount per batch, a test for every row below it, a lookup of suppressed rows for every new
driver row, and from time to time a pass over the keys of all driver rows. It saves the rows that no result can use. The
work of a closed gate is counted; that of an open gate is estimated from the tuples that arrived and the rows that the
driver built. The number of undemanded rows is measured on a sample of the tuples in both cases. An open gate whose node
built fewer rows in total than the work is worth is not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.demand.sampling import choose_places, expand_sample
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes

Stores = Mapping[str, LeafStore]

SAMPLE_ROWS = 64

# The cost of the parts of a gate's work, in rows built and stored: an array call costs as much as thousands of rows.
BATCH_COST = 3500.0
TEST_COST = 0.4
REQUEST_COST = 6.0
KEY_COST = 1.5
_MAX_FAILURES = 6

MARGIN = 1.25
"""The factor by which one side must exceed the other before a gate changes."""


@dataclass(frozen=True)
class GateWork:
    """The work around a gate, since the beginning or since its last review."""

    batches: int = 0
    arrived: int = 0
    """Tuples of the streams below the gate."""
    built: int = 0
    """Rows of the joins below the gate."""
    driver_rows: int = 0
    """Rows of the driver."""
    tested: int = 0
    demand_requests: int = 0
    driver_living: int = 0
    """Rows of the driver that are stored now: a review reads the keys of all of them."""
    weight: float = 1.0
    """The cost of a row of the joins below the gate, on average."""

    def subtract(self, earlier: GateWork) -> GateWork:
        names = ("batches", "arrived", "built", "driver_rows", "tested", "demand_requests")
        return replace(self, **{name: getattr(self, name) - getattr(earlier, name) for name in names})

    @property
    def driver_rows_per_batch(self) -> int:
        return -(-self.driver_rows // max(self.batches, 1)) or 1

    def compute_cost(self, *, closed: bool) -> float:
        """The cost of the gate: counted if it was closed, estimated if it was open."""
        tested, requests = (self.tested, self.demand_requests) if closed else (self.arrived, self.driver_rows)
        return BATCH_COST * self.batches + TEST_COST * tested + REQUEST_COST * requests + KEY_COST * self.driver_living


@dataclass(frozen=True)
class GateReview:
    """The last review of a gate, and for how many reviews it is not measured.

    Reading all demand of the driver costs as much as building the rows of a quarter of a window. Each time that the
    gate stays open after it, the number of skipped reviews doubles.
    """

    work: GateWork = GateWork()
    skips: int = 0
    failures: int = 0

    def skip(self, work: GateWork) -> GateReview:
        return GateReview(work, max(self.skips - 1, 0), self.failures)

    def record(self, work: GateWork, *, was_closed: bool, closed: bool) -> GateReview:
        if closed:
            return GateReview(work, 0, 0 if was_closed else self.failures)
        failures = min(self.failures + 1, _MAX_FAILURES)
        return GateReview(work, 2**failures, failures)


def measure_work(gate: Gate, lazy: JoinNode, driver: TreeNode, stores: Stores, batches: int) -> GateWork:
    """The counts since the beginning."""
    if isinstance(driver, LeafNode):
        driven, living = driver.store.rows.end, len(driver.store)
    else:
        driven, living = driver.built + driver.completed, 0 if driver.state is None else len(driver.state)
    joins = list(walk_joins(lazy))
    built = sum(node.built for node in joins)
    weight = sum(node.built * _compute_weight(node) for node in joins) / max(built, 1)
    arrived = sum(stores[alias].rows.end for alias in lazy.plan.aliases)
    return GateWork(batches, arrived, built, driven, gate.tested, gate.demand_requests, living, weight)


def may_pay_off(work: GateWork) -> bool:
    """Whether closing an open gate could be worth its cost even if all rows built were undemanded."""
    return work.built * work.weight > MARGIN * work.compute_cost(closed=False)


@dataclass(frozen=True)
class GateSample:
    """What is measured for a gate on a sample of the tuples."""

    unused: float
    """Rows of the joins below it, by weight, per tuple of its streams, that only this gate does not demand."""
    scanned: float
    """Rows that are read when a batch's driver rows demand their keys."""


def pays_off(sample: GateSample, work: GateWork, *, closed: bool) -> bool:
    """Whether the gate is worth its cost, with hysteresis."""
    spared, cost = sample.unused * work.arrived, work.compute_cost(closed=closed)
    if closed:
        return MARGIN * spared > cost
    return spared > MARGIN * (cost + TEST_COST * sample.scanned * work.batches)


def sample_gate(lazy: JoinNode, gate: Gate, driver: TreeNode, newest: JoinRows, stores: Stores) -> GateSample:
    """Measure a gate on some of the tuples; `newest` are about one batch of driver rows."""
    above = [other for other in lazy.gates if other is not gate and other.closed]
    leaves = [part for part in walk_nodes(lazy) if isinstance(part, LeafNode)]
    brief = gate.make_empty(leaf.plan.classes for leaf in leaves)
    brief.add(driver, newest)
    unused = weight = 0.0
    seen: dict[JoinNode, float] = defaultdict(float)
    bound: dict[JoinNode, float] = defaultdict(float)
    for alias in lazy.plan.aliases:
        stored = stores[alias].rows
        ids = stored.base + choose_places(len(stored), SAMPLE_ROWS)
        if not ids.size or stores[alias].plan.source.is_table:
            continue
        weight += stored.end
        for node, found, scale in expand_sample(lazy, alias, ids, ()):
            tests = [~gate.find_demanded(node.plan, node, found)]
            tests += [each.find_demanded(node.plan, node, found) for each in above]
            refused = scale * int(np.count_nonzero(np.logical_and.reduce(tests)))
            unused += _compute_weight(node) * refused / ids.size * stored.end
            seen[node] += scale * len(found)
            through = np.ones(len(found), np.bool_)
            for leaf in find_sought_leaves(node, gate):
                through &= brief.find_demanded(leaf.plan, node, found)
            bound[node] += scale * int(np.count_nonzero(through))
    sought = sum(bound[node] / seen[node] * len(node.state) for node in seen if seen[node] and node.state is not None)
    return GateSample(unused / weight if weight else 0.0, sought)


def find_sought_leaves(node: JoinNode, gate: Gate) -> list[LeafNode]:
    """The leaves whose rows must match a new key of the gate for a row of the node to be read in `resume_rows`."""
    bound = [child for child in (node.driver, node.lazy) if gate.restricts(child.plan)]
    if len(bound) > 1 and isinstance(bound[1], JoinNode):
        bound.pop()
    leaves = (part for child in bound for part in walk_nodes(child) if isinstance(part, LeafNode))
    return [leaf for leaf in leaves if gate.restricts(leaf.plan)]


def _compute_weight(node: JoinNode) -> float:
    """The cost of a row, mostly the coding of its key or its place in a sorted index.

    A row with a key of two classes costs 1, and so does one that is sorted.
    """
    if node.state is None:
        return 0.5
    return (2 + (len(node.state.key) if node.ordered_by is None else 2)) / 4
