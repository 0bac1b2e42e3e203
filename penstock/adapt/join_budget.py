"""The budget of one join while it runs: statistics → allocation → allowances.

`JoinBudget` reads what its load shedding measured, lets a policy allocate in a thread of its own, while the batch goes
on, and replaces the allowances before the next batch. So a batch does not wait for the analysis unless it is shorter,
and runs are repeatable: an allocation is used from a batch on that does not depend on the clock. To decide elsewhere,
set `shedding.review` to a function that reads `measure_load` and calls `swap` with an allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.adapt.allocate import Allocation, allocate, predict_output
from penstock.adapt.background import BackgroundResult
from penstock.adapt.freshness import RefreshRates, Shortage, compute_renewal_rates
from penstock.cql import Stream
from penstock.join import JoinOperator, LoadShedding
from penstock.plan import JoinPlan, Leaf, PlanLoad, Tree, rename_leaves, require_tree

_TRIAL_SHARE = 0.02
"""The part of a budget that is divided equally among all half-way joins, so that each is measured."""
_CHANGE_THRESHOLD = 0.05
"""ε: the relative change of a statistic from which on the load is analysed."""
_GAIN_THRESHOLD = 0.05
"""p: the relative gain of predicted results from which on an allocation replaces the one before."""
_ALL_SHARE = 0.98
_BURST_FACTOR = 2.0
_DEFAULT_HORIZON = 10.0


class JoinBudget:
    """One join under a budget. `get_mu` returns its present probes per second, `timer` the time of the clock."""

    def __init__(
        self, join: JoinOperator, get_mu: Callable[[], float], policy: str, sample: int | None,
        late: Callable[[], bool], timer: Callable[[], float],
    ) -> None:  # fmt: skip
        plan = join.tree.plan
        second = ticks_per_second(plan)
        self.join = join
        self._get_mu = get_mu
        self._policy = policy
        self._ticks_per_second = second
        windows = (leaf.source.window for leaf in plan.leaves)
        spans = [window.duration / second for window in windows if window.duration]
        horizon = max(1.0, min(spans)) if spans else _DEFAULT_HORIZON
        self.shedding = LoadShedding(
            require_tree(plan.tree), get_mu(), second, horizon, sample, self.review, late, timer
        )
        self.allocation: Allocation | None = None
        """The allocation that is used; None before the first measurement."""
        self.load: PlanLoad | None = None
        """The load that was analysed last."""
        self.shortage: Shortage | None = None
        """Which FRESHNESS the budget cannot keep, by the last analysis."""
        self.swaps = 0
        """How often an allocation has replaced the one before."""
        self._analysis: BackgroundResult[tuple[PlanLoad, Allocation, bool]] | None = None
        """The analysis that runs."""
        self.shedding.settle = self.settle
        join.trees.set_shedding(self.shedding)

    def review(self) -> None:
        """Analyse the measured load if it or the budget has changed; use the result if it promises a gain."""
        mu = self.shedding.mu = self._get_mu()
        load = self.measure_load()
        if load is None:
            return
        if (
            self.allocation is None
            or self.load is None
            or mu != self.allocation.mu
            or _has_load_changed(self.load, load)
        ):
            bounds = {
                alias: bound / self._ticks_per_second for alias, bound in self.join.shared_join.find_freshness().items()
            }
            used = self.allocation
            self._analysis = BackgroundResult(
                partial(_analyse, load, mu, self._policy, bounds, used), "penstock budget"
            )
            if used is None:  # until then all half-way joins have equal allowances
                self.settle()

    def settle(self) -> None:
        """Use the result of the analysis that runs, if there is one; only between two batches."""
        if self._analysis is None:
            return
        analysis, self._analysis = self._analysis, None
        load, found, gains = analysis.wait()
        if load.tree != self.shedding.tree:  # the plan has changed since
            return
        self.shortage = found.shortage
        if gains:
            self.swap(load, found)
        else:
            self.load = load

    def measure_load(self) -> PlanLoad | None:
        """The present load; None while a half-way join has not probed yet."""
        return self.shedding.measure(self._count_state_rows()) if self.shedding.known else None

    def swap(self, load: PlanLoad, allocation: Allocation) -> None:
        """Use an allocation that was made for a load; only between two batches."""
        self.load, self.allocation = load, allocation
        self.swaps += 1
        self.shedding.set_allowances(spread_allocation(allocation, load))

    def _count_state_rows(self) -> dict[Tree, float]:
        """The rows that probes find: a state that is completed when it is probed counts as if it were full."""
        tree = self.join.tree
        sizes: dict[Tree, float] = {Leaf(alias): float(len(store)) for alias, store in tree.stores.items()}
        stateful = (node for node in tree.walk_joins() if node.state is not None and node.state.missing is None)
        return sizes | {node.plan.tree: float(node.count_living(self.join.done)) for node in stateful}

    def lift(self) -> None:
        self._analysis = None
        self.join.trees.set_shedding(None)

    def metrics(self, names: Mapping[str, str]) -> dict[str, object]:
        """The budget and its allowances, in the aliases of `names`."""
        self.settle()
        return {
            "mu": self._get_mu(),
            "policy": self._policy,
            "allowances": {
                str(rename_leaves(node, names)): probes for node, probes in self.shedding.allowances.items()
            },
            "swaps": self.swaps,
            "shortage": None if self.shortage is None else str(self.shortage),
        }


def _analyse(
    load: PlanLoad, mu: float, policy: str, bounds: Mapping[str, float], used: Allocation | None
) -> tuple[PlanLoad, Allocation, bool]:
    """The load, an allocation for it, and whether that replaces the one in use."""
    refreshes = compute_renewal_rates(load, bounds)
    found = allocate(load, mu, policy, refreshes)
    return load, found, _promises_gain(load, found, refreshes, used)


def _promises_gain(load: PlanLoad, found: Allocation, refreshes: RefreshRates, used: Allocation | None) -> bool:
    """Whether an allocation exceeds the one in use by the threshold, or refreshes a state that one neglects."""
    if used is None or used.mu != found.mu or used.allowances.keys() != found.allowances.keys():
        return True
    if found.policy in ("jaqpot", "lp"):
        made, possible = load.compute_output(used.allowances), load.compute_output(found.allowances)
        for node, needed in refreshes.items():
            if made[node] < (1 - _GAIN_THRESHOLD) * min(needed.rate, possible[node]):
                return True
    present = predict_output(load, used.allowances, found.policy)
    return predict_output(load, found.allowances, found.policy) > (1 + _GAIN_THRESHOLD) * present


def spread_allocation(found: Allocation, load: PlanLoad) -> dict[Tree, float]:
    """The allowances of an allocation, with the unspent budget and a small share for half-way joins without any.

    If all rows of a half-way join should probe, its allowance leaves room for bursts: the whole budget is kept anyway.
    """
    spent = sum(found.allowances.values())
    trial = (_TRIAL_SHARE if spent else 1.0) * found.mu / len(found.allowances)
    factor = (1 - _TRIAL_SHARE) * found.mu / spent if spent else 0.0
    return {
        node: trial + factor * probes * (_BURST_FACTOR if probes >= _ALL_SHARE * load.full_allowances[node] else 1.0)
        for node, probes in found.allowances.items()
    }


def ticks_per_second(plan: JoinPlan) -> int:
    """How many ticks of event time are a second; an integer tick counts as a second."""
    types = [leaf.source.relation.time_type for leaf in plan.leaves if isinstance(leaf.source.relation, Stream)]
    return 1_000_000 if any(pa.types.is_timestamp(type_) for type_ in types) else 1


def _has_load_changed(old: PlanLoad, new: PlanLoad) -> bool:
    return (
        old.tree != new.tree or _has_changed(old.rates, new.rates) or _has_changed(old.productivity, new.productivity)
    )


def _has_changed(old: Mapping[Any, float], new: Mapping[Any, float]) -> bool:
    return any(abs(value - old[key]) > _CHANGE_THRESHOLD * max(old[key], 1e-9) for key, value in new.items())
