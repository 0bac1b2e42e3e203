"""Demand: which keys of a join state somebody above it can use.

A gate stands over the lazy child of a join; its sibling, the driver, opens it key by key. A row below the gate is worth
building only if its projection on the gate's key is demanded: at a leaf this is the JIT paper's Type I test, at the
gated node its Type II test, and with nothing in common it asks whether anything is demanded at all (the ∅ case).
Demand may be too large, never too small. So the test may be lossy: a Bloom filter asks for some rows too many. What
tells a key that is demanded for the first time must not: rows of such a key were put off and have to be built, and a
filter that took it for an older one would lose them. The keys themselves are therefore always known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from penstock.plan.physical import Key
from penstock.state.bloom import BloomFilter
from penstock.state.codeset import CodeSet, Mask
from penstock.state.intern import KeySpace
from penstock.state.kernels import I32

CodesOf = Callable[[int], I32]
"""The codes of some rows in a class."""

Kept = Literal["exact", "bloom"]
"""How the test for demand is kept."""

_SAMPLE = 64


class Gate:
    """The demanded keys of one state, with their projections on everything below it."""

    def __init__(self, key: Key, below: Iterable[frozenset[int]], keys: KeySpace, kept: Kept = "exact") -> None:
        self.key = key
        self.shut = False
        """Whether the gate holds anything back; an open gate demands everything."""
        self.tested = 0
        self.asked = 0
        """Rows of the driver that came and asked for theirs."""
        self.unwanted = self.mistaken = 0
        """Of a sample of the rows tested by a filter: those nobody demands, and how many of these passed it."""
        self.keys = keys
        self._demanded = CodeSet()
        parts = dict.fromkeys([key, *(self.projection(classes) for classes in below)])
        self._sets = {part: CodeSet() for part in parts if part not in (key, ())} if kept == "exact" else {}
        self._filters = {part: BloomFilter() for part in parts if part} if kept == "bloom" else {}

    def projection(self, classes: frozenset[int]) -> Key:
        return tuple(id_ for id_ in self.key if id_ in classes)

    def admits(self, classes: frozenset[int], codes_of: CodesOf, rows: int) -> Mask:
        """Which rows of a part below the gate are demanded."""
        self.tested += rows
        part = self.projection(classes)
        if part == ():
            return np.full(rows, not self.empty)
        parts = [codes_of(id_) for id_ in part]
        if part not in self._filters:
            demanded = self._demanded if part == self.key else self._sets[part]
            return demanded.has(self.keys.codes(part, parts, rows, insert=False))
        found = self._filters[part].has(parts)
        if part == self.key:
            self._sample(parts, found)
        return found

    def _sample(self, parts: Sequence[I32], found: Mask) -> None:
        """Hold what the filter says of a few rows against the keys themselves."""
        found = found[:_SAMPLE]
        codes = self.keys.codes(self.key, [codes[:_SAMPLE] for codes in parts], found.size, insert=False)
        unwanted = ~self._demanded.has(codes)
        self.unwanted += int(np.count_nonzero(unwanted))
        self.mistaken += int(np.count_nonzero(unwanted & found))

    def add(self, codes_of: CodesOf, rows: int) -> dict[int, I32]:
        """Demand the keys of driver rows; returns the new ones, each once, as codes per class."""
        parts = {id_: codes_of(id_) for id_ in self.key}
        full = self.keys.codes(self.key, list(parts.values()), rows, insert=True)
        new = self._demanded.add(full)
        distinct, places = np.unique(full, return_index=True)
        chosen = places[np.isin(distinct, new)]
        fresh = {id_: codes[chosen] for id_, codes in parts.items()}
        for part, demanded in self._sets.items():
            demanded.add(self.keys.codes(part, [fresh[id_] for id_ in part], chosen.size, insert=True))
        self._add_to_filters(fresh)
        return fresh

    def _add_to_filters(self, new: dict[int, I32]) -> None:
        """A filter that becomes too small for its keys is made anew from them."""
        if not all(each.takes(len(self)) for each in self._filters.values()):
            codes = self._demanded.codes()
            new = dict(zip(self.key, self.keys.parts(self.key, codes), strict=True))
            self._filters = {part: BloomFilter(len(self)) for part in self._filters}
        for part, demanded in self._filters.items():
            demanded.add([new[id_] for id_ in part])

    @property
    def empty(self) -> bool:
        return len(self._demanded) == 0

    def __len__(self) -> int:
        return len(self._demanded)

    @property
    def false_positives(self) -> dict[str, float] | None:
        """How often a filter takes a row that nobody demands for demanded: by its bits, and by the sample."""
        if self.key not in self._filters:
            return None
        measured = self.mistaken / self.unwanted if self.unwanted else 0.0
        return {"estimated": self._filters[self.key].false_positives, "measured": measured, "sample": self.unwanted}

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._all())

    def clear(self) -> None:
        for part in self._all():
            part.clear()

    def _all(self) -> Iterator[CodeSet | BloomFilter]:
        yield self._demanded
        yield from self._sets.values()
        yield from self._filters.values()

    def used(self, key: Key) -> Iterator[I32]:
        """The codes of a key that must keep their meaning."""
        if key == self.key:
            yield self._demanded.codes()
        elif key in self._sets:
            yield self._sets[key].codes()
