"""Whether the state of a join is worth its cost: what it costs to keep its rows, and to look them up instead.

Law: only costs follow from this, never results: a join without a state computes the rows that a probe asks for.

A state costs a fixed amount per batch, and for each row stored and each probe an amount that grows with the number of
classes of its key. Without a state every probe is joined with the windows below, one after the other. The unit of both
is about 100 ns; an array call costs as much as hundreds of rows. What a join with a state would cost without one is
measured by looking up some rows of its sibling; what one without a state costs is counted. A choice changes once the
other one would have saved what a change costs, and each change of a join makes the next one harder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.join.join_rows import JoinRows
from penstock.join.lookup_meter import LOOKUP_CALL, PROBE_CLASS, PROBE_ROW, LookupMeter
from penstock.join.node import JoinNode, TreeNode
from penstock.join.probes import Probes
from penstock.plan import Key

BATCH_COST = 800.0
STORE_ROW = 0.3
STORE_CLASS = 0.2
STORE_NEW_CLASS = 0.7
"""What a state costs: per batch and per row stored, and for each further class of its key, more if the key is new."""

SAMPLE_ROWS = 256
"""How many rows of the sibling are looked up to measure what lookups would cost."""
EFFORT = 10.0
"""A state is measured once it has cost this many times the measurement, ..."""
MAX_PATIENCE = 7
"""... and later after each measurement without a change: up to two to the power of this times as much."""
MARGIN = 1.15
"""The factor by which the other choice must be cheaper."""
FURTHER_CHANGE = 2.0
"""The factor by which each change makes the next one harder."""


@dataclass(frozen=True)
class StateWork:
    """The work of a join on behalf of its sibling, since the beginning or since the last review."""

    batches: int = 0
    rows: int = 0
    """Rows that were stored, or would have been."""
    probes: int = 0
    looked_up: float = 0.0
    """The cost of lookups in place of a state."""

    def subtract(self, earlier: StateWork) -> StateWork:
        """What was done since."""
        return StateWork(
            self.batches - earlier.batches,
            self.rows - earlier.rows,
            self.probes - earlier.probes,
            self.looked_up - earlier.looked_up,
        )


@dataclass(frozen=True)
class StateReview:
    """The last review of the state of a join."""

    work: StateWork = StateWork()
    lost: float = 0.0
    """What the other choice would have saved since it became the better one."""
    patience: int = 0
    changes: int = 0

    def is_measurement_due(self, cost: float, windows: int) -> bool:
        """Whether a state has cost enough since the last measurement to measure the cost of lookups in windows."""
        return cost > EFFORT * 2.0**self.patience * (LOOKUP_CALL * windows + SAMPLE_ROWS)

    def compare(self, work: StateWork, cost: float, other: float) -> StateReview:
        """The review after some work that did cost `cost`, and `other` with the other choice."""
        if cost > MARGIN * other:
            return replace(self, work=work, lost=self.lost + cost - other)
        return replace(self, work=work, lost=0.0, patience=min(self.patience + 1, MAX_PATIENCE))

    def is_change_due(self, storing: float) -> bool:
        """Whether the other choice is better, and would have saved enough: `storing` all rows again may be needed."""
        harder: float = FURTHER_CHANGE**self.changes - 1
        return self.lost > harder * storing

    def change(self, work: StateWork) -> StateReview:
        return StateReview(work, changes=self.changes + 1)


@dataclass(frozen=True)
class LookupSample:
    """What lookups of some probes cost: how many windows are probed in a batch, and the rest per probe."""

    calls: int
    per_probe: float

    def estimate_cost(self, work: StateWork) -> float:
        """The cost of lookups in place of the probes of a state."""
        return LOOKUP_CALL * self.calls * work.batches + self.per_probe * work.probes


def count_work(node: JoinNode, batches: int) -> StateWork:
    """The counts since the beginning."""
    return StateWork(batches, node.built + node.completed, node.probes + node.meter.probes, node.meter.cost)


def compute_state_cost(work: StateWork, key: Key, new_keys: float) -> float:
    """What a state costs for some work. `new_keys`: the share of its rows whose key no other row has."""
    probing = (PROBE_ROW + PROBE_CLASS * max(len(key) - 1, 0)) * work.probes
    return BATCH_COST * work.batches + compute_store_cost(work.rows, key, new_keys) + probing


def compute_store_cost(rows: float, key: Key, new_keys: float) -> float:
    """What it costs to store rows."""
    per_class = STORE_NEW_CLASS * new_keys + STORE_CLASS * (1 - new_keys)
    return (STORE_ROW + per_class * max(len(key) - 1, 0)) * rows


def sample_lookup(node: JoinNode, sibling: TreeNode, key: Key, rows: JoinRows) -> LookupSample:
    """Measure what it costs to look up some rows of the sibling in the windows below a join."""
    meter = LookupMeter(most=2 * SAMPLE_ROWS)
    codes = {id_: sibling.codes(id_, rows) for id_ in key}
    for _ in node.pair.lookup(Probes(codes, rows.born, rows.dies, from_leaves=True, meter=meter)):
        pass
    return LookupSample(meter.calls, meter.work / max(len(rows), 1))
