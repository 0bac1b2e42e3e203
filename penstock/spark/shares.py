"""Shares: how many cells each dimension of a grid has, chosen for the least tuples in a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from penstock.spark.grid import GridDimension

_MAX_EXHAUSTIVE_CELLS = 32
"""Up to this number of cells all vectors of shares are compared; above it shares are raised step by step."""


def choose_shares(dimensions: Sequence[GridDimension], rates: Mapping[str, float], cells: int) -> tuple[int, ...]:
    """The shares with the fewest tuples in a cell; among those with the fewest copies, then the first."""

    def cost(shares: Sequence[int]) -> tuple[float, float]:
        load = copies = 0.0
        for alias, rate in rates.items():
            own = prod(share for dim, share in zip(dimensions, shares, strict=True) if alias in dim.coordinates)
            load += rate / own
            copies += rate * prod(shares) / own
        return round(load, 9), round(copies, 9)

    small = min(cells, _MAX_EXHAUSTIVE_CELLS)
    best = min(_list_share_vectors(len(dimensions), small), key=cost)
    while (larger := _list_larger_shares(best, cells)) and cost(choice := min(larger, key=cost)) < cost(best):
        best = choice
    return best


def _list_share_vectors(length: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every vector of shares whose product is at most `most`, in descending order of the first share."""
    if not length:
        yield ()
        return
    for share in range(most, 0, -1):
        for others in _list_share_vectors(length - 1, most // share):
            yield (share, *others)


def _list_larger_shares(shares: tuple[int, ...], cells: int) -> list[tuple[int, ...]]:
    """The vectors with one share raised, by one or to as much as the cells allow."""
    found = []
    for index in range(len(shares)):
        others = prod(shares) // shares[index]
        for share in {shares[index] + 1, cells // others}:
            if share > shares[index] and share * others <= cells:
                found.append((*shares[:index], share, *shares[index + 1 :]))
    return found
