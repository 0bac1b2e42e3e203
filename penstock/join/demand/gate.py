"""Demand: which keys of a join state can contribute to a result.

A gate stands over the lazy child of a join; its sibling, the driver, opens it key by key. A row below the gate is built
only if its projection on the gate's key is demanded. At a leaf this is the JIT paper's Type I test, at the gated node
its Type II test; if the projection is empty, the test is whether any key is demanded (the ∅ case).

Law: demand may be too large, never too small, and it must not grow unnoticed, because rows that were held back have to
be built when their key is demanded. A Bloom filter alone grows unnoticed: each added key also admits other keys. It is
therefore used before the exact test. A row that the filter rejects, which is most rows where few keys are demanded,
needs no key code; a row that it admits is tested exactly, which also measures its false positives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from penstock.plan import Key
from penstock.state import I32, BloomFilter, CodeSet, KeySpace, Maintenance, Mask

CodeReader = Callable[[int], I32]
"""The codes of some rows in a class."""

DemandFilter = Literal["exact", "bloom"]
"""How demand is tested."""


class Gate:
    """The demanded keys of one state, with their projections on everything below it."""

    def __init__(
        self,
        key: Key,
        below: Iterable[frozenset[int]],
        keys: KeySpace,
        maintenance: Maintenance,
        demand_filter: DemandFilter = "exact",
    ) -> None:
        self.key = key
        self.closed = False
        """Whether the gate holds rows back; an open gate demands all keys."""
        self.tested = 0
        self.demand_requests = 0
        """How many driver rows have demanded their keys."""
        self.entered = 0
        """How many driver rows had their keys entered, those of reviews included."""
        self.undemanded = self.wrongly_passed = 0
        """Undemanded rows that a filter has tested, and how many of these it admitted."""
        self.keys = keys
        self.maintenance = maintenance
        self._demanded = CodeSet()
        parts = dict.fromkeys([key, *(self.project_key(classes) for classes in below)])
        self._sets = {part: CodeSet() for part in parts if part not in (key, ())}
        self._filters = {part: BloomFilter(maintenance) for part in parts if part} if demand_filter == "bloom" else {}

    def project_key(self, classes: frozenset[int]) -> Key:
        return tuple(id_ for id_ in self.key if id_ in classes)

    def find_demanded(self, classes: frozenset[int], read: CodeReader, rows: int) -> Mask:
        """Which rows of a part below the gate are demanded."""
        self.tested += rows
        part = self.project_key(classes)
        if part == ():
            return np.full(rows, not self.empty)
        parts = [read(id_) for id_ in part]
        if part not in self._filters:
            return self._test_exactly(part, parts, rows)
        passed = self._filters[part].has(parts)
        places = np.flatnonzero(passed)
        passed[places] = self._test_exactly(part, [codes[places] for codes in parts], places.size)
        self.undemanded += rows - int(np.count_nonzero(passed))
        self.wrongly_passed += places.size - int(np.count_nonzero(passed))
        return passed

    def _test_exactly(self, part: Key, parts: Sequence[I32], rows: int) -> Mask:
        demanded = self._demanded if part == self.key else self._sets[part]
        return demanded.has(self.keys.encode(part, list(parts), rows, insert=False))

    def add(self, read: CodeReader, rows: int) -> dict[int, I32]:
        """Demand the keys of driver rows; returns the new ones, each once, as codes per class."""
        self.entered += rows
        parts = {id_: read(id_) for id_ in self.key}
        full = self.keys.encode(self.key, list(parts.values()), rows, insert=True)
        new = self._demanded.add(full)
        distinct, places = np.unique(full, return_index=True)
        chosen = places[np.isin(distinct, new)]
        fresh = {id_: codes[chosen] for id_, codes in parts.items()}
        for part, demanded in self._sets.items():
            demanded.add(self.keys.encode(part, [fresh[id_] for id_ in part], chosen.size, insert=True))
        self._add_to_filters(fresh)
        return fresh

    def _add_to_filters(self, new: dict[int, I32]) -> None:
        """Add keys to the filters. A filter that is too small for its keys is rebuilt."""
        if not all(each.has_room_for(len(self)) for each in self._filters.values()):
            codes = self._demanded.codes()
            new = dict(zip(self.key, self.keys.decode(self.key, codes), strict=True))
            self._filters = {part: BloomFilter(self.maintenance, len(self)) for part in self._filters}
        for part, demanded in self._filters.items():
            demanded.add([new[id_] for id_ in part])

    @property
    def empty(self) -> bool:
        return len(self._demanded) == 0

    def __len__(self) -> int:
        return len(self._demanded)

    @property
    def false_positives(self) -> dict[str, float] | None:
        """How often a filter admits an undemanded row: estimated from the bits that are set, and measured."""
        if self.key not in self._filters:
            return None
        measured = self.wrongly_passed / self.undemanded if self.undemanded else 0.0
        return {"estimated": self._filters[self.key].false_positives, "measured": measured, "tested": self.undemanded}

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._list_sets())

    def clear(self) -> None:
        for part in self._list_sets():
            part.clear()

    def _list_sets(self) -> Iterator[CodeSet | BloomFilter]:
        yield self._demanded
        yield from self._sets.values()
        yield from self._filters.values()

    def list_used_codes(self, key: Key) -> Iterator[I32]:
        """The codes of a key that are in use."""
        if key == self.key:
            yield self._demanded.codes()
        elif key in self._sets:
            yield self._sets[key].codes()
