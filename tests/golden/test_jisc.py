"""The figures of the JISC paper: classification of states, Proposition 1."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.join import POLICIES, JoinTree
from penstock.lab.papers.jisc.proposition import (
    compute_formula,
    count_complete_after_swap,
    simulate_moments,
    sum_moments,
)
from penstock.lab.papers.jisc.rivals import ingest_ticks
from penstock.lab.papers.jisc.streams import RoundRobinStreams
from penstock.plan import JoinPair, Leaf, Tree, classify_states, list_states, parse_tree
from penstock.plan.migration import LeafSet, StateReuse


def tree(text: str) -> Tree:
    return parse_tree(text, sorted(set(text) - set("( )")))


def named(*texts: str) -> tuple[LeafSet, ...]:
    return tuple(frozenset(text) for text in texts)


FIG3_OLD = tree("(((R S) T) U)")


@pytest.mark.parametrize(
    ("new", "complete", "incomplete"),
    [
        pytest.param("(((U T) S) R)", ["UTSR"], ["UT", "UTS"], id="b"),
        pytest.param("(((S R) U) T)", ["SR", "SRUT"], ["SRU"], id="c"),
        pytest.param("(((S T) R) U)", ["STR", "STRU"], ["ST"], id="d"),
    ],
)
def test_figure_3(new: str, complete: list[str], incomplete: list[str]) -> None:
    assert classify_states(tree(new), list_states(FIG3_OLD)) == StateReuse(named(*complete), named(*incomplete))


def test_figure_4_incomplete_state_stays_incomplete() -> None:
    first = classify_states(tree("(((S T) R) U)"), list_states(FIG3_OLD))
    assert first.incomplete == named("ST")
    second = classify_states(tree("(((S T) U) R)"), first.complete)
    assert second.incomplete == named("ST", "STU")
    assert named("ST")[0] not in second


def test_set_difference() -> None:
    old, new = tree("(((A B) C) D)"), tree("(((A D) B) C)")
    assert classify_states(new, list_states(old)) == StateReuse(named("ADBC"), named("AD", "ADB"))


# ── the engine classifies by the same function ───────────────────────────────────────────────────────────────────────


def some_tree(names: list[str], rng: random.Random) -> Tree:
    if len(names) == 1:
        return Leaf(names[0])
    cut = rng.randint(1, len(names) - 1)
    return JoinPair(some_tree(names[:cut], rng), some_tree(names[cut:], rng))


def complete_states(running: JoinTree) -> set[LeafSet]:
    """The root keeps no state, so it is always complete."""
    return {frozenset(node.plan.aliases) for node in running.walk_joins() if node.complete or node is running.root}


@pytest.mark.parametrize("seed", range(40))
def test_engine_on_overlapping_migrations(seed: int) -> None:
    """The engine agrees with the reference on random trees and overlapping migrations."""
    rng = random.Random(seed)
    streams = RoundRobinStreams(joins=rng.randint(2, 6), window=12)
    names = list(streams.names)
    running = JoinTree(streams.plan_tree(some_tree(names, rng)), POLICIES["lazy"])
    overlaps = clock = 0
    for _ in range(8):
        for _ in range(rng.randint(0, 3)):
            ticks = streams.generate_ticks(clock, clock + rng.randint(1, 4))
            clock += ticks.times.size
            ingest_ticks(running, ticks)
            running.step()
            running.complete_some(rng.choice((0, 3)))
            running.end_batch(clock - 1)
        rng.shuffle(names)
        new = some_tree(names, rng)
        before = complete_states(running)
        overlaps += len(before) < len(names) - 1
        running.change_plan(streams.plan_tree(new))
        wanted = classify_states(new, before)
        assert complete_states(running) == set(wanted.complete)
        assert {frozenset(node.plan.aliases) for node in running.walk_joins()} == set(list_states(new))
    assert overlaps


# ── Proposition 1 ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20, 50])
def test_proposition_1_sum_over_pairs(n: int) -> None:
    assert compute_formula(n) == sum_moments(n)


@pytest.mark.parametrize("n", [5, 20])
def test_proposition_1_monte_carlo(n: int) -> None:
    mean, variance = (float(value) for value in compute_formula(n))
    draws = 200_000
    found = simulate_moments(n, draws, np.random.default_rng(n))
    assert abs(found.mean - mean) < 5 * (variance / draws) ** 0.5
    assert found.variance == pytest.approx(variance, rel=0.03)


def test_swap_makes_states_between_incomplete() -> None:
    assert all(count_complete_after_swap(6, i, j) == 6 - (j - i) for i in range(1, 7) for j in range(i + 1, 7))
