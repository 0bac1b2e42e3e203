"""Which rows of a leaf may be part of a partner, for probes that have no key but a range or another predicate.

Law: `select` returns every given row of the leaf that is part of a row of the probed node which satisfies the
predicates together with one of the probing rows. It may return more.

Cost: a range costs O((rows + probes) log probes). Other predicates are evaluated on every pair of a probe and a row,
as they are when the probes meet the rows of the complete state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expr import Column, Expr, compute_mask, find_aliases
from penstock.join.leaf_store import LeafStore
from penstock.join.range_probes import ColumnReader, ProbeRanges
from penstock.plan import StoredRange
from penstock.state import F64, I64, Mask, to_floats


@dataclass(frozen=True)
class PartnerFilter:
    """A test of the rows of the leaf `alias` against `probes` probing rows, whose columns are read by `read`."""

    alias: str
    store: LeafStore
    predicates: tuple[Expr, ...]
    read: ColumnReader
    probes: int
    block: int
    column: Column | None = None
    ranges: ProbeRanges | None = None

    def select(self, ids: I64) -> I64:
        """The rows that may be part of a partner."""
        if self.column is not None and self.ranges is not None:
            numbers = to_floats(self.store.rows.take(self.column.name, ids))
            return ids[_find_covered(numbers, self.ranges.lows, self.ranges.highs)]
        parts = [chunk[self._test_pairs(chunk)] for chunk in self._split(ids)]
        return np.concatenate(parts) if parts else ids[:0]

    def _split(self, ids: I64) -> Iterator[I64]:
        size = max(1, self.block // max(1, self.probes))
        return (ids[start : start + size] for start in range(0, ids.size, size))

    def _test_pairs(self, ids: I64) -> Mask:
        """Which rows satisfy the predicates together with some probing row."""
        probe, row = np.tile(np.arange(self.probes), ids.size), np.repeat(ids, self.probes)

        def read(column: Column) -> pa.Array:
            if column.alias == self.alias:
                return self.store.rows.take(column.name, row)
            return self.read(column).take(pa.array(probe))

        mask = compute_mask(self.predicates, read, row.size)
        satisfied: Mask = np.logical_or.reduce(mask.reshape(ids.size, self.probes), axis=1)
        return satisfied


def choose_predicates(
    residuals: Sequence[Expr], probing: Collection[str], probed: Collection[str]
) -> tuple[str, tuple[Expr, ...]] | None:
    """A leaf of the probed node, and the predicates over it and the probing rows alone; None if there are none."""
    found: dict[str, list[Expr]] = {}
    for predicate in residuals:
        theirs = find_aliases(predicate) - frozenset(probing)
        if len(theirs) == 1 and theirs <= frozenset(probed):
            found.setdefault(next(iter(theirs)), []).append(predicate)
    if not found:
        return None
    alias = max(found, key=lambda name: len(found[name]))
    return alias, tuple(found[alias])


def make_range_filter(by: StoredRange, ranges: ProbeRanges, store: LeafStore, read: ColumnReader) -> PartnerFilter:
    """A test by the range of the probes."""
    return PartnerFilter(by.column.alias, store, (), read, ranges.lows.size, 1, by.column, ranges)


def _find_covered(numbers: F64, lows: F64, highs: F64) -> Mask:
    """Which numbers lie in one of the ranges."""
    order = np.argsort(lows)
    reach = np.maximum.accumulate(highs[order])
    place = np.searchsorted(lows[order], numbers, side="right") - 1
    covered: Mask = (place >= 0) & (reach[np.maximum(place, 0)] >= numbers)
    return covered
