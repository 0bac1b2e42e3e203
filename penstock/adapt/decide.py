"""What to change in a running query: pure functions from an observation to a proposal, and from proposals to decisions.

Join order: the cheapest tree by the cost model with measured statistics. State policy: `auto`, where a fixed one builds
rows that hardly anybody can use, or tests rows that nearly all are used. Slices: those of a shared join are merged
(CPU-Opt) where that spares more comparisons than it keeps tuples, or cut at every window again (Mem-Opt). Budget: the
time a push may take, while pushes take longer than the time they bring and the query says by FRESHNESS what it can do
without.

A proposal becomes a decision if it is made `confirm` times running (or is urgent: an overload by far), the last
decision on its matter is a window ago (`cool_down`), and the query has not had too many lately (`per_minute`). What is
proposed must gain enough, relatively (`margin`) and absolutely (`least`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import exp, inf, isfinite
from typing import Any, Literal, get_args

from penstock.adapt.monitor import Observation
from penstock.errors import QueryError
from penstock.join.demand.gate_cost import BATCH_COST, REQUEST_COST, TEST_COST
from penstock.join.sharing.slices import SLICE_OVERHEAD
from penstock.plan.cost import Statistics, compute_tree_cost, estimate_output_rate, estimate_state_rows
from penstock.plan.join_graph import JoinGraph
from penstock.plan.join_order import choose_tree
from penstock.plan.slice_cost import choose_cpu_opt_chain, choose_mem_opt_chain, compute_slice_cost
from penstock.plan.tree import Eddy, JoinPair, Leaf, Tree, list_leaves, rename_leaves

Action = Literal["migrate", "policy", "reslice", "budget"]
ACTIONS: tuple[Action, ...] = get_args(Action)

_MINUTE = 60.0
_URGENT_FACTOR = 2.0
"""From how many times as much overload on a budget is not put off to the next look."""


@dataclass(frozen=True)
class Rules:
    """When a controller acts. Times are seconds of event time unless they are said to be of the clock."""

    margin: float = 0.25
    """By how much the present cost must exceed the proposed one, relatively."""
    least: float = 20_000.0
    """How many rows a change must spare within a window, beyond those it must make up for."""
    confirm: int = 2
    """How many times running a change must be proposed."""
    cool_down: float = 1.0
    """For how many windows nothing is decided again on the same matter."""
    per_minute: int = 6
    """How many decisions a query may have in a minute."""
    full: float = 1.0
    """From how many seconds of the clock per second of event time on an engine is overloaded."""
    idle: float = 0.6
    """Below which part of a budget, and of the time, the budget is lifted."""
    speed: float = 1.0
    """How fast event time passes: a history replayed at 60 brings a minute in a second."""
    effort: float = 0.05
    """The part of the clock that looking at joins and the analysis may take."""
    wait: bool = False
    """Whether a push waits for the analysis of what came before it, so that a run can be repeated exactly."""

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
class AdaptCommand:
    """What to do: `migrate` to a plan, go on with a state `policy`, `reslice` a join, keep to a `budget` per push.

    Without a value a budget is lifted.
    """

    query: str
    do: Action
    value: str | None

    def to_json(self) -> str:
        """As JSON, for whoever carries it to where the query runs."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> AdaptCommand:
        try:
            command = cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise QueryError("BAD_COMMAND", f"this is not a command: {error}") from error
        if command.do not in get_args(Action):
            raise QueryError("BAD_COMMAND", f"a command is one of {', '.join(get_args(Action))}, not {command.do!r}")
        return command


@dataclass(frozen=True)
class Decision:
    """A command with the numbers that led to it; `push` is after how many pushes it was carried out."""

    command: AdaptCommand | None
    """None where the analysis itself failed."""
    time: float
    """Seconds of event time of what was observed."""
    numbers: Mapping[str, float]
    push: int | None = None
    error: str | None = None
    """Why it could not be made or carried out."""


@dataclass(frozen=True)
class DecisionHistory:
    """What a controller remembers of one query."""

    last_decided: Mapping[Action, float] = field(default_factory=dict)
    """The event time of the last decision on each matter."""
    recent_times: tuple[float, ...] = ()
    proposal_counts: Mapping[tuple[str, Action], int] = field(default_factory=dict)
    """By join and matter: how many times running a change was proposed, be it to one tree or to another."""
    budget_limit: float | None = None
    """The budget that was decided on, in milliseconds per push."""


@dataclass(frozen=True)
class Proposal:
    """A change that would gain enough, with the numbers that say so."""

    value: str | None
    numbers: Mapping[str, float]
    urgent: bool = False
    """Whether it is not to wait for being proposed again."""


def decide(
    seen: Observation, memory: DecisionHistory, rules: Rules, actions: Collection[Action] = get_args(Action)
) -> tuple[DecisionHistory, list[Decision]]:
    """The decisions that an observation leads to on some matters, and what to remember of it."""
    sample = seen.sample
    decisions = []
    for do, propose in _PROPOSERS.items():
        if do not in actions:
            continue
        matter = (sample.join, do)
        found = propose(seen, memory, rules)
        times = 0 if found is None else memory.proposal_counts.get(matter, 0) + 1
        memory = replace(memory, proposal_counts={**memory.proposal_counts, matter: times})
        confirmed = found is not None and (times >= rules.confirm or found.urgent)
        if found is not None and confirmed and _can_act(seen, do, memory, rules):
            decisions.append(Decision(AdaptCommand(sample.query, do, found.value), sample.time, found.numbers))
            memory = _record_decision(memory, matter, found, sample.time)
    return memory, decisions


def _can_act(seen: Observation, do: Action, memory: DecisionHistory, rules: Rules) -> bool:
    now, pause = seen.sample.time, rules.cool_down * seen.sample.horizon
    cooled = do not in memory.last_decided or now - memory.last_decided[do] >= pause
    return cooled and sum(now - time < _MINUTE for time in memory.recent_times) < rules.per_minute


def _record_decision(
    memory: DecisionHistory, matter: tuple[str, Action], found: Proposal, now: float
) -> DecisionHistory:
    _, do = matter
    limit = None if found.value is None else found.numbers.get("milliseconds")
    return DecisionHistory(
        {**memory.last_decided, do: now},
        (*(time for time in memory.recent_times if now - time < _MINUTE), now),
        {**memory.proposal_counts, matter: 0},
        limit if do == "budget" else memory.budget_limit,
    )


# ── join order ───────────────────────────────────────────────────────────────────────────────────────────────────


def propose_join_order(seen: Observation, memory: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """The cheapest tree, if it spares more within a window than its new states hold."""
    sample, stats = seen.sample, seen.statistics
    if isinstance(sample.tree, Eddy) or len(sample.graph.aliases) < 3:
        return None
    best = choose_tree(sample.graph, stats)
    now, then = (compute_tree_cost(tree, sample.graph, stats) for tree in (sample.tree, best))
    there = {frozenset(list_leaves(node)) for node in _iter_joins(sample.tree)}
    lacking = {frozenset(list_leaves(node)) for node in _iter_joins(best)} - there
    made_up = sum(estimate_state_rows(names, sample.graph, stats) for names in lacking)
    spared = (now - then) * sample.horizon
    if now <= (1 + rules.margin) * then or spared <= made_up + rules.least:
        return None
    shape = str(rename_leaves(best, sample.names))
    shapes = [shape if place == sample.join_index else other for place, other in enumerate(sample.shapes)]
    numbers = {"cost": now, "proposed": then, "spared": spared, "made_up": made_up, "state_rows": sample.state_rows}
    return Proposal("; ".join(shapes), numbers)


def _iter_joins(tree: Tree) -> Iterator[JoinPair]:
    """The joins of a tree, children first."""
    if isinstance(tree, JoinPair):
        yield from _iter_joins(tree.left)
        yield from _iter_joins(tree.right)
        yield tree


# ── state policy ─────────────────────────────────────────────────────────────────────────────────────────────────


def propose_state_policy(seen: Observation, memory: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """`auto`, where gates would spare more than they cost and there are none; or cost more than they spare.

    From then on the join decides itself, gate by gate. `none` is left alone: it is asked for to save memory.
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
    return Proposal("auto", {"unused": unused, "gates": cost, "state_rows": sample.state_rows})


def _iter_gated(tree: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The joins over which a gate would hang, each with the driver that opens it."""
    for node in _iter_joins(tree):
        lazy, driver = (
            (node.left, node.right) if isinstance(node.right, Leaf) and isinstance(node.left, JoinPair)
            else (node.right, node.left)
        )  # fmt: skip
        if isinstance(lazy, JoinPair):
            yield lazy, driver


def _estimate_gate(lazy: Tree, driver: Tree, graph: JoinGraph, stats: Statistics) -> tuple[float, float]:
    """Rows per second nobody can use, as if partners were spread evenly; and what a gate costs beside its batches."""
    below, above = frozenset(list_leaves(lazy)), frozenset(list_leaves(driver))
    partners = estimate_state_rows(below | above, graph, stats) / max(estimate_state_rows(below, graph, stats), 1e-9)
    unused = exp(-partners) * estimate_output_rate(below, graph, stats)
    return unused, TEST_COST * sum(stats.rates[alias] for alias in below) + REQUEST_COST * estimate_output_rate(
        above, graph, stats
    )


# ── slices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def propose_slices(seen: Observation, memory: DecisionHistory, rules: Rules) -> Proposal | None:  # noqa: ARG001
    """CPU-Opt, if it spares more comparisons within a window than it holds tuples more. Mem-Opt, if it compares hardly
    more and holds far fewer."""
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
    spared, more = (now.cpu - least.cpu) * seen.sample.horizon, least.memory - now.memory
    numbers = {"now": now.cpu, "cpu_opt": least.cpu, "mem_opt": fewest.cpu, "spared": spared, "tuples": now.memory,
               "fewest_tuples": fewest.memory}  # fmt: skip
    if fewest.cpu <= (1 + rules.margin / 2) * now.cpu and now.memory > (1 + rules.margin) * fewest.memory:
        return Proposal("mem-opt", numbers)
    if now.cpu > (1 + rules.margin) * least.cpu and spared > more + rules.least:
        return Proposal("cpu-opt", numbers)
    return None


# ── budget ───────────────────────────────────────────────────────────────────────────────────────────────────────


def propose_budget(seen: Observation, memory: DecisionHistory, rules: Rules) -> Proposal | None:
    """The time there is for a push, if pushes take longer; lifted when budget and time are far from used up.

    Shedding is the last resort: while a better plan is proposed, or one has just been taken, there is no new budget.
    """
    sample = seen.sample
    waits = memory.proposal_counts.get((sample.join, "migrate"), 0) > 0 or (
        sample.time - memory.last_decided.get("migrate", -inf) < rules.cool_down * sample.horizon
    )
    room = sample.push_stats.available_seconds(rules.speed)
    busy = sample.push_stats.seconds / room
    limit = 1000 * room / sample.push_stats.pushes
    numbers: dict[str, float] = {"busy": busy, "milliseconds": limit}
    if memory.budget_limit is None or not sample.has_own_budget:
        wanted = sample.sheddable and busy > rules.full and not waits
        return (
            Proposal(_format_milliseconds(limit), numbers, urgent=busy > _URGENT_FACTOR * rules.full)
            if wanted
            else None
        )
    if sample.demand_ratio is None:
        return None
    numbers["demanded"] = sample.demand_ratio
    if sample.demand_ratio < rules.idle and busy < rules.idle * rules.full:
        return Proposal(None, numbers)
    if not 1 / (1 + rules.margin) < limit / memory.budget_limit < 1 + rules.margin:
        return Proposal(_format_milliseconds(limit), numbers)
    return None


def _format_milliseconds(limit: float) -> str:
    return f"{max(1, round(limit))} ms"


_PROPOSERS: dict[Action, Callable[[Observation, DecisionHistory, Rules], Proposal | None]] = {
    "migrate": propose_join_order,
    "policy": propose_state_policy,
    "reslice": propose_slices,
    "budget": propose_budget,
}


def as_rules(adapt: Any) -> Rules | None:
    """What `Engine(adapt=...)` was given."""
    if isinstance(adapt, bool):
        return Rules() if adapt else None
    if isinstance(adapt, Rules):
        return adapt
    raise QueryError("BAD_RULES", f"adapt is True, False or Rules(...), not {adapt!r}")
