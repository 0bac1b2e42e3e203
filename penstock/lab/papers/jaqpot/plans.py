"""Experiments without streams: allocation over random plans with the parameters of the JAQPOT paper's Table 3.

States have given sizes, as in the paper. The throughput of a table of allowances follows from the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from time import process_time

from scipy.optimize import linprog

from penstock.adapt import (
    HEURISTICS,
    POLICIES,
    Allocation,
    RefreshRates,
    allocate,
    compute_refresh_rates,
    find_greedy_cover,
    limit_to_supply,
)
from penstock.lab.papers.jaqpot import figures
from penstock.lab.papers.jaqpot.streams import PLANS
from penstock.lab.report import Check, Report, ReportRow, Section, check_at_least, check_at_most, check_equals
from penstock.plan import (
    JoinPair,
    Leaf,
    PlanLoad,
    Tree,
    build_left_deep,
    list_directions,
    list_halfway_joins,
    list_joins,
    list_leaves,
    parse_tree,
    require_tree,
)

PAPER_HEURISTICS = ("equal-hj", "global-hjpr", "ebest-hjp", "sbest-hjp")
"""The paper's four heuristics."""
MARGINS = {"linear": 2.5, "bushy": 2.0, "sensor": 2.5}
"""The throughput of JAQPOT over that of the best heuristic in the paper."""
SIZES, RATES, SELECTIVITIES = (200.0, 5000.0), (300.0, 1200.0), (0.01, 0.1)
TOLERANCE = 1 + 1e-6


# ── random plans ─────────────────────────────────────────────────────────────────────────────────────────────────────


def build_tree(shape: str) -> Tree:
    return require_tree(parse_tree(PLANS[shape], "ABCDE" if shape == "sensor" else "ABCD"))


def generate_tree(names: Sequence[str], rng: random.Random) -> Tree:
    if len(names) == 1:
        return Leaf(names[0])
    cut = rng.randint(1, len(names) - 1)
    return JoinPair(generate_tree(names[:cut], rng), generate_tree(names[cut:], rng))


def generate_load(
    tree: Tree,
    rng: random.Random,
    sizes: tuple[float, float] = SIZES,
    rates: tuple[float, float] = RATES,
    productivity: tuple[float, float] | None = None,
) -> PlanLoad:
    """A random load. The matches of a probe follow from random selectivities unless `productivity` is given."""
    states = {node: rng.uniform(*sizes) for node in list_halfway_joins(tree)}
    found: dict[Tree, float] = {}
    for join in list_joins(tree):
        selectivity = rng.uniform(*SELECTIVITIES)
        for side, other in list_directions(join):
            found[side] = selectivity * states[other] if productivity is None else rng.uniform(*productivity)
    return PlanLoad(tree, {alias: rng.uniform(*rates) for alias in list_leaves(tree)}, found, states)


def compute_freshness(load: PlanLoad, times: float) -> dict[str, float]:
    """A freshness of `times` windows for each stream."""
    return {alias: times * load.states[Leaf(alias)] / rate for alias, rate in load.rates.items()}


@dataclass(frozen=True)
class AllocationProblem:
    """A load, the refresh rates it requires, and a budget."""

    load: PlanLoad
    refreshes: RefreshRates
    mu: float

    def is_fresh(self, found: Allocation) -> bool:
        """Whether the joins produce enough rows for every state."""
        output = self.load.compute_output(found.allowances)
        return all(output[node] >= refresh.rate / TOLERANCE for node, refresh in self.refreshes.items())


def generate_problem(seed: int) -> AllocationProblem:
    """Two to eight streams, a plan of any shape, 1.5, 3 or 5 windows of freshness, any share of saturation."""
    rng = random.Random(seed)
    load = generate_load(generate_tree([f"S{number}" for number in range(rng.randint(2, 8))], rng), rng)
    times = rng.choice((1.5, 3, 5))
    return AllocationProblem(
        load, compute_refresh_rates(load, compute_freshness(load, times)), rng.uniform(0.01, 1) * load.saturation
    )


# ── every policy on a thousand plans ─────────────────────────────────────────────────────────────────────────────────


def report_policies(report: Report, plans: int) -> None:
    """Check that lp >= jaqpot >= every heuristic, and compare the greedy cover with the best one.

    With freshness, only heuristics that keep every state fresh count: results from stale states are not valid.
    """
    below_jaqpot = below_heuristic = without_freshness = unfresh = 0
    covers = []
    for seed in range(plans):
        given = generate_problem(seed)
        exact, greedy = (allocate(given.load, given.mu, policy, given.refreshes) for policy in ("lp", "jaqpot"))
        rivals = [allocate(given.load, given.mu, policy) for policy in HEURISTICS]
        free = allocate(given.load, given.mu, "jaqpot").throughput
        without_freshness += any(rival.throughput > free * TOLERANCE for rival in rivals)
        covers += [compute_cover_ratio(given)] if given.refreshes else []
        if greedy.feasible:
            unfresh += not (given.is_fresh(exact) and given.is_fresh(greedy))
            below_jaqpot += exact.throughput * TOLERANCE < greedy.throughput
            below_heuristic += any(r.throughput > greedy.throughput * TOLERANCE and given.is_fresh(r) for r in rivals)
    report.checks += [
        check_equals("lp_below_jaqpot", below_jaqpot, 0, f"of {plans} random plans"),
        check_equals("jaqpot_below_a_heuristic", below_heuristic, 0, f"of {plans} random plans"),
        check_equals("jaqpot_below_a_heuristic_without_freshness", without_freshness, 0, f"of {plans} random plans"),
        check_equals("feasible_but_not_fresh", unfresh, 0, f"of {plans} random plans"),
        check_at_most("cover_over_optimum_worst", max(covers), 1.19, "times the probes of the best cover"),
        check_at_most("cover_over_optimum_mean", mean(covers), 1.11, "times the probes of the best cover"),
    ]


def compute_cover_ratio(given: AllocationProblem) -> float:
    """The probes of the greedy set cover over those of the best cover, which a linear program over paths finds."""
    possible, _ = limit_to_supply(given.load, given.refreshes)
    cover = find_greedy_cover(given.load, possible)
    paths = given.load.paths
    rows = [[-p.rows_of(n) * cover.cost / p.cost / r.rate for p in paths] for n, r in possible.items()]
    bounds = [(0, given.load.rates[p.alias] * p.cost / cover.cost) for p in paths]
    best = linprog([1.0] * len(paths), A_ub=rows, b_ub=[-1.0] * len(rows), bounds=bounds)
    return float(1 / best.fun)


# ── Figure 7 in the paper's model ────────────────────────────────────────────────────────────────────────────────────


def report_resources(report: Report, levels: Sequence[int], plans: int) -> None:
    """Throughput by resources, both in % of saturation, in the model: states keep their sizes under any budget."""
    panels: list[tuple[str, Sequence[ReportRow]]] = []
    for shape in PLANS:
        loads = [generate_load(build_tree(shape), random.Random(seed)) for seed in range(plans)]
        rows: list[ReportRow] = []
        for level in levels:
            found = [_compute_throughputs(load, level / 100) for load in loads]
            row: ReportRow = {
                "resources": level,
                **{name: 100 * mean(each[name] for each in found) for name in found[0]},
            }
            row["margin"] = mean(each["jaqpot"] / max(each[policy] for policy in PAPER_HEURISTICS) for each in found)
            rows.append(row)
        report.sections.append(Section(f"model_{shape}", f"Figure 7 in the paper's model, {shape}", rows))
        margin, unit = mean(row["margin"] for row in rows), "times, jaqpot over the best of the paper's four"
        report.checks.append(check_at_least(f"model_margin_{shape}", margin, MARGINS[shape], unit))
        panels.append((shape, rows))
    labels = ("% of saturation resources", "% of saturation throughput")
    title = "Figure 7 in the paper's model"
    report.figures["jaqpot-figure-7-model.png"] = figures.draw_curves(panels, "resources", labels, title)


def _compute_throughputs(load: PlanLoad, part: float) -> dict[str, float]:
    refreshes = compute_refresh_rates(load, compute_freshness(load, 1.5))
    full = load.compute_output(load.full_allowances)[load.tree]
    mu = part * load.saturation
    return {
        policy: allocate(load, mu, policy, refreshes).throughput / full
        for policy in ("lp", "jaqpot", *PAPER_HEURISTICS)
    }


# ── Figure 9d ────────────────────────────────────────────────────────────────────────────────────────────────────────


def report_freshness(report: Report, times: Sequence[float], plans: int) -> None:
    """The share of μ that freshness costs, and the share of plans for which μ is not enough.

    The paper counts linear and bushy plans with random parameters at any share of saturation, and its sensor query,
    which is always feasible. It does not define the join of that query, so the table shows plans of its shape, but the
    check does not count them.
    """
    rows: list[ReportRow] = []
    infeasible: list[bool] = []
    wrong = 0
    for each in times:
        row: ReportRow = {"freshness": f"{each:g} x"}
        for shape in PLANS:
            given = [_generate_shaped_problem(shape, each, seed) for seed in range(plans)]
            found = [allocate(one.load, one.mu, "jaqpot", one.refreshes) for one in given]
            exact = [allocate(one.load, one.mu, "lp", one.refreshes) for one in given]
            row[shape] = mean(allocation.freshness_cost / allocation.mu for allocation in found)
            row[f"{shape} infeasible"] = mean(not allocation.feasible for allocation in found)
            row[f"{shape} infeasible, lp"] = mean(not allocation.feasible for allocation in exact)
            infeasible += [not allocation.feasible for allocation in found if shape != "sensor"]
            for one, allocation in zip(given, found, strict=True):
                if allocation.shortage is not None and allocation.shortage.required_mu is not None:
                    enough = allocate(one.load, 1.001 * allocation.shortage.required_mu, "jaqpot", one.refreshes)
                    wrong += not enough.feasible
        rows.append(row)
    report.sections.append(Section("freshness", "Figure 9d: share of μ for freshness, and infeasible plans", rows))
    shown = [{name: row[name] for name in ("freshness", *PLANS)} for row in rows]
    report.figures["jaqpot-figure-9d.png"] = figures.draw_bars(
        [("random plans", shown)], "freshness", "share of μ", "Figure 9d: the cost of freshness"
    )
    share = 100 * mean(infeasible)
    report.checks += [
        Check("infeasible_plans", round(share, 2), "% of random plans (paper: about 8)", "> 0", share > 0),
        check_equals("infeasible_plans_feasible_with_what_they_need", wrong, 0, "that are not"),
    ]


def _generate_shaped_problem(shape: str, times: float, seed: int) -> AllocationProblem:
    rng = random.Random(seed)
    load = generate_load(build_tree(shape), rng)
    return AllocationProblem(
        load, compute_refresh_rates(load, compute_freshness(load, times)), rng.uniform(0, 1) * load.saturation
    )


# ── cost of the allocation ───────────────────────────────────────────────────────────────────────────────────────────


def report_overhead(report: Report) -> None:
    """CPU milliseconds of the allocation for ten streams: the slowest plan, each in its best round."""
    loads = [
        generate_load(
            build_left_deep([f"S{number}" for number in range(10)]), random.Random(seed), productivity=(0.5, 3)
        )
        for seed in range(5)
    ]
    rows = []
    for policy in POLICIES:
        slowest = max(min(_time_allocation(load, policy)) for load in loads)
        rows.append({"policy": policy, "milliseconds": slowest})
        if policy in ("jaqpot", "lp", "steady"):
            report.checks.append(check_at_most(f"allocation_{policy}_10_streams", slowest, 5, "ms"))
    report.sections.append(Section("overhead", "CPU milliseconds to allocate for ten streams", rows))


def _time_allocation(load: PlanLoad, policy: str) -> Iterator[float]:
    refreshes = compute_refresh_rates(load, compute_freshness(load, 3))
    for _ in range(7):
        again = PlanLoad(load.tree, load.rates, load.productivity, load.states)  # a new load: nothing is cached
        begin = process_time()
        allocate(again, 0.3 * again.saturation, policy, refreshes)
        yield 1000 * (process_time() - begin)
