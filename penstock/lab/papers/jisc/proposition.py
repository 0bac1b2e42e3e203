"""Proposition 1 of the JISC paper: how many states of a left-deep plan stay complete when two streams swap places.

The places I < J of the two streams have a probability proportional to 1 / (J − I): estimates are rarely far off, so
neighbours swap more often than streams that are far apart. The states from I to J − 1 become incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from penstock.plan import build_left_deep, classify_states, list_states


@dataclass(frozen=True)
class Moments:
    mean: float
    variance: float


def compute_harmonic(n: int) -> Fraction:
    return sum((Fraction(1, r) for r in range(1, n + 1)), Fraction(0))


def compute_formula(n: int) -> tuple[Fraction, Fraction]:
    """E[C_n] and Var[C_n] as the paper states them, for n ≥ 2 joins."""
    h = compute_harmonic(n)
    mean = (2 * n * h - 3 * n + 1) / (2 * h - 2)
    variance = (2 * n**2 * h - 5 * n**2 + 6 * n - 2 * h - 1) / (12 * (h - 1) ** 2)
    return mean, variance


def sum_moments(n: int) -> tuple[Fraction, Fraction]:
    """The same moments from the definition, Prob(I=i, J=j) = 1 / ((j − i) · (n·H_n − n)), summed over all pairs."""
    scale = n * compute_harmonic(n) - n
    mean = second = Fraction(0)
    for distance in range(1, n):
        weight = Fraction(n - distance, distance) / scale
        mean += weight * (n - distance)
        second += weight * (n - distance) ** 2
    return mean, second - mean**2


def count_complete_after_swap(n: int, i: int, j: int) -> int:
    """The number of n states that are complete after the streams at places i < j of a left-deep plan swap."""
    order = [str(number) for number in range(n + 1)]
    old = build_left_deep(order)
    order[i], order[j] = order[j], order[i]
    return len(classify_states(build_left_deep(order), list_states(old)).complete)


def simulate_moments(n: int, draws: int, rng: np.random.Generator) -> Moments:
    """Monte Carlo: pairs from the paper's distribution, each classified by the function that the engine uses."""
    pairs = np.array([(i, j) for i in range(1, n + 1) for j in range(i + 1, n + 1)])
    weights = 1 / (pairs[:, 1] - pairs[:, 0])
    counts = np.array([count_complete_after_swap(n, int(i), int(j)) for i, j in pairs])
    drawn = counts[rng.choice(len(pairs), draws, p=weights / weights.sum())]
    return Moments(float(drawn.mean()), float(drawn.var()))
