"""What to change in a running query: pure functions from an observation to a proposal, and from proposals to decisions.

Join order: the cheapest tree by the cost model with measured statistics. State policy: `auto`, if a fixed policy builds
many rows that have no partner, or tests rows that nearly all have one. Slices: merged (CPU-Opt) if that saves more
comparisons than it keeps additional tuples, or cut at every window again (Mem-Opt). Budget: the time a push may take,
if pushes take longer than the event time they cover and the query allows shedding by FRESHNESS.

A proposal becomes a decision if it is made `confirm` times in a row (or is urgent: a large overload), the last decision
on the same action is a window ago (`cool_down`), and the query had few decisions lately (`per_minute`). A proposal must
gain enough, relatively (`margin`) and absolutely (`least`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import exp, inf, isfinite
from typing import Any

from penstock.adapt.commands import ACTIONS, Action, AdaptCommand, Migrate, Reslice, SetPolicy, ShedLoad
from penstock.adapt.monitor import Observation
from penstock.errors import QueryError
from penstock.join import BATCH_COST, REQUEST_COST, SLICE_OVERHEAD, TEST_COST
from penstock.plan import (
    Eddy,
    JoinGraph,
    JoinPair,
    Leaf,
    Statistics,
    Tree,
    choose_cpu_opt_chain,
    choose_mem_opt_chain,
    choose_tree,
    compute_slice_cost,
    compute_tree_cost,
    estimate_output_rate,
    estimate_state_rows,
    list_joins,
    list_leaves,
    rename_leaves,
)

_MINUTE = 60.0
_URGENT_FACTOR = 2.0
"""The factor of overload above which a budget does not wait for a second proposal."""


@dataclass(frozen=True)
class Rules:
    """When a controller acts. Times are seconds of event time unless the clock is named."""

    margin: float = 0.25
    """How much the present cost must exceed the proposed one, relative to the proposed one."""
    least: float = 20_000.0
    """How many rows a change must save within a window, beyond those it has to rebuild."""
    confirm: int = 2
    """How many times in a row a change must be proposed."""
    cool_down: float = 1.0
    """For how many windows no second decision is made on the same action."""
    per_minute: int = 6
    """How many decisions a query may have in a minute."""
    full: float = 1.0
    """The seconds of the clock per second of event time above which an engine is overloaded."""
    idle: float = 0.6
    """A budget is lifted when less than this part of it, and of the time, is used."""
    speed: float = 1.0
    """How fast event time passes: a history replayed at 60 covers a minute in a second."""
    effort: float = 0.05
    """The part of the clock that sampling and analysis may take."""
    wait: bool = False
    """Whether a push waits for the analysis of earlier pushes. With `effort=1.0` a run can then be repeated exactly.

    With less, the clock decides which samples are left out.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "wait":
                good, what = isinstance(value, bool), "True or False"
            elif each.name in ("confirm", "per_minute"):
                good, what = isinstance(value, int) and not isinstance(value, bool) and value >= 1, "a number from 1 on"
            else:
                good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
                open_ended = each.name in ("margin", "least", "cool_down")
                good = good and (value > 0 or (open_ended and value == 0)) and (each.name != "effort" or value <= 1)
                what = "a part, above 0 and at most 1" if each.name == "effort" else "a number that is not negative"
            if not good:
                raise QueryError("BAD_RULES", f"{each.name} of the rules of adaptation is {what}, not {value!r}")


@dataclass(frozen=True)
class Decision:
    """A command with the numbers that led to it; `push` is the number of pushes before it was applied."""

    command: AdaptCommand | None
    """None if the analysis failed."""
    time: float
    """The event time of the observation, in seconds."""
    numbers: Mapping[str, float]
    push: int | None = None
    error: str | None = None
    """Why it could not be made or applied."""


@dataclass(frozen=True)
class DecisionHistory:
    """The earlier decisions and proposals for one query."""

    last_decided: Mapping[Action, float] = field(default_factory=dict)
    """The event time of the last decision on each action."""
    recent_times: tuple[float, ...] = ()
    proposal_counts: Mapping[tuple[str, Action], int] = field(default_factory=dict)
    """By join and action: how many times in a row a change was proposed, to any value."""
    budget_limit: float | None = None
    """The budget that was decided, in milliseconds per push."""


@dataclass(frozen=True)
class Proposal:
    """A change that would gain enough, with the numbers that show it."""

    command: AdaptCommand
    numbers: Mapping[str, float]
    urgent: bool = False
    """Whether it becomes a decision without a second proposal."""


def decide(
    seen: Observation, history: DecisionHistory, rules: Rules, actions: Collection[Action] = ACTIONS
) -> tuple[DecisionHistory, list[Decision]]:
    """The new history and the decisions on some actions, given an observation."""
    sample = seen.sample
    decisions = []
    for do, propose in _PROPOSERS.items():
        if do not in actions:
            continue
        target = (sample.join, do)
        found = propose(seen, history, rules)
        times = 0 if found is None else history.proposal_counts.get(target, 0) + 1
        history = replace(history, proposal_counts={**history.proposal_counts, target: times})
        confirmed = found is not None and (times >= rules.confirm or found.urgent)
        if found is not None and confirmed and _can_act(seen, do, history, rules):
            decisions.append(Decision(found.command, sample.time, found.numbers))
            history = _record_decision(history, target, found, sample.time)
    return history, decisions


def _can_act(seen: Observation, do: Action, history: DecisionHistory, rules: Rules) -> bool:
    now, pause = seen.sample.time, rules.cool_down * seen.sample.horizon
    cooled = do not in history.last_decided or now - history.last_decided[do] >= pause
    return cooled and sum(now - time < _MINUTE for time in history.recent_times) < rules.per_minute


def _record_decision(
    history: DecisionHistory, target: tuple[str, Action], found: Proposal, now: float
) -> DecisionHistory:
    _, do = target
    limit = None if found.command.value is None else found.numbers.get("milliseconds")
    return DecisionHistory(
        {**history.last_decided, do: now},
        (*(time for time in history.recent_times if now - time < _MINUTE), now),
        {**history.proposal_counts, target: 0},
        limit if do == "budget" else history.budget_limit,
    )


# ── join order ───────────────────────────────────────────────────────────────────────────────────────────────────


def propose_join_order(seen: Observation, history: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """The cheapest tree, if it saves more rows within a window than its new states hold."""
    sample, stats = seen.sample, seen.statistics
    if isinstance(sample.tree, Eddy) or len(sample.graph.aliases) < 3:
        return None
    best = choose_tree(sample.graph, stats)
    now, then = (compute_tree_cost(tree, sample.graph, stats) for tree in (sample.tree, best))
    there = {frozenset(list_leaves(node)) for node in list_joins(sample.tree)}
    lacking = {frozenset(list_leaves(node)) for node in list_joins(best)} - there
    rebuilt = sum(estimate_state_rows(names, sample.graph, stats) for names in lacking)
    saved = (now - then) * sample.horizon
    if now <= (1 + rules.margin) * then or saved <= rebuilt + rules.least:
        return None
    shape = str(rename_leaves(best, sample.names))
    shapes = [shape if place == sample.join_index else other for place, other in enumerate(sample.shapes)]
    numbers = {"cost": now, "proposed": then, "spared": saved, "made_up": rebuilt, "state_rows": sample.state_rows}
    return Proposal(Migrate(sample.query, "; ".join(shapes)), numbers)


# ── state policy ─────────────────────────────────────────────────────────────────────────────────────────────────


def propose_state_policy(seen: Observation, history: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """`auto`, if there are no gates and they would save more than they cost, or if they cost more than they save.

    With `auto` the join then decides gate by gate. `none` is never changed: users choose it to save memory.
    """
    sample, stats = seen.sample, seen.statistics
    if isinstance(sample.tree, Eddy) or sample.state not in ("eager", "lazy", "jit") or sample.demand_ratio is not None:
        return None
    gates = [_estimate_gate(*pair, sample.graph, stats) for pair in _iter_gated(sample.tree)]
    if not gates:
        return None
    pushes = sample.push_stats.pushes / sample.push_stats.event_seconds
    unused, cost = sum(gate[0] for gate in gates), sum(BATCH_COST * pushes + gate[1] for gate in gates)
    better, worse = (cost, unused) if sample.state != "jit" else (unused, cost)
    if worse <= (1 + rules.margin) * better or (worse - better) * sample.horizon <= rules.least:
        return None
    return Proposal(SetPolicy(sample.query, "auto"), {"unused": unused, "gates": cost, "state_rows": sample.state_rows})


def _iter_gated(tree: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The joins that a gate would control, each with the driver that opens the gate."""
    for node in list_joins(tree):
        lazy, driver = (
            (node.left, node.right) if isinstance(node.right, Leaf) and isinstance(node.left, JoinPair)
            else (node.right, node.left)
        )  # fmt: skip
        if isinstance(lazy, JoinPair):
            yield lazy, driver


def _estimate_gate(lazy: Tree, driver: Tree, graph: JoinGraph, stats: Statistics) -> tuple[float, float]:
    """Rows per second without a partner, if partners are spread evenly; and the cost of a gate beside its batches."""
    below, above = frozenset(list_leaves(lazy)), frozenset(list_leaves(driver))
    partners = estimate_state_rows(below | above, graph, stats) / max(estimate_state_rows(below, graph, stats), 1e-9)
    unused = exp(-partners) * estimate_output_rate(below, graph, stats)
    return unused, TEST_COST * sum(stats.rates[alias] for alias in below) + REQUEST_COST * estimate_output_rate(
        above, graph, stats
    )


# ── slices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def propose_slices(seen: Observation, history: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """CPU-Opt, if it saves more comparisons within a window than it keeps additional tuples. Mem-Opt, if it needs
    few more comparisons and keeps far fewer tuples."""
    found = seen.sample.slices
    if found is None:
        return None
    cut, merged = (
        choose_mem_opt_chain(found.windows),
        choose_cpu_opt_chain(found.windows, found.rates, SLICE_OVERHEAD, "lookup"),
    )
    now, fewest, least = (
        compute_slice_cost(found.windows, found.rates, chain, SLICE_OVERHEAD, "lookup")
        for chain in (found.chain, cut, merged)
    )
    saved, more = (now.cpu - least.cpu) * seen.sample.horizon, least.memory - now.memory
    numbers = {"now": now.cpu, "cpu_opt": least.cpu, "mem_opt": fewest.cpu, "spared": saved, "tuples": now.memory,
               "fewest_tuples": fewest.memory}  # fmt: skip
    if fewest.cpu <= (1 + rules.margin / 2) * now.cpu and now.memory > (1 + rules.margin) * fewest.memory:
        return Proposal(Reslice("mem-opt", seen.sample.query), numbers)
    if now.cpu > (1 + rules.margin) * least.cpu and saved > more + rules.least:
        return Proposal(Reslice("cpu-opt", seen.sample.query), numbers)
    return None


# ── budget ───────────────────────────────────────────────────────────────────────────────────────────────────────


def propose_budget(seen: Observation, history: DecisionHistory, rules: Rules) -> Proposal | None:
    """The time available for a push, if pushes take longer; lifted when little of budget and time is used.

    Shedding is the last resort: there is no new budget while a better plan is proposed, or just after one was taken.
    """
    sample = seen.sample
    waits = history.proposal_counts.get((sample.join, "migrate"), 0) > 0 or (
        sample.time - history.last_decided.get("migrate", -inf) < rules.cool_down * sample.horizon
    )
    room = sample.push_stats.available_seconds(rules.speed)
    busy = sample.push_stats.seconds / room
    limit = 1000 * room / sample.push_stats.pushes
    numbers: dict[str, float] = {"busy": busy, "milliseconds": limit}
    if history.budget_limit is None or not sample.has_own_budget:
        if not sample.sheddable or busy <= rules.full or waits:
            return None
        urgent = busy > _URGENT_FACTOR * rules.full
        return Proposal(_limit_time(sample.query, limit), numbers, urgent)
    if sample.demand_ratio is None:
        return None
    numbers["demanded"] = sample.demand_ratio
    if sample.demand_ratio < rules.idle and busy < rules.idle * rules.full:
        return Proposal(ShedLoad(sample.query, None), numbers)
    if not 1 / (1 + rules.margin) < limit / history.budget_limit < 1 + rules.margin:
        return Proposal(_limit_time(sample.query, limit), numbers)
    return None


def _limit_time(query: str, milliseconds: float) -> ShedLoad:
    return ShedLoad(query, f"{max(1, round(milliseconds))} ms")


_PROPOSERS: dict[Action, Callable[[Observation, DecisionHistory, Rules], Proposal | None]] = {
    "migrate": propose_join_order,
    "policy": propose_state_policy,
    "reslice": propose_slices,
    "budget": propose_budget,
}


def as_rules(adapt: Any) -> Rules | None:
    """The rules of an argument `adapt`; None if it is False."""
    if isinstance(adapt, bool):
        return Rules() if adapt else None
    if isinstance(adapt, Rules):
        return adapt
    raise QueryError("BAD_RULES", f"adapt is True, False or Rules(...), not {adapt!r}")
