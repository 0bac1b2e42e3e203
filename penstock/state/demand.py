"""Demand: which keys of a join state somebody above it can use.

A gate stands over the lazy child of a join; its sibling, the driver, opens it key by key. A row below the gate is worth
building only if its projection on the gate's key is demanded: at a leaf this is the JIT paper's Type I test, at the
gated node its Type II test, and with nothing in common it asks whether anything is demanded at all (the ∅ case).
Demand may be too large, never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from penstock.plan.physical import Key
from penstock.state.codeset import CodeSet, Mask
from penstock.state.intern import KeySpace
from penstock.state.kernels import I32

CodesOf = Callable[[int], I32]
"""The codes of some rows in a class."""


class Gate:
    """The demanded keys of one state, with their projections on everything below it."""

    def __init__(self, key: Key, below: Iterable[frozenset[int]], keys: KeySpace) -> None:
        self.key = key
        self.shut = False
        """Whether the gate holds anything back; an open gate demands everything."""
        self.tested = 0
        self._keys = keys
        self._sets = {self.projection(classes): CodeSet() for classes in below}
        self._sets.setdefault(key, CodeSet())

    def projection(self, classes: frozenset[int]) -> Key:
        return tuple(id_ for id_ in self.key if id_ in classes)

    def admits(self, classes: frozenset[int], codes_of: CodesOf, rows: int) -> Mask:
        """Which rows of a part below the gate are demanded."""
        self.tested += rows
        part = self.projection(classes)
        if part == ():
            return np.full(rows, len(self._sets[self.key]) > 0)
        return self._sets[part].has(self._keys.codes(part, [codes_of(id_) for id_ in part], rows, insert=False))

    def add(self, codes_of: CodesOf, rows: int) -> dict[int, I32]:
        """Demand the keys of driver rows; returns the new ones, each once, as codes per class."""
        parts = {id_: codes_of(id_) for id_ in self.key}
        full = self._keys.codes(self.key, list(parts.values()), rows, insert=True)
        new = self._sets[self.key].add(full)
        distinct, places = np.unique(full, return_index=True)
        chosen = places[np.isin(distinct, new)]
        fresh = {id_: codes[chosen] for id_, codes in parts.items()}
        for part, demanded in self._sets.items():
            if part not in (self.key, ()):
                demanded.add(self._keys.codes(part, [fresh[id_] for id_ in part], chosen.size, insert=True))
        return fresh

    @property
    def empty(self) -> bool:
        return len(self._sets[self.key]) == 0

    def __len__(self) -> int:
        return len(self._sets[self.key])

    @property
    def nbytes(self) -> int:
        return sum(demanded.nbytes for demanded in self._sets.values())

    def clear(self) -> None:
        for demanded in self._sets.values():
            demanded.clear()

    def used(self, key: Key) -> Iterator[I32]:
        """The codes of a key that must keep their meaning."""
        if key in self._sets:
            yield self._sets[key].codes()
