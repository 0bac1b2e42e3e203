"""The numbers of "JAQPOT": productivities, knapsacks, heuristics and the count of susceptible states."""

from __future__ import annotations

import random

import pytest

from penstock.adapt import allocate
from penstock.adapt.knapsack import KnapsackItem, solve_greedy, solve_optimal
from penstock.plan import JoinPair, Leaf, PlanLoad, Tree, build_left_deep, parse_tree
from penstock.plan.input_paths import list_susceptible_joins
from penstock.plan.tree import build_right_deep

A, B, C = Leaf("A"), Leaf("B"), Leaf("C")
AB = JoinPair(A, B)
ABC = JoinPair(AB, C)


def test_figure_2a_single_join_better_direction() -> None:
    """Figure 2a: σ_B|S_B| = 2.5, σ_A|S_A| = 5."""
    load = PlanLoad(AB, {"A": 500, "B": 700}, {A: 0.005 * 500, B: 0.001 * 5000})
    found = allocate(load, 300, "best-hjp")
    assert found.allowances == {A: 0, B: 300}
    assert found.throughput == 1500


def test_figure_2b_path_probes_producer_and_consumer() -> None:
    """Figure 2b: ρ(b ⋉ S_A) = 5, so of 600 probes on the path of B, 100 are by b and 500 by ab."""
    load = PlanLoad(ABC, dict.fromkeys("ABC", 1000), {A: 2.5, B: 5, AB: 1, C: 1})
    path = load.paths[1]
    assert path.cost == 6
    probes = path.compute_probes(600 / path.cost)
    assert probes == {B: 100, AB: 500}
    assert load.compute_output({A: 0, B: 100, AB: 500, C: 0})[AB] == 500


FIGURE_4 = PlanLoad(ABC, dict.fromkeys("ABC", 100), {A: 4 / 11, B: 5 / 11, AB: 1, C: 0.1})


def test_table_2_path_productivities() -> None:
    productivities = [path.productivity for path in FIGURE_4.paths]
    assert productivities == pytest.approx([0.2667, 0.3125, 0.1], abs=1e-4)


def test_table_2_in_whole_cycles() -> None:
    portions = [KnapsackItem(15, 4), KnapsackItem(16, 5), KnapsackItem(10, 1)]
    greedy, best = solve_greedy(portions, 30), solve_optimal(portions, 30)
    assert greedy == [0, 1, 1]
    assert best == [2, 0, 0]
    assert sum(count * portion.results for count, portion in zip(greedy, portions, strict=True)) == 6
    assert sum(count * portion.results for count, portion in zip(best, portions, strict=True)) == 8


@pytest.mark.parametrize("policy", ["grepp", "jaqpot", "lp"])
def test_table_2_in_fractions(policy: str) -> None:
    found = allocate(FIGURE_4, 30, policy)
    assert found.allowances == pytest.approx({A: 0, B: 20.625, AB: 9.375, C: 0})
    assert found.throughput == pytest.approx(9.375)


FIGURE_10 = PlanLoad(
    ABC, {"A": 500, "B": 700, "C": 500}, {A: 0.5, B: 5, AB: 5, C: 1}, {A: 5000, B: 500, C: 1000, AB: 200}
)


@pytest.mark.parametrize(
    ("policy", "allowances", "first_join", "root"),
    [
        ("equal-hj", (75, 75, 75, 75), 412.5, 450),
        ("global-hjpr", (13.04, 130.43, 130.43, 26.09), 658.7, 678.3),  # the paper: 656.5 and 677, of rounded terms
        ("ebest-hjp", (0, 150, 150, 0), 750, 750),
        ("sbest-hjp", (0, 50, 250, 0), 250, 1250),  # the paper prints 150 and 750, which ρ_b = 5 contradicts
    ],
)
def test_table_4(policy: str, allowances: tuple[float, ...], first_join: float, root: float) -> None:
    found = allocate(FIGURE_10, 300, policy)
    assert found.allowances == pytest.approx(dict(zip((A, B, AB, C), allowances, strict=True)), abs=0.01)
    assert FIGURE_10.compute_output(found.allowances)[AB] == pytest.approx(first_join, abs=0.1)
    assert found.throughput == pytest.approx(root, abs=0.1)


def test_path_productivity_beats_table_4() -> None:
    """All probes go to the path of B: 50 b give 250 ab and 1250 results; SBestHJP reaches this by chance."""
    assert allocate(FIGURE_10, 300, "grepp").throughput == pytest.approx(1250)


@pytest.mark.parametrize("streams", range(2, 12))
def test_lemma_2(streams: int) -> None:
    names = [f"S{number}" for number in range(streams)]
    rng = random.Random(streams)
    for tree in (build_left_deep(names), build_right_deep(names), *(some_tree(names, rng) for _ in range(20))):
        assert len(list_susceptible_joins(tree)) == streams - 2


def test_figure_5_susceptible_states() -> None:
    linear = parse_tree("(((A B) C) D)", "ABCD")
    bushy = parse_tree("((A B) (C D))", "ABCD")
    assert [str(state) for state in list_susceptible_joins(linear)] == ["(A B)", "((A B) C)"]
    assert [str(state) for state in list_susceptible_joins(bushy)] == ["(A B)", "(C D)"]


def some_tree(names: list[str], rng: random.Random) -> Tree:
    if len(names) == 1:
        return Leaf(names[0])
    cut = rng.randint(1, len(names) - 1)
    return JoinPair(some_tree(names[:cut], rng), some_tree(names[cut:], rng))
