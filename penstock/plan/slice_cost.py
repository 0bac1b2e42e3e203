"""The costs of sharing a window join, and the best chain of slices. Pure functions over frozen values.

State-Slice, sections 3 to 6. N queries join A and B over windows w_1 < … < w_N, with filters on A. A chain cuts the
largest window into slices. Each slice ends at some w_i, the last one at w_N. Costs are comparisons and bytes per unit
of time. Eq. 1 to 4 of the paper are these functions for two queries:

- a probe compares a tuple with every tuple of the other stream in the slice; purging compares a tuple once per slice;
- each tuple of A is tested before a slice that not all tuples of A reach;
- the results of a slice with several windows are routed to the queries, and tested again for queries with more filters;
- a query that reads several slices merges their results in the order of the arriving tuples: one comparison for each;
- every slice costs `overhead` (C_sys) for each arriving tuple.

Filters are assumed to be nested: a tuple that passes the filter of a larger window also passes those of smaller
windows. Then the share of A's tuples that query i needs is the share that reaches slice i. Memory does not depend on
this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Router = Literal["comparisons", "lookup"]
"""How a result of a slice with k windows is routed to its queries: by k - 1 comparisons or by one lookup."""

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Tuples per unit of time, the share of pairs that join (S_⋈), and the bytes of a tuple."""

    a: float
    b: float
    join_selectivity: float
    tuple_bytes: float = 1.0

    @property
    def total(self) -> float:
        return self.a + self.b

    @property
    def pair_rate(self) -> float:
        """Pairs that are compared per unit of time and unit of window."""
        return 2 * self.a * self.b


@dataclass(frozen=True)
class SharedWindows:
    """The distinct windows of the queries in ascending order, and the share of A's tuples that each needs."""

    ends: tuple[float, ...]
    shares: tuple[float, ...] = ()
    """For each window: the share that queries with this or a larger window need (S_σ); empty: all tuples."""

    @cached_property
    def wanted(self) -> tuple[float, ...]:
        """For each window: the share that queries with this or a larger window need (S_σ)."""
        return self.shares or (1.0,) * len(self.ends)

    def __post_init__(self) -> None:
        if not self.ends or self.ends[0] <= 0 or any(one >= other for one, other in pairwise(self.ends)):
            raise ValueError(f"windows are positive and ascending, not {self.ends}")
        shares = (1.0, *self.wanted, 0.0)
        if len(self.wanted) != len(self.ends) or any(one < other for one, other in pairwise(shares)):
            raise ValueError(f"shares are between 1 and 0 and decrease with the window, not {self.wanted}")


@dataclass(frozen=True)
class SharingCost:
    """Bytes of state, and comparisons per unit of time."""

    memory: float
    cpu: float

    def compute_savings(self, rival: SharingCost) -> SharingCost:
        """The saved shares of a rival's memory and comparisons (Eq. 4)."""
        return SharingCost(1 - self.memory / rival.memory, 1 - self.cpu / rival.cpu)


SliceChain = tuple[float, ...]
"""The ends of the slices, in ascending order."""


def compute_pull_up_cost(windows: SharedWindows, rates: Rates) -> SharingCost:
    """One join over the largest window, filters and a router above it (Eq. 1): a chain of one slice without filters."""
    lasting = windows.ends[-1]
    results = rates.pair_rate * lasting * rates.join_selectivity
    tested = results if windows.wanted[-1] < 1 else 0.0
    cpu = rates.pair_rate * lasting + rates.total + results * (len(windows.ends) - 1) + tested
    return SharingCost(rates.total * lasting * rates.tuple_bytes, cpu)


def compute_push_down_cost(windows: SharedWindows, rates: Rates) -> SharingCost:
    """A is split by the windows that need its tuples; each part is joined with all of B over its window (Eq. 2)."""
    shares = [one - other for one, other in pairwise((*windows.wanted, 0.0))]
    parts = [(place, share) for place, share in enumerate(shares) if share > 0]
    memory = sum((share * rates.a + rates.b) * windows.ends[place] for place, share in parts)
    split = rates.a if len(parts) > 1 or windows.wanted[0] < 1 else 0.0
    probes = sum(rates.pair_rate * share * windows.ends[place] for place, share in parts)
    purged = sum(share * rates.a + rates.b for _, share in parts)
    routed = sum(
        rates.pair_rate * share * windows.ends[place] * rates.join_selectivity * place for place, share in parts
    )
    united = [place for place in range(len(windows.ends)) if sum(part >= place for part, _ in parts) > 1]
    merged = sum(
        rates.pair_rate * windows.wanted[place] * windows.ends[place] * rates.join_selectivity for place in united
    )
    return SharingCost(memory * rates.tuple_bytes, split + probes + purged + routed + merged)


def compute_slice_cost(
    windows: SharedWindows, rates: Rates, chain: SliceChain, overhead: float = 0.0, router: Router = "comparisons"
) -> SharingCost:
    """A chain of sliced joins with filters between them (Eq. 3)."""
    cuts = _find_cut_positions(windows, chain)
    model = _EdgeCosts.build(windows, rates, overhead, router)
    memory = sum(
        (windows.wanted[start] * rates.a + rates.b) * (windows.ends[stop - 1] - model.starts[start])
        for start, stop in pairwise(cuts)
    )
    cpu = sum(float(model.compute_costs_to(stop)[start]) for start, stop in pairwise(cuts))
    return SharingCost(float(memory) * rates.tuple_bytes, cpu)


def choose_mem_opt_chain(windows: SharedWindows) -> SliceChain:
    """The chain with the least state: a slice for every window (Theorems 3 and 4)."""
    return windows.ends


def choose_cpu_opt_chain(
    windows: SharedWindows, rates: Rates, overhead: float = 0.0, router: Router = "comparisons"
) -> SliceChain:
    """The chain with the fewest comparisons: the shortest path over the N(N + 1)/2 possible slices, in O(N²)."""
    model = _EdgeCosts.build(windows, rates, overhead, router)
    count = len(windows.ends)
    shortest, before = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    for stop in range(1, count + 1):
        paths = shortest[:stop] + model.compute_costs_to(stop)
        before[stop] = np.argmin(paths)
        shortest[stop] = paths[before[stop]]
    cuts, at = [], count
    while at:
        cuts.append(windows.ends[at - 1])
        at = int(before[at])
    return tuple(reversed(cuts))


def _find_cut_positions(windows: SharedWindows, chain: SliceChain) -> Sequence[int]:
    """The number of windows before each cut of a chain."""
    places = {end: place + 1 for place, end in enumerate(windows.ends)}
    if not set(chain) <= places.keys() or list(chain) != sorted(set(chain)) or chain[-1:] != windows.ends[-1:]:
        raise ValueError(f"a chain has the ends of windows in ascending order, up to the largest: not {chain}")
    return [0, *(places[end] for end in chain)]


@dataclass(frozen=True)
class _EdgeCosts:
    """The lengths of the edges: comparisons of a slice by its start and stop, independent of the other slices."""

    rates: Rates
    overhead: float
    router: Router
    ends: F64
    starts: F64
    wanted: F64

    @classmethod
    def build(cls, windows: SharedWindows, rates: Rates, overhead: float, router: Router) -> _EdgeCosts:
        ends = np.array(windows.ends, np.float64)
        return cls(rates, overhead, router, ends, np.concatenate([[0.0], ends[:-1]]), np.array(windows.wanted))

    def compute_costs_to(self, stop: int) -> F64:
        """The costs of the slices that end with window number `stop` (counted from 1), by their start."""
        rates, wanted = self.rates, self.wanted[:stop]
        places = np.arange(stop)
        inside = stop - places
        probes = rates.pair_rate * wanted * (self.ends[stop - 1] - self.starts[:stop])
        results = probes * rates.join_selectivity
        routed = np.minimum(inside - 1, 1) if self.router == "lookup" else inside - 1
        tested = self.wanted[-1] < wanted
        united = np.where(places > 0, inside, 0)
        lengths: F64 = (
            probes + results * (routed + tested) + rates.a * (wanted < 1) + rates.total * (1 + self.overhead + united)
        )
        return lengths
