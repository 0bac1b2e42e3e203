"""Shedding: which new rows of a node may probe its sibling under a budget, and the measurements for the allocation.

Law: of a batch's new rows of a node at most as many probe as its allowance has tokens, and of all nodes together at
most as many as the budget has tokens; all others are counted. Rows are inserted and purged as usual, so later rows may
still find rows that did not probe.

Allowances and budget gain tokens with event time, by their probes per second, up to the tokens of one second, or of the
batch if it is longer. Allowances may add up to more than the budget where all rows of a node should probe but arrive
unevenly. The newest rows probe first, or a random sample does. The allowances may be replaced between two batches.

Measured are, as averages that decay within `horizon` seconds, the rows offered and the selectivity σ: the share of the
probed pairs that agree. A state that lacks rows, or a window that is still filling, gives fewer pairs, not another σ.
The rows that every state would hold, the partners a probe would find, and the results without shedding follow from σ
and the windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, inf
from time import monotonic

import numpy as np

from penstock.join.join_rows import JoinRows
from penstock.plan import (
    Allowances,
    JoinPair,
    Leaf,
    PlanLoad,
    Tree,
    list_directions,
    list_halfway_joins,
    list_joins,
    list_leaves,
)
from penstock.state import I64

_MIN_PROBES, _MIN_PARTNERS = 100.0, 50.0
"""The fewest probes, or partners found, over which a selectivity is averaged, however old they are."""
_FIRST_TURN, _TURN = 64, 50_000
"""Rows that probe before the clock is read, and partners found before it is read again."""
_PRIOR_PARTNERS = 10.0
"""The weight, in partners, of the selectivity of the whole join in the estimate for one direction."""


@dataclass
class ProbeStats:
    """Recent counts of a half-way join: rows offered and rows that probed, which decay, and pairs probed and matched,
    which decay more slowly where few rows probe."""

    offered: float = 0.0
    pairs: float = 0.0
    matched: float = 0.0
    probes: float = 0.0
    _probed: float = 0.0
    _unfolded: tuple[int, int] = (0, 0)
    """Probes and partners that are not added to the pairs yet."""

    def decay(self, factor: float) -> None:
        self.offered *= factor
        self.probes *= factor

    def add(self, probed: int, found: int) -> None:
        self.probes += probed
        self._unfolded = (self._unfolded[0] + probed, self._unfolded[1] + found)

    def fold(self, rows: float, factor: float) -> None:
        """Add the probes since the last call to the pairs; `rows` is the size of the state they probed."""
        enough = min(_MIN_PROBES / max(self._probed, 1e-9), _MIN_PARTNERS / self.matched if self.matched else inf)
        kept = min(1.0, max(factor, enough))
        probed, found = self._unfolded
        self._probed = kept * self._probed + probed
        self.pairs = kept * self.pairs + probed * rows
        self.matched = kept * self.matched + found
        self._unfolded = (0, 0)

    @property
    def known(self) -> bool:
        """Whether the half-way join has probed, if it was offered rows."""
        return self._probed + self._unfolded[0] > 0 or self.offered == 0


class LoadShedding:
    """The allowances of one join tree under a budget.

    `second` is the number of ticks of event time per second. `review` is called between two batches whenever a quarter
    of the horizon has passed: it may call `measure` and `set_allowances`. While `is_late` returns true, no row probes.
    `timer` is the clock by which the time in the join is measured.
    """

    def __init__(
        self, tree: Tree, mu: float, second: int, horizon: float, sample: int | None, review: Callable[[], None],
        is_late: Callable[[], bool], timer: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self.mu = mu
        self._second = second
        self._horizon = horizon
        self._rng = None if sample is None else np.random.default_rng(sample)
        self.review = review
        self.settle: Callable[[], None] = lambda: None
        """Called before each batch: what `review` has begun may replace the allowances."""
        self._is_late = is_late
        self._timer = timer
        self.seconds_spent = 0.0
        """Seconds of the clock in turns of the join."""
        self._now: int | None = None
        self._decayed_seconds = 0.0
        self._reviewed_at = 0.0
        self.elapsed = 0.0
        """Seconds of event time for which tokens were added."""
        self.probes_spent = 0
        self._is_paying = False
        self._partners_found = 0
        self._unprobed: Counter[Tree] = Counter()
        self.lossy_joins: set[Tree] = set()
        """The joins that lack rows because probes of this batch were shed."""
        self._probe_stats: dict[Tree, ProbeStats] = {}
        self._state_rows: Mapping[Tree, float] = {}
        """The rows of each state at the last measurement."""
        self._measured_at = 0.0
        self._results_made = self._results_expected = 0.0
        """Results found by whichever plan, and the estimate of results without shedding; both decay."""
        self._tokens: dict[Tree, float] = {}
        self._budget_tokens = 0.0
        self.allowances: Allowances = {}
        self.tree = tree
        self._split_evenly()

    def reshape(self, tree: Tree) -> None:
        """Take the shape of another plan; until the next review, its half-way joins have equal allowances."""
        if tree != self.tree:
            self.tree = tree
            self._split_evenly()

    def _split_evenly(self) -> None:
        nodes = list_halfway_joins(self.tree)
        *_, root = list_joins(self.tree)
        self._root_sides = {side for side, _ in list_directions(root)}
        self._probe_stats = {node: self._probe_stats.get(node, ProbeStats()) for node in nodes}
        self.set_allowances(dict.fromkeys(nodes, self.mu / len(nodes)))
        self._reviewed_at = self.elapsed - self._horizon  # review it soon

    def set_allowances(self, table: Allowances) -> None:
        """Replace the allowances. A new half-way join starts with the tokens of a second."""
        self.allowances = table
        self._tokens = {node: self._tokens.get(node, probes) for node, probes in table.items()}

    @contextmanager
    def measure_turn(self) -> Iterator[None]:
        """Measure the time of a turn of the join."""
        begin = self._timer()
        yield
        self.seconds_spent += self._timer() - begin

    # ── a batch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_batch(self, first: int, last: int) -> None:
        """Add tokens for a batch with tuples of these times: for the time since the last batch, or for a second."""
        start = min(first, last - self._second)
        if self._now is not None:
            start = max(start, self._now)
        seconds = max(0, last - start) / self._second
        self._now = last if self._now is None else max(self._now, last)
        self.lossy_joins.clear()
        self.settle()
        if (
            self.elapsed - self._reviewed_at >= self._horizon / 4
        ):  # before tokens are added: time and rows up to the last batch
            self._reviewed_at = self.elapsed
            self.review()
        self._add_tokens(seconds)

    def _add_tokens(self, seconds: float) -> None:
        self.elapsed += seconds
        factor = exp(-seconds / self._horizon)
        self._decayed_seconds = self._decayed_seconds * factor + seconds
        self._results_made *= factor
        for flow in self._probe_stats.values():
            flow.decay(factor)
        for node, probes in self.allowances.items():
            most = probes * max(1.0, seconds) + 1
            self._tokens[node] = min(most, self._tokens[node] + probes * seconds)
        self._budget_tokens = min(self.mu * max(1.0, seconds) + 1, self._budget_tokens + self.mu * seconds)

    def limit_probes(self, node: Tree, join: Tree, rows: JoinRows) -> JoinRows:
        """The rows of a node that may probe."""
        self._probe_stats[node].offered += len(rows)
        allowed = 0 if self._is_late() else max(0, int(min(self._tokens[node], self._budget_tokens, len(rows))))
        if len(rows) > allowed:
            self._record_shed(node, join, len(rows) - allowed)
            rows = rows.take(self._choose_rows(rows, allowed))
        self._tokens[node] -= len(rows)
        self._budget_tokens -= len(rows)
        return rows

    def _record_shed(self, node: Tree, join: Tree, count: int) -> None:
        self._unprobed[node] += count
        self.lossy_joins.add(join)

    @contextmanager
    def pay_lookups(self, count: Callable[[], int]) -> Iterator[None]:
        """Let the budget pay for the probes that complete a state, as `count` counts them.

        Not more is owed than the budget of a second, so that results do not cease for long.
        """
        if self._is_paying:  # for a state above, which pays for this one too
            yield
            return
        self._is_paying, before = True, count()
        try:
            yield
        finally:
            self._is_paying = False
        lookups = count() - before
        self.probes_spent += lookups
        self._budget_tokens = max(self._budget_tokens - lookups, min(self._budget_tokens, -self.mu))

    def iter_turns(self, node: Tree, join: Tree, rows: JoinRows) -> Iterator[JoinRows]:
        """The rows that may probe, newest first, in turns of about as many partners; none follows when it is late.

        The size of a turn depends on the partners of the one before it: call `record_probes` between them.
        """
        left, size = len(rows), _FIRST_TURN
        while left:
            found = self._partners_found
            turn = rows.take(np.arange(max(0, left - size), left))
            left -= len(turn)
            yield turn
            if left and self._is_late():
                self._tokens[node] += left
                self._budget_tokens += left
                self._record_shed(node, join, left)
                return
            size = int(_TURN * len(turn) / max(self._partners_found - found, 1)) + 1

    def _choose_rows(self, rows: JoinRows, count: int) -> I64:
        if self._rng is not None:
            return np.sort(self._rng.choice(len(rows), count, replace=False))
        return np.sort(np.argsort(rows.born, kind="stable")[len(rows) - count :])

    def take_unprobed(self) -> Counter[Tree]:
        """How many rows of each node did not probe since the last call."""
        taken, self._unprobed = self._unprobed, Counter()
        return taken

    def record_probes(self, node: Tree, probed: int, partners: int) -> None:
        self.probes_spent += probed
        self._partners_found += partners
        self._probe_stats[node].add(probed, partners)
        if node in self._root_sides:
            self._results_made += partners

    # ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────

    def measure(self, state_rows: Mapping[Tree, float]) -> PlanLoad:
        """Rates, productivities and states as they would be if nothing were shed, by estimate.

        `state_rows` are the rows of each state now; a node without a state finds all of its rows in the windows. Plain
        counts would underestimate the load under shedding, because states that lack rows cause fewer probes.
        """
        passed = self.elapsed - self._measured_at
        factor = exp(-passed / self._horizon)
        productivity: dict[Tree, float] = {}
        whole: dict[Tree, float] = {Leaf(alias): state_rows[Leaf(alias)] for alias in list_leaves(self.tree)}
        for join in list_joins(self.tree):
            for side, other in list_directions(join):
                now = state_rows.get(other, whole[other])
                self._probe_stats[side].fold((self._state_rows.get(other, now) + now) / 2, factor)
            both = self._compute_selectivity(join)
            whole[join] = both * whole[join.left] * whole[join.right]
            for side, other in list_directions(join):
                flow = self._probe_stats[side]
                borrowed = _PRIOR_PARTNERS / both if both else 0.0
                selectivity = (flow.matched + both * borrowed) / max(flow.pairs + borrowed, 1e-9)
                productivity[side] = selectivity * whole[other]
        self._state_rows, self._measured_at = state_rows, self.elapsed
        seconds = max(self._decayed_seconds, 1e-9)
        rates = {alias: self._probe_stats[Leaf(alias)].offered / seconds for alias in list_leaves(self.tree)}
        load = PlanLoad(self.tree, rates, productivity, {node: whole[node] for node in productivity})
        self._results_expected = (
            self._results_expected * factor + load.compute_output(load.full_allowances)[self.tree] * passed
        )
        return load

    def _compute_selectivity(self, join: JoinPair) -> float:
        """The share of all probed pairs of a join, from either side, that agree."""
        flows = [self._probe_stats[side] for side, _ in list_directions(join)]
        return sum(flow.matched for flow in flows) / max(sum(flow.pairs for flow in flows), 1e-9)

    @property
    def known(self) -> bool:
        """Whether every half-way join that was offered rows has probed."""
        return all(flow.known for flow in self._probe_stats.values())

    def estimate_completeness(self) -> float:
        """Recent results divided by the estimate of results without shedding; until then by the share of probes."""
        if not self._results_expected:
            return self._compute_probed_share()
        return min(1.0, self._results_made / self._results_expected)

    def _compute_probed_share(self) -> float:
        """The share of the rows that probed, multiplied over the joins."""
        share = 1.0
        for join in list_joins(self.tree):
            flows = [self._probe_stats[side] for side, _ in list_directions(join)]
            offered = sum(flow.offered for flow in flows)
            share *= min(1.0, sum(flow.probes for flow in flows) / offered) if offered else 1.0
        return share
