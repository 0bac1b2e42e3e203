"""The indexes of a leaf, and the probes that read them.

Law: a probe returns every pair of a probe and a stored row in the given id range that has the probe's codes, or lies in
its range of numbers, and whose lifetimes overlap. An index is built at the first probe that uses it, and
dropped when no probe has used it for a while.

State: for each key newest-first chains over the rings, and for each column of a range condition its sorted runs.
Cost: O(1) per row and index, and per match when probed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np

from penstock.join.expiry_order import ExpiryOrder
from penstock.join.range_probes import ProbeRanges, read_numbers
from penstock.join.row_kernels import NO_LINES, NO_MARKS, ChainTarget
from penstock.join.stored_rows import StoredRows
from penstock.plan import Key, StoredRange
from penstock.state import (
    I32,
    I64,
    NO_AGE_LIMIT,
    ChainIndex,
    KeySpace,
    PairBlock,
    ProbeBuffer,
    ProbeTarget,
    SortedIndex,
    probe_chain,
)

KeyCodes = Mapping[int, I32]
"""For some classes, the code that each probe demands."""

IdRange = tuple[int, int]
"""Rows from an id to before another."""


class LeafIndexes:
    """The indexes over the rows of one leaf."""

    def __init__(self, rows: StoredRows, keys: KeySpace, expiry: ExpiryOrder) -> None:
        self._rows = rows
        self._keys = keys
        self._expiry = expiry
        self._chains: dict[Key, ChainIndex] = {}
        self._probed: set[Key | StoredRange] = set()
        """By what indexes were read since the last review ended."""
        self._reviewed: frozenset[Key | StoredRange] = frozenset()
        """The indexes that the review which goes on found in use."""
        self._sorted: dict[StoredRange, SortedIndex] = {}

    @property
    def nbytes(self) -> int:
        return sum(index.nbytes for index in self._chains.values())

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def add_rows(self, first: int, codes: KeyCodes | None = None) -> None:
        """Enter the rows from `first` on into every index. `codes`: their codes by class, where these are at hand."""
        for key, index in self._chains.items():
            if codes is not None and len(key) == 1:
                index.append(first, codes[key[0]])
            else:
                self._chain_rows(key, index, first)
        for by, ordered in self._sorted.items():
            self._sort_rows(by, ordered, first)

    def retract(self, end: int) -> None:
        """Remove the newest rows, from `end` on; sorted indexes are built again at the next probe."""
        for index in self._chains.values():
            index.retract(end, self._rows.end)
        self._sorted = {}

    def keep_columns(self, names: Container[str]) -> None:
        """Drop the sorted indexes that read columns which are not kept any more."""
        self._sorted = {by: ordered for by, ordered in self._sorted.items() if all(name in names for name in by.names)}

    def resize(self) -> None:
        """The rings of the rows have another capacity."""
        for index in self._chains.values():
            index.resize(self._rows.capacity, self._rows.base, self._rows.end)

    def begin_review(self) -> None:
        """Drop the indexes that no probe has read since the last review; a later probe builds them again."""
        self._reviewed = frozenset(self._probed)
        self._keep_indexes(self._reviewed)

    def end_review(self) -> None:
        """Drop the indexes that only the samples of this review needed. Those not read from now on are unused."""
        self._keep_indexes(self._reviewed)
        self._probed.clear()

    def _keep_indexes(self, used: frozenset[Key | StoredRange]) -> None:
        self._chains = {key: index for key, index in self._chains.items() if key in used}
        self._sorted = {by: ordered for by, ordered in self._sorted.items() if by in used}

    def list_used_codes(self, key: Key) -> Iterator[I32]:
        """The key codes that stored rows hold."""
        if len(key) == 1 and self._rows.has_class(key[0]):
            yield self._rows.list_used_codes(key[0])
        elif key in self._chains:
            yield self._chains[key].list_used_codes(self._rows.base, self._rows.end)

    def encode_keys(self, key: Key, ids: I64) -> I32:
        """The key codes of stored rows."""
        parts = [self._rows.codes(id_, ids) for id_ in key]
        return self._keys.encode(key, parts, ids.size, insert=True)

    def _get_chains(self, key: Key) -> ChainIndex:
        index = self._chains.get(key)
        self._probed.add(key)
        if index is None:
            index = self._chains[key] = ChainIndex(self._rows.capacity)
            self._chain_rows(key, index, self._rows.base)
        return index

    def _chain_rows(self, key: Key, index: ChainIndex, first: int) -> None:
        index.append(first, self.encode_keys(key, np.arange(first, self._rows.end)))

    def _sort_rows(self, by: StoredRange, ordered: SortedIndex, first: int) -> None:
        ids = np.arange(first, self._rows.end)
        numbers = read_numbers(by, lambda column: self._rows.take(column.name, ids))
        ordered.add(numbers[0], ids, lambda old: old >= self._rows.base, *numbers[1:])

    # ── probes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def probe(
        self,
        key_codes: KeyCodes,
        born: I64,
        dies: I64,
        id_range: IdRange,
        scratch: ProbeBuffer,
        born_after: I64 | None = None,
    ) -> Iterator[PairBlock]:
        """Blocks of (probe, row id) with equal codes. `born_after`: rows must be born after this time, by probe."""
        key = tuple(sorted(key_codes))
        index = self._get_chains(key)
        codes = self._keys.encode(key, [key_codes[id_] for id_ in key], born.size, insert=False)
        stored = self._make_target(id_range)
        since = NO_AGE_LIMIT if born_after is None else born_after
        return scratch.iter_blocks(
            lambda at, row, out: probe_chain(
                codes, born, dies, at, row, index.head, index.next_older, stored.mask, stored.base, stored.limit,
                stored.born, stored.dies, stored.fresh, self._expiry.in_order, since, *out,
            ),
            codes.size,
        )  # fmt: skip

    def probe_range(
        self, by: StoredRange, ranges: ProbeRanges, born: I64, dies: I64, id_range: IdRange, scratch: ProbeBuffer
    ) -> Iterator[PairBlock]:
        """Blocks of (probe, row id) where the row's numbers lie in the probe's ranges."""
        ordered = self._sorted.get(by)
        self._probed.add(by)
        if ordered is None:
            ordered = self._sorted[by] = SortedIndex()
            self._sort_rows(by, ordered, self._rows.base)
        target = self._make_target(id_range)
        return ordered.probe(ranges.lows, ranges.highs, born, dies, target, scratch, ranges.least)

    def find_chains(self, key: Key, base: int, limit: int) -> ChainTarget:
        """The chains by a key over the rows in a range of ids."""
        index, rows = self._get_chains(key), self._rows
        return (
            index.head, index.next_older, rows.capacity - 1, base, limit, rows.born, rows.dies, NO_MARKS,
            self._expiry.in_order, NO_LINES,
        )  # fmt: skip

    def _make_target(self, id_range: IdRange) -> ProbeTarget:
        rows = self._rows
        return ProbeTarget(rows.capacity - 1, *id_range, rows.born, rows.dies, NO_MARKS)
