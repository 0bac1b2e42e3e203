"""The eddy: a join in no fixed order. Every window is a SteM; a batch's tuples of each stream visit all the others.

Law: the newest tuple of a combination finds the others; among tuples of one batch it is the tuple of the last stream.
A tuple probes all rows of a SteM before its own in the plan, and only the older rows of a SteM after it. So every
combination with a tuple of the batch is built exactly once, for any routes.

The route of a stream's tuples is chosen for every batch by the fan-outs measured so far. No rows are kept between
batches, so a route may change at every batch.

Demand (JIT, section V): `demand/eddy_gates` drops rows whose newest part some SteM ahead on their route cannot match.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from penstock.join.demand.eddy_gates import EddyGates
from penstock.join.demand.gate import Gate
from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode
from penstock.join.state_policy import StatePolicy
from penstock.join.tree_context import TreeContext
from penstock.plan import EddyPlan, EddyRoute, Key, NodePlan, choose_route

_DECAY = 0.5
"""The factor by which each batch reduces the weight of earlier batches."""


class FanOuts:
    """The fan-out of a SteM by the key of the probing rows, as a moving average over batches."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._observed: dict[tuple[str, Key], tuple[float, float]] = {}

    def estimate(self, stem: str, key: Key) -> float:
        """The measured fan-out, or an estimate that takes all classes as uniform and independent."""
        probes, found = self._observed.get((stem, key), (0.0, 0.0))
        if probes:
            return found / probes
        distinct = [max(self._context.keys.interners[id_].live_count, 1) for id_ in key]
        return len(self._context.stores[stem]) / float(np.prod(distinct, dtype=np.float64))

    def record(self, stem: str, key: Key, probes: int, found: int) -> None:
        before = self._observed.get((stem, key), (0.0, 0.0))
        self._observed[stem, key] = (_DECAY * before[0] + probes, _DECAY * before[1] + found)


class EddyNode:
    """The root of a tree that routes. Its leaves are the SteMs, in the order of the plan."""

    def __init__(self, plan: EddyPlan, context: TreeContext, policy: StatePolicy) -> None:
        self.plan = plan
        self.stems = {leaf.alias: LeafNode(leaf, context.stores[leaf.alias], context) for leaf in plan.leaves}
        self.fan_outs = FanOuts(context)
        self.routes: dict[str, EddyRoute] = {}
        self.built: Counter[str] = Counter()
        """Intermediate rows built, by the stream their routes start from."""
        self._context = context
        self._places = {alias: place for place, alias in enumerate(plan.aliases)}
        self._classes = {alias: stem.plan.classes for alias, stem in self.stems.items()}
        self._paths: dict[EddyRoute, tuple[JoinNode, ...]] = {}
        self._demand = EddyGates(self.stems, context, policy, self._estimate_cost)

    # ── new rows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def compute_delta(self) -> JoinRows:
        """This batch's rows."""
        self._demand.add_batch()
        return concat_rows([self._route_tuples(alias) for alias in self.stems], len(self.plan.aliases))

    def _route_tuples(self, origin: str) -> JoinRows:
        """The results of this batch's tuples of a stream."""
        rows = self.stems[origin].fresh_rows()
        if not len(rows):
            return JoinRows(np.empty((len(self.plan.aliases), 0), np.int64), rows.born, rows.dies)
        self.routes[origin] = route = choose_route(origin, self._classes, self.fan_outs.estimate)
        rows = self._demand.filter_demanded(self.stems[origin], rows, self.stems[origin], route[1:])
        for step, node in enumerate(self._get_path(route), 2):
            stem, before = route[step - 1], len(rows)
            behind = self._places[stem] > self._places[origin]
            self.stems[stem].probes += before
            rows = concat_rows(list(node.pair.extend(node.left, rows, old_only=behind)), step)
            if before:
                self.fan_outs.record(stem, node.plan.key, before, len(rows))
            rows = self._demand.filter_demanded(node, rows, self.stems[stem], route[step:])
            self.built[origin] += len(rows) if step < len(route) else 0
        order = [route.index(alias) for alias in self.plan.aliases]
        return JoinRows(rows.ids[order], rows.born, rows.dies)

    @property
    def gates(self) -> dict[str, Gate]:
        """The gates by SteM, closed or open."""
        return self._demand.gates

    def review_demand(self, bound: int, batches: int) -> None:
        """Remove the keys of tuples that have died, and decide which gates are closed; only between two batches."""
        self._demand.review(bound, batches)

    def _estimate_cost(self, origin: str, until: str) -> float:
        """The probes and rows of a tuple on its last route before the rows reach a SteM."""
        route, rows, cost = self.routes.get(origin), 1.0, 0.0
        for stem, node in zip(route[1:], self._get_path(route), strict=True) if route else ():
            cost += rows
            if stem == until:
                break
            rows *= self.fan_outs.estimate(stem, node.plan.key)
            cost += rows
        return cost

    def _get_path(self, route: EddyRoute) -> tuple[JoinNode, ...]:
        """The join steps of a route, first to last."""
        if route not in self._paths:
            if len(self._paths) >= self._context.maintenance.eddy_paths:
                self._paths.clear()
            plan, steps = self.plan.plan_route(route), []
            while isinstance(plan, NodePlan):
                steps.append(plan)
                plan = plan.left
            node: LeafNode | JoinNode = self._make_leaf(route[0])
            path: list[JoinNode] = []
            for alias, step in zip(route[1:], reversed(steps), strict=True):
                node = JoinNode(step, node, self._make_leaf(alias), self._context, None)
                path.append(node)
            self._paths[route] = tuple(path)
        return self._paths[route]

    def _make_leaf(self, alias: str) -> LeafNode:
        """A leaf of one route; it has its own gates and range condition."""
        return LeafNode(self.stems[alias].plan, self._context.stores[alias], self._context)

    def end_batch(self) -> None:
        for stem in self.stems.values():
            stem.end_batch()
