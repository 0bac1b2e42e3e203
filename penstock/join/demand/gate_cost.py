"""Whether a gate is worth its keep: the rows it spares against the work it makes, both counted in rows.

Holding rows back costs something in every batch, a test for every row below the gate, the keys of every new row of the
driver, whose waiting rows are looked for, and now and then the keys of all of them. It spares the rows nobody can use.
A gate that is shut knows its work by its counters; the work of an open one follows from what arrived and what the
driver built. How many rows would be built that nobody demands is measured on the newest tuples, whether the gate is
shut or open. An open gate whose node built fewer rows altogether than the work is worth needs no measuring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.demand.suppression import read_codes
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode, TreeNode, walk_joins, walk_nodes
from penstock.state.kernels import I32, I64

Stores = Mapping[str, LeafStore]

SAMPLE_ROWS = 16

# What the parts of a gate's work cost, in rows built and kept: an array call costs as much as thousands of elements.
BATCH_COST = 3500.0
TEST_COST = 0.4
REQUEST_COST = 6.0
KEY_COST = 1.5
_MAX_FAILURES = 6

MARGIN = 1.25
"""By so much one side must outweigh the other before a gate changes."""


@dataclass(frozen=True)
class GateWork:
    """What was counted around a gate, since the beginning or since it was last looked at."""

    batches: int = 0
    arrived: int = 0
    """Tuples of the streams below the gate."""
    built: int = 0
    """Rows of the joins below the gate, by weight."""
    driver_rows: int = 0
    """Rows of the driver."""
    tested: int = 0
    demand_requests: int = 0
    driver_living: int = 0
    """Rows of the driver that are there now: a look takes in the keys of all of them."""

    def subtract(self, earlier: GateWork) -> GateWork:
        names = ("batches", "arrived", "built", "driver_rows", "tested", "demand_requests")
        return replace(self, **{name: getattr(self, name) - getattr(earlier, name) for name in names})

    @property
    def driver_rows_per_batch(self) -> int:
        return -(-self.driver_rows // max(self.batches, 1)) or 1

    def compute_cost(self, *, closed: bool) -> float:
        """What the gate costs: as counted where it was shut, as it would be where it was open."""
        tested, asked = (self.tested, self.demand_requests) if closed else (self.arrived, self.driver_rows)
        return BATCH_COST * self.batches + TEST_COST * tested + REQUEST_COST * asked + KEY_COST * self.driver_living


@dataclass(frozen=True)
class GateReview:
    """When a gate was last looked at, and for how many looks to come it need not be measured.

    To take in what the driver demands costs as much as the rows of a quarter of a window: each time that turns out to
    have been in vain, the next try waits twice as long.
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
    """The counts up to now."""
    if isinstance(driver, LeafNode):
        driven, living = driver.store.rows.end, len(driver.store)
    else:
        driven, living = driver.built + driver.completed, 0 if driver.state is None else len(driver.state)
    built = round(sum(node.built * _compute_weight(node) for node in walk_joins(lazy)))
    arrived = sum(stores[alias].rows.end for alias in lazy.plan.aliases)
    return GateWork(batches, arrived, built, driven, gate.tested, gate.demand_requests, living)


def may_pay_off(work: GateWork) -> bool:
    """Whether shutting an open gate could pay if nobody could use any of the rows that were built."""
    return work.built > MARGIN * work.compute_cost(closed=False)


@dataclass(frozen=True)
class GateSample:
    """What the newest tuples tell of a gate."""

    unused: float
    """Rows of the joins below it, by weight, per tuple of its streams, that are demanded but for this gate."""
    scanned: float
    """Rows that are looked through when a batch's rows of the driver come and ask for theirs."""


def pays_off(sample: GateSample, work: GateWork, *, closed: bool) -> bool:
    """The decision, with hysteresis."""
    spared, cost = sample.unused * work.arrived, work.compute_cost(closed=closed)
    if closed:
        return MARGIN * spared > cost
    return spared > MARGIN * (cost + TEST_COST * sample.scanned * work.batches)


def sample_gate(lazy: JoinNode, gate: Gate, newest: Callable[[int], I32], rows: int, stores: Stores) -> GateSample:
    """Measure on the newest tuples; `newest` are the codes of about a batch's rows of the driver."""
    above = [other for other in lazy.gates if other is not gate and other.closed]
    leaves = [part for part in walk_nodes(lazy) if isinstance(part, LeafNode)]
    brief = Gate(gate.key, (leaf.plan.classes for leaf in leaves), gate.keys, gate.maintenance)
    brief.add(newest, rows)
    unused = weight = 0.0
    seen: Counter[JoinNode] = Counter()
    bound: Counter[JoinNode] = Counter()
    for alias in lazy.plan.aliases:
        stored = stores[alias].rows
        ids = np.arange(max(stored.base, stored.end - SAMPLE_ROWS), stored.end)
        if not ids.size or stores[alias].plan.source.is_table:
            continue
        weight += stored.end
        for node, found in _expand_all(lazy, alias, ids):
            codes = partial(read_codes, node, found)
            asked = [~gate.find_demanded(node.plan.classes, codes, len(found))]
            asked += [each.find_demanded(node.plan.classes, codes, len(found)) for each in above]
            refused = int(np.count_nonzero(np.logical_and.reduce(asked)))
            unused += _compute_weight(node) * refused / ids.size * stored.end
            seen[node] += len(found)
            through = [
                brief.find_demanded(leaf.plan.classes, codes, len(found)) for leaf in find_sought_leaves(node, gate)
            ]
            bound[node] += int(np.count_nonzero(np.logical_and.reduce([np.ones(len(found), np.bool_), *through])))
    sought = sum(bound[node] / seen[node] * len(node.state) for node in seen if seen[node] and node.state is not None)
    return GateSample(unused / weight if weight else 0.0, sought)


def find_sought_leaves(node: JoinNode, gate: Gate) -> list[LeafNode]:
    """The leaves whose rows must match a new key of the gate for a row of the node to be read in `resume_rows`."""
    bound = [child for child in (node.driver, node.lazy) if gate.project_key(child.plan.classes)]
    if len(bound) > 1 and isinstance(bound[1], JoinNode):
        bound.pop()
    leaves = (part for child in bound for part in walk_nodes(child) if isinstance(part, LeafNode))
    return [leaf for leaf in leaves if gate.project_key(leaf.plan.classes)]


def _compute_weight(node: JoinNode) -> float:
    """What a row costs: mostly the coding of its key, class by class; a key of two classes makes it one."""
    return (2 + (0 if node.state is None else len(node.state.key))) / 4


def _expand_all(node: JoinNode, alias: str, ids: I64) -> Iterator[tuple[JoinNode, JoinRows]]:
    """The rows of a node, and of every join below it, that hold one of some rows of a leaf."""
    side = node.left if alias in node.left.plan.aliases else node.right
    if isinstance(side, LeafNode):
        rows = side.expand(alias, ids)
    else:
        for below, found in _expand_all(side, alias, ids):
            rows = found
            yield below, rows
    yield node, concat_rows(list(node.pair.extend(side, rows, old_only=False)), len(node.plan.aliases))
