"""The cost model of sharing and the best chains, against the paper's equations and brute force."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from penstock.plan import (
    Rates,
    SharedWindows,
    choose_cpu_opt_chain,
    choose_mem_opt_chain,
    compute_pull_up_cost,
    compute_push_down_cost,
    compute_slice_cost,
)
from penstock.plan.slice_cost import SharingCost


def test_costs_of_two_queries_match_equations_1_to_3() -> None:
    """Eq. 1 to 3 with λ = 10, W1 = 2, W2 = 6, M_t = 3, S_σ = 0.25, S_⋈ = 0.5, every term by hand."""
    rates, windows = Rates(10, 10, 0.5, tuple_bytes=3), SharedWindows((2, 6), (1, 0.25))
    assert compute_pull_up_cost(windows, rates) == SharingCost(2 * 10 * 6 * 3, 1200 + 20 + 600 + 600)
    assert compute_push_down_cost(windows, rates) == SharingCost(
        (1.75 * 10 * 2 + 1.25 * 10 * 6) * 3, 10 + 300 + 300 + 30 + 150 + 200
    )
    chain = compute_slice_cost(windows, rates, choose_mem_opt_chain(windows))
    assert chain == SharingCost((2 * 10 * 2 + 1.25 * 10 * 4) * 3, 400 + 10 + 200 + 40 + 20 + 200)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("sigma", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("joins", [0.025, 0.1, 0.4])
def test_savings_match_equation_4(rho: float, sigma: float, joins: float) -> None:
    """The paper omits terms that are linear in λ, so the rate here is very high."""
    rates, windows = Rates(1e13, 1e13, joins), SharedWindows((rho, 1.0), (1.0, sigma))
    chain = compute_slice_cost(windows, rates, choose_mem_opt_chain(windows))
    over_up, over_down = (
        chain.compute_savings(compute_pull_up_cost(windows, rates)),
        chain.compute_savings(compute_push_down_cost(windows, rates)),
    )
    assert over_up.memory == pytest.approx((1 - rho) * (1 - sigma) / 2)
    assert over_down.memory == pytest.approx(rho / (1 + 2 * rho + (1 - rho) * sigma))
    assert over_up.cpu == pytest.approx(((1 - rho) * (1 - sigma) + (2 - rho) * joins) / (1 + 2 * joins))
    divisor = rho * (1 - sigma) + sigma + sigma * joins + rho * joins
    assert over_down.cpu == pytest.approx(sigma * joins / divisor)


def test_merge_cost_matches_section_5() -> None:
    """Slices 3 to 5 of six become one: two purges and overheads fewer, each result routed twice."""
    rates, windows = Rates(7, 5, 0.1), SharedWindows((1, 2, 4, 7, 8, 11))
    apart, merged = (
        compute_slice_cost(windows, rates, chain, overhead=3).cpu for chain in (windows.ends, (1, 2, 8, 11))
    )  # fmt: skip
    assert apart - merged == pytest.approx(12 * 2 - 2 * 7 * 5 * (8 - 2) * 0.1 * 2 + 3 * 2 * 12)


# ── chains ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(rng: random.Random) -> tuple[SharedWindows, Rates, float]:
    count = rng.randint(1, 8)
    ends = sorted(rng.sample(range(1, 40), count))
    wanted = sorted((rng.choice([1, 0.8, 0.5, 0.2]) for _ in range(count)), reverse=True)
    rates = Rates(rng.choice([1, 5, 30]), rng.choice([1, 5, 30]), rng.choice([0, 0.01, 0.1, 0.5]))
    return SharedWindows(tuple(ends), tuple(wanted)), rates, rng.choice([0, 0.5, 4, 60])


@pytest.mark.parametrize("router", ["comparisons", "lookup"])
def test_cpu_opt_is_cheapest_chain(router: str) -> None:
    rng = random.Random(5)
    for _ in range(150):
        windows, rates, overhead = drawn(rng)
        inner = windows.ends[:-1]
        chains = [
            (*cuts, windows.ends[-1]) for size in range(len(inner) + 1) for cuts in combinations(inner, size)
        ]  # fmt: skip
        costs = [compute_slice_cost(windows, rates, chain, overhead, router).cpu for chain in chains]
        found = compute_slice_cost(
            windows, rates, choose_cpu_opt_chain(windows, rates, overhead, router), overhead, router
        )
        assert found.cpu == pytest.approx(min(costs))


def test_mem_opt_is_smallest_chain() -> None:
    """mem_opt needs least memory; without filters that of the largest window."""
    rng = random.Random(6)
    for _ in range(100):
        windows, rates, _ = drawn(rng)
        least = compute_slice_cost(windows, rates, choose_mem_opt_chain(windows)).memory
        for cuts in combinations(windows.ends[:-1], min(2, len(windows.ends) - 1)):
            assert least <= compute_slice_cost(windows, rates, (*cuts, windows.ends[-1])).memory * (1 + 1e-12)
        assert least <= min(
            compute_pull_up_cost(windows, rates).memory, compute_push_down_cost(windows, rates).memory
        ) * (1 + 1e-12)
        plain = SharedWindows(windows.ends)
        assert compute_slice_cost(plain, rates, choose_mem_opt_chain(plain)).memory == pytest.approx(
            compute_pull_up_cost(plain, rates).memory
        )


def test_one_slice_is_selection_pull_up() -> None:
    rng = random.Random(7)
    for _ in range(100):
        windows, rates, _ = drawn(rng)
        windows = SharedWindows(windows.ends, (1.0, *windows.wanted[1:]))
        one = compute_slice_cost(windows, rates, windows.ends[-1:])
        up = compute_pull_up_cost(windows, rates)
        assert (one.memory, one.cpu) == pytest.approx((up.memory, up.cpu))


def test_cpu_opt_with_2000_windows() -> None:
    windows = SharedWindows(tuple(range(1, 2_001)))
    chain = choose_cpu_opt_chain(windows, Rates(10, 10, 0.01), overhead=50)
    widths = [stop - start for start, stop in pairwise((0, *chain))]
    assert chain[-1] == 2_000
    assert max(widths[1:]) - min(widths[1:]) <= 1  # evenly spread windows give evenly spread slices
    assert widths[0] > widths[1]  # queries that read only the first slice unite nothing


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [((), ()), ((0, 1), ()), ((2, 1), ()), ((1, 1), ()), ((1, 2), (1,)), ((1, 2), (0.2, 0.5)), ((1,), (1.5,))],
)
def test_invalid_windows_refused(ends: tuple[float, ...], wanted: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"windows are|shares are"):
        SharedWindows(ends, wanted)


@pytest.mark.parametrize("chain", [(), (1,), (1.5, 3), (2, 1, 3), (1, 1, 3)])
def test_invalid_chains_refused(chain: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="a chain has"):
        compute_slice_cost(SharedWindows((1, 2, 3)), Rates(1, 1, 1), chain)
