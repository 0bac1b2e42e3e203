"""Interest: which of the queries that share a join want a tuple, and for how long.

Queries that put the same filters on the same streams want the same tuples: they are one party. A tuple's interest is
the set of parties it passes the filters of; the interest of a combination is the intersection of its parts'. Sets are
interned to small codes, NOBODY being the empty one, so that a row keeps one byte (four if there are many sets), an
intersection is a table look-up, and the longest window any interested party has (`reach`) is known per code.

Law: a combination is wanted exactly while some party in the intersection has a window that holds all of its parts.
An intersection only shrinks as combinations grow, and with it the reach: so a combination that nobody wants any more is
part of none that somebody wants, and tuples may be freed as soon as their own reach is over (State-Slice, Theorem 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from penstock.state.alloc import room
from penstock.state.code_set import Mask
from penstock.state.interning import CodeTable
from penstock.state.kernels import FOREVER, I32, I64, U8
from penstock.state.maintenance import SHIPPED, Maintenance

NOBODY = 0
NO_CODES: I32 = np.empty(0, np.int32)

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Party:
    """What a set of queries with equal filters needs of each stream: `reach` is their longest window by alias.

    A stream that the party's queries do not read has no entry.
    """

    reach: Mapping[str, int]


class Interest:
    """The codes for sets of parties."""

    def __init__(self, parties: Sequence[Party], maintenance: Maintenance = SHIPPED) -> None:
        self.parties = tuple(parties)
        self._maintenance = maintenance
        self._patterns: dict[tuple[int, ...], _Patterns] = {}
        self._codes: dict[int, int] = {0: NOBODY}
        self.sets = [0]
        """For each code, its parties as the bits of a number."""
        self._met: NDArray[np.int32] = np.zeros((1, 1), np.int32)
        self._pairs = CodeTable(maintenance.capacity)
        self._paired: I32 = np.empty(0, np.int32)
        self._reach: dict[str, I64] = {}
        self._has: dict[int, Mask] = {}

    # ── codes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def codes(self, always: int, some: Sequence[tuple[int, Mask]], rows: int) -> I32:
        """The code of each tuple, given the parties that want all tuples, and others with the tuples they want."""
        if not some:
            return np.full(rows, self._code(always), np.int32)
        asked = (always, *(parties for parties, _ in some))
        if asked not in self._patterns:
            self._patterns[asked] = _Patterns(always, asked[1:], self._code, self._maintenance)
        return self._patterns[asked].codes([wanted for _, wanted in some])

    def _code(self, parties: int) -> int:
        code = self._codes.setdefault(parties, len(self.sets))
        if code == len(self.sets):
            self.sets.append(parties)
        return code

    def code(self, parties: Iterable[int]) -> int:
        """The code of a set of parties by number."""
        return self._code(sum(1 << party for party in parties))

    def meet(self, one: I32, other: I32) -> I32:
        """The codes of the intersections."""
        if self.few:
            return self.meets()[one, other]
        pairs = self._pairs.intern((one.astype(np.int64) << 32) | other)
        if self._pairs.bound > self._paired.size:
            keys = self._pairs.values(np.arange(self._paired.size, self._pairs.bound, dtype=np.int32))
            met = [self._code(self.sets[key >> 32] & self.sets[key & 0xFFFFFFFF]) for key in keys.tolist()]
            self._paired = np.concatenate([self._paired, np.array(met, np.int32)])
        return self._paired[pairs]

    @property
    def few(self) -> bool:
        """Whether there are so few sets that the intersections of all pairs can be kept."""
        return len(self.sets) <= self._maintenance.narrow_sets

    def meets(self) -> NDArray[np.int32]:
        """For every pair of codes that of their intersection, with those the intersections themselves have."""
        while self._met.shape[0] < len(self.sets):
            known, count = self._met.shape[0], len(self.sets)
            new = [[self._code(self.sets[row] & set_) for set_ in self.sets[:count]] for row in range(known, count)]
            grown = np.empty((count, count), np.int32)
            grown[:known, :known] = self._met
            grown[known:] = new
            grown[:, known:] = grown[known:].T
            self._met = grown
        return self._met

    def joined(self, codes: I32, party: int, wants: Mask) -> I32:
        """The codes with a party added where it wants the tuples, too."""
        grown = np.array([self._code(set_ | 1 << party) for set_ in list(self.sets)], np.int32)
        return np.where(wants, grown[codes], codes)

    # ── what a code means ────────────────────────────────────────────────────────────────────────────────────────

    def has(self, party: int) -> Mask:
        """For each code whether the party is in its set."""
        known = self._has.get(party, np.empty(0, np.bool_))
        if known.size < len(self.sets):
            new = [bool(set_ >> party & 1) for set_ in self.sets[known.size :]]
            known = self._has[party] = np.concatenate([known, np.array(new)])
        return known

    def wants(self, party: int, codes: I32) -> Mask:
        """Which tuples or combinations a party wants."""
        return self.has(party)[codes]

    def holding(self, party: int, count: int) -> list[int]:
        """The codes below `count` of the sets that a party is in."""
        return [code for code, set_ in enumerate(self.sets[:count]) if set_ >> party & 1]

    def agree(self, one: int, other: int, codes: I32) -> bool:
        """Whether two parties want the same of some tuples."""
        return bool((self.wants(one, codes) == self.wants(other, codes)).all())

    def reach(self, alias: str, codes: I32) -> I64:
        """The longest window on a stream that an interested party has; 0 if none has."""
        return self.reaches(alias)[codes]

    def reaches(self, alias: str) -> I64:
        """The reach of every code."""
        known = self._reach.get(alias, np.empty(0, np.int64))
        if known.size < len(self.sets):
            new = [self._longest(alias, set_) for set_ in self.sets[known.size :]]
            known = self._reach[alias] = np.concatenate([known, np.array(new, np.int64)])
        return known

    def _longest(self, alias: str, parties: int) -> int:
        wanting = (party for place, party in enumerate(self.parties) if parties >> place & 1)
        return max((party.reach.get(alias, 0) for party in wanting), default=0)

    def recoded(self, codes: I32, sets: Sequence[int]) -> I32:
        """Codes by another list of sets of the same parties, as codes here."""
        return np.array([self._code(set_) for set_ in sets], np.int32)[codes]

    def survivors(self, codes: I32, others: Interest, kept: Sequence[int | None]) -> I32:
        """Codes of `others` as codes here: `kept` says for each party here which party it was there, if it was one."""
        moved = [sum(1 << new for new, old in enumerate(kept) if old is not None and s >> old & 1) for s in others.sets]
        return self.recoded(codes, moved)


class _Patterns:
    """Codes of tuples by the claims they satisfy; `sets` are the parties that make each claim."""

    def __init__(self, always: int, sets: Sequence[int], code: Callable[[int], int], maintenance: Maintenance) -> None:
        self._always = always
        self._sets = sets
        self._code = code
        self._words = -(-len(sets) // 64)
        self._tables = [CodeTable(maintenance.capacity) for _ in range(2 * self._words - 1)]
        self._coded: I32 = np.empty(0, np.int32)
        self._listed = len(sets) <= maintenance.listed_claims
        if self._listed:  # all patterns there can be, by the bits of their places
            places = range(len(sets))
            self._coded = np.array(
                [self._set([bool(at >> p & 1) for p in places]) for at in range(1 << len(sets))], np.int32
            )

    def codes(self, passes: Sequence[Mask]) -> I32:
        if not self._listed:
            return self._interned(np.array(passes))
        pattern: U8 = passes[0].view(np.uint8)
        for place, wanted in enumerate(passes[1:], 1):
            pattern = pattern | wanted.view(np.uint8) << np.uint8(place)
        return self._coded.take(pattern)

    def _interned(self, passes: NDArray[np.bool_]) -> I32:
        """Only the patterns that occur get codes."""
        packed = np.packbits(passes, axis=0, bitorder="little")
        wide = np.zeros((packed.shape[1], 8 * self._words), np.uint8)
        wide[:, : packed.shape[0]] = packed.T
        words = np.ascontiguousarray(wide.view(np.int64).T)
        dense = self._tables[0].intern(words[0])
        for place in range(1, self._words):
            word = self._tables[2 * place - 1].intern(words[place])
            dense = self._tables[2 * place].intern((dense.astype(np.int64) << 32) | word)
        if self._tables[-1].bound > self._coded.size:
            present, first = np.unique(dense, return_index=True)
            new = passes[:, first[present >= self._coded.size]].T.tolist()
            self._coded = np.concatenate([self._coded, np.array([self._set(row) for row in new], np.int32)])
        return self._coded[dense]

    def _set(self, passed: Sequence[bool]) -> int:
        """The code of the parties that want a tuple which satisfies these claims."""
        wanting = (parties for parties, passes in zip(self._sets, passed, strict=True) if passes)
        return self._code(reduce(or_, wanting, self._always))


def ages(born: I64, since: I64) -> I64:
    """How long before `born` something was; longer than any time is FOREVER."""
    found = np.subtract(born, since, out=room(born.size, np.int64))
    if found.min(initial=0) < 0:  # past the largest number, for nothing is later than `born`
        found[found < 0] = FOREVER
    return found


def ends(born: I64, reach: I64) -> I64:
    """When tuples die that live for `reach`; a sum past the end of time is FOREVER."""
    dies: I64 = born + reach
    return np.where((dies < born) | (reach == FOREVER), FOREVER, dies)
