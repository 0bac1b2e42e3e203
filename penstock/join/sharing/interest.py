"""Interest: which of the queries that share a join need a tuple, and for how long.

Queries with the same filters on the same streams need the same tuples: they form one filter group. A tuple's interest
is the set of groups whose filters it passes; the interest of a combination is the intersection of its parts' interests.
Sets are interned to small codes (NO_INTEREST is the empty set), so that a row stores one byte (four if there are many
sets), an intersection is a table lookup, and the longest window of the groups in a set is known per code.

Law: a combination is needed exactly while some group in the intersection has a window that contains all of its parts.
An intersection only shrinks as combinations grow, and with it the longest window. So a combination that no group needs
is part of no combination that a group needs, and tuples may be freed as soon as they leave the longest window of their
own set (State-Slice, Theorem 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from penstock.join.sharing.group_bits import GroupBits
from penstock.join.sharing.kernels import find_longest_windows
from penstock.state import FOREVER, I32, I64, SHIPPED, U8, CodeTable, Maintenance, Mask, allocate

NO_INTEREST = 0
NO_CODES: I32 = np.empty(0, np.int32)


@dataclass(frozen=True)
class GroupWindows:
    """The longest window of a filter group by alias. A stream that the group does not read has no entry."""

    longest: Mapping[str, int]


class Interest:
    """The codes for sets of filter groups."""

    def __init__(self, filter_groups: Sequence[GroupWindows], maintenance: Maintenance = SHIPPED) -> None:
        self.filter_groups = tuple(filter_groups)
        self._maintenance = maintenance
        self._patterns: dict[tuple[int, ...], _FilterPatterns] = {}
        self._codes: dict[int, int] = {0: NO_INTEREST}
        self.sets = [0]
        """For each code, its groups as the bits of a number."""
        self._intersections: NDArray[np.int32] = np.zeros((1, 1), np.int32)
        self._pairs = CodeTable(maintenance.capacity)
        self._looked_up = self._newly_met = 0
        self._sets_at_first = 1
        self._pair_intersections: I32 = np.empty(0, np.int32)
        self._bits = GroupBits(len(self.filter_groups))
        self._longest_windows: dict[str, I64] = {}
        self._membership: dict[int, Mask] = {}

    def add_filter_groups(self, filter_groups: Sequence[GroupWindows]) -> None:
        """More groups. They are in no set yet: the codes of stored rows stay as they are."""
        self.filter_groups = (*self.filter_groups, *filter_groups)
        self._bits.widen(len(self.filter_groups))
        self._patterns.clear()

    # ── codes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def encode_rows(self, always: int, some: Sequence[tuple[int, Mask]], rows: int) -> I32:
        """The code of each tuple, given the groups that need all tuples, and other groups with the tuples they need."""
        if not some:
            return np.full(rows, self.encode_set(always), np.int32)
        pattern = (always, *(groups for groups, _ in some))
        if pattern not in self._patterns:
            self._patterns[pattern] = _FilterPatterns(always, pattern[1:], self.encode_set, self._maintenance)
        return self._patterns[pattern].encode_rows([wanted for _, wanted in some])

    def encode_set(self, groups: int) -> int:
        """The code of a set of groups, given as the bits of a number."""
        code = self._codes.setdefault(groups, len(self.sets))
        if code == len(self.sets):
            self.sets.append(groups)
        return code

    def encode_groups(self, groups: Iterable[int]) -> int:
        """The code of a set of groups, given by number."""
        return self.encode_set(join_bits(groups))

    def intersect(self, one: I32, other: I32) -> I32:
        """The codes of the intersections."""
        if self.has_few_sets:
            return self.intersection_table()[one, other]
        pairs = self._pairs.intern((one.astype(np.int64) << 32) | other)
        self._looked_up += pairs.size
        if self._pairs.code_limit > self._pair_intersections.size:
            keys = self._pairs.values(np.arange(self._pair_intersections.size, self._pairs.code_limit, dtype=np.int32))
            met = [self.encode_set(self.sets[key >> 32] & self.sets[key & 0xFFFFFFFF]) for key in keys.tolist()]
            self._newly_met += len(met)
            self._pair_intersections = np.concatenate([self._pair_intersections, np.array(met, np.int32)])
        return self._pair_intersections[pairs]

    @property
    def has_few_sets(self) -> bool:
        """Whether there are so few sets that the intersections of all pairs can be kept."""
        self._extend_table()
        return len(self.sets) <= self._maintenance.narrow_sets

    @property
    def uses_bits(self) -> bool:
        """Whether intersections of combinations are rows of bits: there are too many different ones to number them."""
        if self.has_few_sets:
            return False
        upkeep = self._maintenance
        explodes = self._looked_up - self._newly_met < upkeep.known_intersections * self._looked_up
        return explodes or len(self.filter_groups) <= upkeep.bit_groups

    @property
    def has_unused_sets(self) -> bool:
        """Whether there are so many more sets than at first that those of stored rows are worth being listed again."""
        upkeep = self._maintenance
        return len(self.sets) > max(upkeep.recycle_codes, upkeep.regrowth * self._sets_at_first)

    def replace(self, former: Interest) -> None:
        """Follow other codes for the same groups, when all stored rows have got their codes here."""
        self._sets_at_first = len(self.sets)
        self._looked_up, self._newly_met = former._looked_up, former._newly_met

    def read_sets(self) -> U8:
        """For each code its groups as a row of bits."""
        return self._bits.read(self.sets)

    def find_longest_windows(self, alias: str, bits: U8) -> I64:
        """For each row of bits the longest window on a stream of the groups in it; 0 without groups."""
        windows = np.array([group.longest.get(alias, 0) for group in self.filter_groups], np.int64)
        found = np.zeros(len(bits), np.int64)
        if windows.min() == windows.max():
            found[bits.any(axis=1)] = windows[0]
        else:
            find_longest_windows(bits, windows, found)
        return found

    def intersection_table(self) -> NDArray[np.int32]:
        """The code of the intersection for every pair of codes, closed under intersection. Only for few sets."""
        self._extend_table()
        return self._intersections

    def _extend_table(self) -> None:
        """Close the table under intersection, or give up: the closure of a few sets may be very large."""
        while self._intersections.shape[0] < len(self.sets) <= self._maintenance.narrow_sets:
            known, count = self._intersections.shape[0], len(self.sets)
            new = []
            for row in self.sets[known:count]:
                new.append([self.encode_set(row & set_) for set_ in self.sets[:count]])
                if len(self.sets) > self._maintenance.narrow_sets:
                    return
            grown = np.empty((count, count), np.int32)
            grown[:known, :known] = self._intersections
            grown[known:] = new
            grown[:, known:] = grown[known:].T
            self._intersections = grown

    def add_group(self, codes: I32, group: int, needed: Mask) -> I32:
        """The codes with a group added where it needs the tuples."""
        present = np.unique(codes[needed])
        grown = np.zeros(len(self.sets), np.int32)
        grown[present] = [self.encode_set(self.sets[code] | 1 << group) for code in present.tolist()]
        return np.where(needed, grown[codes], codes)

    # ── the meaning of a code ─────────────────────────────────────────────────────────────────────────────────────

    def membership(self, group: int) -> Mask:
        """For each code whether the group is in its set."""
        known = self._membership.get(group, np.empty(0, np.bool_))
        if known.size < len(self.sets):
            new = self._bits.read_group(self.sets, group, known.size)
            known = self._membership[group] = np.concatenate([known, new])
        return known

    def is_wanted_by(self, group: int, codes: I32) -> Mask:
        """Which tuples or combinations a group needs."""
        return self.membership(group)[codes]

    def read_groups(self, codes: I64, groups: Sequence[int]) -> list[bytes]:
        """For each of some groups which of some sets, given by their codes, contain it."""
        return [row.tobytes() for row in self._bits.read_groups(self.sets, codes, groups)]

    def longest_window(self, alias: str, codes: I32) -> I64:
        """By row, the longest window on a stream of the groups in its set; 0 if there is none."""
        return self.longest_windows(alias)[codes]

    def longest_windows(self, alias: str) -> I64:
        """By code, the longest window on a stream of the groups in its set."""
        known = self._longest_windows.get(alias, np.empty(0, np.int64))
        if known.size < len(self.sets):
            windows = np.array([group.longest.get(alias, 0) for group in self.filter_groups], np.int64)
            new = self._bits.find_longest(self.sets, windows, known.size)
            known = self._longest_windows[alias] = np.concatenate([known, new])
        return known

    def recode(self, codes: I32, sets: Sequence[int]) -> I32:
        """Codes by another list of sets of the same groups, as codes here. Sets without a row get no code."""
        present = np.unique(codes)
        found = np.zeros(len(sets), np.int32)
        found[present] = [self.encode_set(sets[code]) for code in present.tolist()]
        return found[codes]

    def recode_from(self, codes: I32, others: Interest, kept: Sequence[int | None]) -> I32:
        """Codes of `others` as codes here. `kept` is for each group here its place there, None for a new group."""
        old = list(range(len(others.filter_groups)))
        if list(kept[: len(old)]) == old:
            return self.recode(codes, others.sets)
        present = np.unique(codes)
        found = np.zeros(len(others.sets), np.int32)
        moved = others._bits.move_groups(others.sets, present, kept)
        found[present] = [self.encode_set(set_) for set_ in moved]
        return found[codes]


class _FilterPatterns:
    """Codes of tuples by the filters they pass; `sets` are the groups of each filter."""

    def __init__(self, always: int, sets: Sequence[int], code: Callable[[int], int], maintenance: Maintenance) -> None:
        self._always = always
        self._sets = sets
        self._encode_set = code
        self._words = -(-len(sets) // 64)
        self._tables = [CodeTable(maintenance.capacity) for _ in range(2 * self._words - 1)]
        self._pattern_codes: I32 = np.empty(0, np.int32)
        self._is_listed = len(sets) <= maintenance.listed_claims
        if self._is_listed:  # all possible patterns, by the bits of their places
            places = range(len(sets))
            self._pattern_codes = np.array(
                [self._encode_pattern([bool(at >> p & 1) for p in places]) for at in range(1 << len(sets))], np.int32
            )

    def encode_rows(self, passes: Sequence[Mask]) -> I32:
        if not self._is_listed:
            return self._encode_interned(np.array(passes))
        pattern: U8 = passes[0].view(np.uint8)
        for place, wanted in enumerate(passes[1:], 1):
            pattern = pattern | wanted.view(np.uint8) << np.uint8(place)
        return self._pattern_codes.take(pattern)

    def _encode_interned(self, passes: NDArray[np.bool_]) -> I32:
        """As `encode_rows`; only patterns that occur get codes."""
        packed = np.packbits(passes, axis=0, bitorder="little")
        wide = np.zeros((packed.shape[1], 8 * self._words), np.uint8)
        wide[:, : packed.shape[0]] = packed.T
        words = np.ascontiguousarray(wide.view(np.int64).T)
        dense = self._tables[0].intern(words[0])
        for place in range(1, self._words):
            word = self._tables[2 * place - 1].intern(words[place])
            dense = self._tables[2 * place].intern((dense.astype(np.int64) << 32) | word)
        if self._tables[-1].code_limit > self._pattern_codes.size:
            present, first = np.unique(dense, return_index=True)
            new = passes[:, first[present >= self._pattern_codes.size]].T.tolist()
            self._pattern_codes = np.concatenate(
                [self._pattern_codes, np.array([self._encode_pattern(row) for row in new], np.int32)]
            )
        return self._pattern_codes[dense]

    def _encode_pattern(self, passed: Sequence[bool]) -> int:
        """The code of the groups that need a tuple that passes these filters."""
        groups = (set_ for set_, passes in zip(self._sets, passed, strict=True) if passes)
        return self._encode_set(reduce(or_, groups, self._always))


def join_bits(places: Iterable[int]) -> int:
    """The number with bits set at some places."""
    at = np.fromiter(places, np.int64)
    if not at.size:
        return 0
    bits = np.zeros(int(at.max()) + 1, np.bool_)
    bits[at] = True
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def compute_ages(born: I64, since: I64) -> I64:
    """The ages at `born` of tuples from `since`, at most FOREVER."""
    found = np.subtract(born, since, out=allocate(born.size, np.int64))
    if found.min(initial=0) < 0:  # an overflow, because no part is later than `born`
        found[found < 0] = FOREVER
    return found


def compute_ends(born: I64, reach: I64) -> I64:
    """When tuples die that live for `reach`, at most FOREVER."""
    dies: I64 = born + reach
    return np.where((dies < born) | (reach == FOREVER), FOREVER, dies)
