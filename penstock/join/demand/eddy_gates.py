"""The gates of an eddy: one for each SteM, with the keys that its tuples can match (JIT, section V).

Law: a closed gate has the keys of all living tuples of its SteM. A row is dropped if its newest part has a key that
some SteM ahead on its route cannot match. No row is ever resumed: when the missing partner arrives, it finds the stored
tuples on its own route. So a gate may open and close between any two batches.

Under a measured policy a gate is closed if that saves more than it costs, see `gate_cost`. What it saves is the work on
the route up to its SteM, for the share of the tuples of the other SteMs that it does not admit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.join.demand.gate import Gate
from penstock.join.demand.gate_cost import SAMPLE_ROWS, GateReview, GateSample, GateWork, pays_off
from penstock.join.demand.sampling import choose_places
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode
from penstock.join.state_policy import StatePolicy
from penstock.join.tree_context import TreeContext

EstimateCost = Callable[[str, str], float]
"""What a tuple of one SteM costs on its route until it reaches another, in rows."""


class EddyGates:
    """The gates by SteM, and when they are closed."""

    def __init__(
        self, stems: Mapping[str, LeafNode], context: TreeContext, policy: StatePolicy, estimate_cost: EstimateCost
    ) -> None:
        self._stems = stems
        self._context = context
        self._policy = policy
        self._estimate_cost = estimate_cost
        self._reviews: dict[str, GateReview] = {}
        self.gates: dict[str, Gate] = {}
        if policy.gated != "never":
            self._add_gates()

    def _add_gates(self) -> None:
        classes = {alias: stem.plan.classes for alias, stem in self._stems.items()}
        for alias, mine in classes.items():
            others = [theirs for other, theirs in classes.items() if other != alias]
            key = tuple(sorted(mine & frozenset[int]().union(*others)))
            gate = Gate(key, others, self._context.keys, self._context.maintenance, self._policy.demand)
            gate.closed = self._policy.gated == "always"
            self.gates[alias] = gate

    def add_batch(self) -> None:
        """Demand the partners of this batch's tuples."""
        for alias, gate in self.gates.items():
            if gate.closed:
                self._add_demand(gate, alias, self._stems[alias].fresh_rows())

    def _add_demand(self, gate: Gate, alias: str, rows: JoinRows) -> None:
        gate.add(self._stems[alias], rows)

    def filter_demanded(
        self, node: LeafNode | JoinNode, rows: JoinRows, stem: LeafNode, ahead: tuple[str, ...]
    ) -> JoinRows:
        """The rows whose newest part, a tuple of `stem`, the SteMs ahead can match."""
        for alias in ahead:
            gate = self.gates.get(alias)
            if gate is not None and gate.closed and len(rows):
                before = len(rows)
                rows = rows.take(gate.find_demanded(stem.plan, node, rows))
                stem.suppressed["empty" if gate.empty else "type I"] += before - len(rows)
        return rows

    # ── between two batches ──────────────────────────────────────────────────────────────────────────────────────

    def review(self, bound: int, batches: int) -> None:
        """Remove the keys of tuples that have died, and decide which gates are closed."""
        for alias, gate in self.gates.items():
            if self._policy.gated == "always":
                self._renew_demand(gate, alias, bound)
            else:
                self._review_gate(gate, alias, bound, batches)

    def _renew_demand(self, gate: Gate, alias: str, bound: int) -> None:
        gate.clear()
        rows = self._stems[alias].read_living()
        self._add_demand(gate, alias, rows.take(rows.dies > bound))

    def _review_gate(self, gate: Gate, alias: str, bound: int, batches: int) -> None:
        last, work, was_closed = self._reviews.get(alias, GateReview()), self._count_work(alias, batches), gate.closed
        since = work.subtract(last.work)
        if not was_closed and (last.skips or not since.arrived):
            self._reviews[alias] = last.skip(last.work)
            return
        self._renew_demand(gate, alias, bound)
        savings = self._sample_savings(gate, alias)
        if not since.arrived or savings is None:
            return
        gate.closed = pays_off(GateSample(savings, 0.0), since, closed=was_closed)
        self._stems[alias].changes += gate.closed != was_closed
        if not gate.closed:
            gate.clear()
        self._reviews[alias] = last.record(work, was_closed=was_closed, closed=gate.closed)

    def _count_work(self, alias: str, batches: int) -> GateWork:
        arrived = sum(stem.store.rows.end for other, stem in self._stems.items() if other != alias)
        store = self._stems[alias].store
        return GateWork(batches, arrived, tested=arrived, driver_living=len(store))

    def _sample_savings(self, gate: Gate, alias: str) -> float | None:
        """The work that the gate saves for a tuple of another SteM, on average; None if no other has tuples."""
        saved = weight = 0.0
        for other, stem in self._stems.items():
            store = stem.store
            if other == alias or not len(store) or store.table is not None:
                continue
            rows = stem.expand(other, store.rows.base + choose_places(len(store), SAMPLE_ROWS))
            admitted = gate.find_demanded(stem.plan, stem, rows)
            refused = 1.0 - float(admitted.mean()) if len(rows) else 0.0
            saved += refused * self._estimate_cost(other, alias) * store.tuples_read
            weight += store.tuples_read
        return saved / weight if weight else None
