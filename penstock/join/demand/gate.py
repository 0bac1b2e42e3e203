"""Demand: which keys of a join state can contribute to a result.

A gate stands over the lazy child of a join; its sibling, the driver, opens it key by key. A row below the gate is built
only if its projection on the gate's key is demanded. At a leaf this is the JIT paper's Type I test, at the gated node
its Type II test; if the projection is empty, the test is whether any key is demanded (the ∅ case). A join without a key
may have demand of another kind: see `range_gate`.

Law: demand may be too large, never too small, and it must not grow unnoticed, because rows that were held back have to
be built when their key is demanded. A Bloom filter alone grows unnoticed: each added key also admits other keys. It is
therefore used before the exact test. A row that the filter rejects, which is most rows where few keys are demanded,
needs no key code; a row that it admits is tested exactly, which also measures its false positives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from penstock.join.join_rows import JoinRows
from penstock.join.range_probes import ProbeRanges
from penstock.plan import Key, StoredRange, SubPlan
from penstock.state import I32, BloomFilter, CodeSet, KeySpace, Maintenance, Mask


class RowSource(Protocol):
    """A node whose rows are tested or demand others."""

    @property
    def plan(self) -> SubPlan: ...
    def codes(self, class_id: int, rows: JoinRows) -> I32: ...


@dataclass(frozen=True)
class NewDemand:
    """What is demanded from now on: keys, each once, as codes by class, or ranges of a number of the lazy child."""

    size: int
    """The number of keys or ranges."""
    codes: Mapping[int, I32] = field(default_factory=dict)
    ranges: tuple[StoredRange, ProbeRanges] | None = None


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

    def make_empty(self, below: Iterable[frozenset[int]]) -> Gate:
        """A gate of the same kind without demand, for the parts with some classes."""
        return Gate(self.key, below, self.keys, self.maintenance)

    def project_key(self, classes: frozenset[int]) -> Key:
        return tuple(id_ for id_ in self.key if id_ in classes)

    def restricts(self, part: SubPlan) -> bool:
        """Whether the gate distinguishes rows of a part below it."""
        return bool(self.project_key(part.classes))

    def find_demanded(self, part: SubPlan, source: RowSource, rows: JoinRows) -> Mask:
        """Which rows of a part below the gate are demanded: rows of `source`, or the part's share of them."""
        self.tested += len(rows)
        if self.restricts(part):
            return self._find_restricted(part, source, rows)
        return np.full(len(rows), not self.empty)

    def _find_restricted(self, part: SubPlan, source: RowSource, rows: JoinRows) -> Mask:
        key = self.project_key(part.classes)
        parts = [source.codes(id_, rows) for id_ in key]
        if key not in self._filters:
            return self._test_exactly(key, parts, len(rows))
        passed = self._filters[key].has(parts)
        places = np.flatnonzero(passed)
        passed[places] = self._test_exactly(key, [codes[places] for codes in parts], places.size)
        self.undemanded += len(rows) - int(np.count_nonzero(passed))
        self.wrongly_passed += places.size - int(np.count_nonzero(passed))
        return passed

    def _test_exactly(self, part: Key, parts: Sequence[I32], rows: int) -> Mask:
        demanded = self._demanded if part == self.key else self._sets[part]
        return demanded.has(self.keys.encode(part, list(parts), rows, insert=False))

    def add(self, driver: RowSource, rows: JoinRows) -> NewDemand:
        """Demand what matches driver rows; returns what was not demanded before."""
        self.entered += len(rows)
        return self._add_demand(driver, rows)

    def _add_demand(self, driver: RowSource, rows: JoinRows) -> NewDemand:
        parts = {id_: driver.codes(id_, rows) for id_ in self.key}
        full = self.keys.encode(self.key, list(parts.values()), len(rows), insert=True)
        new = self._demanded.add(full)
        distinct, places = np.unique(full, return_index=True)
        chosen = places[np.isin(distinct, new)]
        fresh = {id_: codes[chosen] for id_, codes in parts.items()}
        for part, demanded in self._sets.items():
            demanded.add(self.keys.encode(part, [fresh[id_] for id_ in part], chosen.size, insert=True))
        self._add_to_filters(fresh)
        return NewDemand(chosen.size, fresh)

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

    def describe(self) -> str:
        """How much is demanded."""
        return f"{len(self):,} keys"

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
