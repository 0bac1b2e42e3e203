"""The execution model of the JAQPOT paper: every state, also of an intermediate result, is a window of so many rows.

There a row of a state leaves when enough others have come, not when its parts die. So a join that is starved leaves old
rows standing above it, and results with parts of any age come from them: that is the staleness the paper measures. In
this engine rows die with their parts and no such result arises; the model is here to repeat Figure 9.

A second is simulated in steps; a probe finds Poisson(ρ) partners, drawn evenly from the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.plan.input_paths import Allowances, PlanLoad, list_directions, list_halfway_joins
from penstock.plan.tree import JoinPair, Leaf, Tree, list_joins, list_leaves

ArrivalTimes = NDArray[np.float64]
"""Rows by aliases: when each part arrived; columns stand in the order of the tree's leaves, NaN where it has none."""

_STEPS = 10


@dataclass
class _CountWindow:
    """A window of the newest `size` rows."""

    size: int
    arrivals: ArrivalTimes

    def insert(self, rows: ArrivalTimes) -> None:
        self.arrivals = np.concatenate([self.arrivals, rows])[-self.size :]


class CountModel:
    """A plan whose states hold fixed numbers of rows, run under an allowance table."""

    def __init__(self, load: PlanLoad, table: Allowances, seed: int = 1) -> None:
        self._load = load
        self._allowances = table
        self._rng = np.random.default_rng(seed)
        self._width = len(list_leaves(load.tree))
        self._tokens = dict.fromkeys(table, 0.0)
        self._states = {
            node: _CountWindow(round(load.states[node]), self._fill_state(node))
            for node in list_halfway_joins(load.tree)
        }

    def _fill_state(self, node: Tree) -> ArrivalTimes:
        """A state that was kept in full until now: rows as old as their places, each part as old as it can be."""
        size = round(self._load.states[node])
        born = np.full((size, self._width), np.nan)
        rate = self._load.rates[node.alias] if isinstance(node, Leaf) else self._compute_full_rate(node)
        ages = np.arange(size, 0, -1) / rate
        for alias in list_leaves(node):
            born[:, list_leaves(self._load.tree).index(alias)] = -ages
        return born

    def _compute_full_rate(self, node: JoinPair) -> float:
        return sum(
            self._load.full_allowances[side] * self._load.productivity[side] for side, _ in list_directions(node)
        )

    def compute_stale_fraction(self, freshness: Mapping[str, float], warm: float, seconds: float) -> float:
        """The part of the results, after some seconds of warming up, that have a part older than its freshness."""
        bound = np.array([freshness[alias] for alias in list_leaves(self._load.tree)])
        stale = results = 0
        for step in range(round((warm + seconds) * _STEPS)):
            now = (step + 1) / _STEPS
            rows = self._step(now)
            if now > warm:
                results += len(rows)
                stale += int(np.count_nonzero((now - rows > bound).any(axis=1)))
        return stale / results if results else 0.0

    def _step(self, now: float) -> ArrivalTimes:
        new: dict[Tree, ArrivalTimes] = {}
        for place, alias in enumerate(list_leaves(self._load.tree)):
            rows = np.full((self._rng.poisson(self._load.rates[alias] / _STEPS), self._width), np.nan)
            rows[:, place] = now
            new[Leaf(alias)] = rows
        for join in list_joins(self._load.tree):
            made = [self._probe(side, other, new[side]) for side, other in list_directions(join)]
            for side, _ in list_directions(join):
                self._states[side].insert(new[side])
            new[join] = np.concatenate(made)
        return new[self._load.tree]

    def _probe(self, side: Tree, other: Tree, rows: ArrivalTimes) -> ArrivalTimes:
        self._tokens[side] = min(self._tokens[side] + self._allowances[side] / _STEPS, max(1.0, self._allowances[side]))
        allowed = min(len(rows), int(self._tokens[side]))
        self._tokens[side] -= allowed
        rows = rows[len(rows) - allowed :]
        partners = self._rng.poisson(self._load.productivity[side], allowed)
        found = self._states[other].arrivals[self._rng.integers(0, len(self._states[other].arrivals), partners.sum())]
        joined: ArrivalTimes = np.fmax(np.repeat(rows, partners, axis=0), found)
        return joined
