"""Allocation over random plans with the parameters of the JAQPOT paper's Table 3, and in edge cases."""

from __future__ import annotations

import pytest

from penstock.adapt import HEURISTICS, POLICIES, allocate, compute_refresh_rates
from penstock.adapt.freshness import RefreshRate, compute_renewal_rates
from penstock.lab.papers.jaqpot.plans import TOLERANCE, compute_cover_ratio, generate_problem
from penstock.plan import JoinPair, Leaf, PlanLoad, list_halfway_joins, parse_tree
from penstock.plan.input_paths import list_susceptible_joins

A, B, C, D = map(Leaf, "ABCD")
AB, CD = JoinPair(A, B), JoinPair(C, D)


PROBLEMS = [generate_problem(seed) for seed in range(1000)]


def test_policies_on_1000_random_plans() -> None:
    """lp is never worse than jaqpot, nor jaqpot than any heuristic, and both keep every state fresh.

    With freshness, only heuristics that keep every state fresh are compared. A jaqpot in which every refreshing row
    also probes the rest of its path is worse than BestHJP in 4 of the 1,000 plans.
    """
    infeasible = 0
    for given in PROBLEMS:
        exact = allocate(given.load, given.mu, "lp", given.refreshes)
        greedy = allocate(given.load, given.mu, "jaqpot", given.refreshes)
        free = allocate(given.load, given.mu, "jaqpot").throughput
        infeasible += not greedy.feasible
        assert exact.feasible or not greedy.feasible
        assert given.is_fresh(exact) or not exact.feasible
        assert given.is_fresh(greedy) or not greedy.feasible
        assert exact.throughput * TOLERANCE >= greedy.throughput or not greedy.feasible
        for policy in HEURISTICS:
            rival = allocate(given.load, given.mu, policy)
            assert free * TOLERANCE >= rival.throughput, policy
            if given.is_fresh(rival):
                assert exact.throughput * TOLERANCE >= rival.throughput or not exact.feasible, policy
                assert greedy.throughput * TOLERANCE >= rival.throughput or not greedy.feasible, policy
    assert 10 <= infeasible <= 80


def test_refresh_rows_probe_on_only_if_productive() -> None:
    """(C D) needs 10 rows per second, from 10 tuples of C. These give one result each; two tuples of B give 50."""
    load = PlanLoad(JoinPair(AB, CD), dict.fromkeys("ABCD", 1000.0), {A: 1, B: 5, C: 1, D: 1, AB: 5, CD: 1})
    found = allocate(load, 22, "jaqpot", {CD: RefreshRate(10, "C")})
    assert found.allowances == pytest.approx({A: 0, B: 2, C: 0, D: 10, AB: 10, CD: 0})
    assert found.throughput == pytest.approx(50)
    assert found.freshness_cost == pytest.approx(20)


def test_greedy_cover_within_19_percent_of_optimum() -> None:
    assert max(compute_cover_ratio(given) for given in PROBLEMS if given.refreshes) <= 1.19


@pytest.mark.parametrize("policy", POLICIES)
def test_allowances_within_budget(policy: str) -> None:
    for given in PROBLEMS[:200]:
        table = allocate(given.load, given.mu, policy, given.refreshes).allowances
        assert sum(table.values()) <= given.mu * TOLERANCE
        assert min(table.values()) >= 0
        assert table.keys() == list_halfway_joins(given.load.tree).keys()


@pytest.mark.parametrize("policy", ["lp", "jaqpot", "grepp", "discrete-greedy", "discrete-dp", "best-hjp"])
def test_leaf_allowances_within_arrival_rate(policy: str) -> None:
    for given in PROBLEMS[:200]:
        table = allocate(given.load, 5 * given.load.saturation, policy, given.refreshes).allowances
        for alias, rate in given.load.rates.items():
            assert table[Leaf(alias)] <= rate * TOLERANCE


@pytest.mark.parametrize("policy", ["lp", "jaqpot", "grepp", "best-hjp"])
def test_sufficient_budget_allows_all_probes(policy: str) -> None:
    for given in PROBLEMS[:100]:
        found = allocate(given.load, given.load.saturation * TOLERANCE, policy)
        assert found.throughput == pytest.approx(sum(p.results * given.load.rates[p.alias] for p in given.load.paths))
        assert found.allowances == pytest.approx(given.load.full_allowances)


def test_discrete_dp_between_greedy_and_continuous() -> None:
    """Throughput: discrete-greedy <= discrete-dp <= grepp (continuous optimum)."""
    for given in PROBLEMS[:100]:
        low, middle, high = (
            allocate(given.load, given.mu, policy).throughput for policy in ("discrete-greedy", "discrete-dp", "grepp")
        )
        assert low <= middle * TOLERANCE <= high * TOLERANCE**2


BUSHY = PlanLoad(
    JoinPair(AB, CD),
    {"A": 10, "B": 10, "C": 10, "D": 10},
    {Leaf("A"): 2, Leaf("B"): 2, Leaf("C"): 2, Leaf("D"): 2, AB: 1, CD: 1},
    {Leaf("A"): 100, Leaf("B"): 100, Leaf("C"): 100, Leaf("D"): 100, AB: 60, CD: 60},
)


@pytest.mark.parametrize(("policy", "needed"), [("lp", 6), ("jaqpot", 18), ("steady", 18)])
def test_shortage_names_stream_and_needed_budget(policy: str, needed: float) -> None:
    """The freshness of A is 15 seconds and its window 10, so (A B) has 5 seconds: 60 / 5 = 12 rows per second.

    That is 6 tuples. Each costs 3 probes on the whole path, or 1 probe if it only refreshes.
    """
    refreshes = compute_refresh_rates(BUSHY, {"A": 15, "B": 20})
    assert refreshes[AB].rate == pytest.approx(12)
    found = allocate(BUSHY, 5, policy, refreshes)
    assert found.shortage is not None
    assert (found.shortage.stream, found.shortage.state) == ("A", AB)
    assert found.shortage.required_mu == pytest.approx(needed)
    assert f"{needed} probes" in str(found.shortage)
    assert sum(found.allowances.values()) == pytest.approx(5)
    assert allocate(BUSHY, needed * 1.001, policy, refreshes).feasible


@pytest.mark.parametrize("policy", ["lp", "jaqpot", "steady"])
def test_unreachable_freshness_shortage(policy: str) -> None:
    found = allocate(BUSHY, 1000, policy, compute_refresh_rates(BUSHY, {"C": 11}))
    assert found.shortage is not None
    assert (found.shortage.stream, found.shortage.state, found.shortage.required_mu) == ("C", CD, None)
    assert allocate(BUSHY, 1000, policy, compute_refresh_rates(BUSHY, {"C": 10})).shortage is not None


def test_renewal_rates_once_per_freshness() -> None:
    """If rows expire with their component tuples, a state is renewed once per freshness of each stream."""
    rates = compute_renewal_rates(BUSHY, {"A": 15, "B": 20, "D": 12})
    assert {node: (refresh.rate, refresh.stream) for node, refresh in rates.items()} == {AB: (4, "A"), CD: (5, "D")}


def test_refresh_rates_divide_slack_by_sqrt_of_states() -> None:
    """The slack of a path is divided among its states by the square roots of their sizes."""
    tree = parse_tree("(((A B) C) D)", "ABCD")
    low, high = list_susceptible_joins(tree)
    load = PlanLoad(tree, dict.fromkeys("ABCD", 1.0), dict.fromkeys(list_halfway_joins(tree), 1.0),
                {**{Leaf(alias): 10.0 for alias in "ABCD"}, low: 4.0, high: 100.0})  # fmt: skip
    rates = compute_refresh_rates(load, {"A": 16})
    assert (rates[low].rate, rates[high].rate) == pytest.approx((2 * 12 / 6, 10 * 12 / 6))
    assert 4 / rates[low].rate + 100 / rates[high].rate == pytest.approx(6)
