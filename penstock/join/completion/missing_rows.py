"""The rows that the state of a join may lack, and what is known to be complete.

Law: a row that the state lacks is made of leaf rows before the marks only, has none of the complete keys, and contains
none of the complete leaf rows. Keys are completed where the state is probed with a key; leaf rows where it is probed
with a range or another predicate, because then all rows of the state have the same, empty key.

State: one mark by alias, a set of key codes, and one byte for each marked row of a leaf that completion goes by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.join.completion.key_count import KeyCount
from penstock.state import I64, CodeSet, Renumbering


@dataclass
class LeafRowSet:
    """A set of rows of a leaf: those before a mark that are flagged. `flags[i]` belongs to the row `start + i`."""

    start: int
    flags: NDArray[np.bool_]

    def list_absent(self, first: int) -> I64:
        """The rows from `first` up to the mark that are not in the set."""
        first = max(first, self.start)
        return first + np.flatnonzero(~self.flags[first - self.start :])

    def add(self, ids: I64) -> None:
        self.flags[ids - self.start] = True

    def renumber(self, change: Renumbering) -> None:
        old = self.start + np.arange(self.flags.size)
        new, alive = change.apply(old)
        self.start = change.map_mark(self.start)
        flags = np.zeros(int(np.count_nonzero(alive)), np.bool_)
        flags[new[alive] - self.start] = self.flags[alive]
        self.flags = flags


@dataclass
class MissingRows:
    """What an incomplete state may lack.

    `CompletionTracker.complete_some` pushes the old rows of one leaf up; those before `cursor` are done.
    """

    marks: dict[str, int]
    complete_keys: CodeSet = field(default_factory=CodeSet)
    complete_rows: dict[str, LeafRowSet] = field(default_factory=dict)
    pushed_leaf: str | None = None
    cursor: int = 0
    key_count: KeyCount | None = None
    """The keys of the marked rows, from the first time that they are counted on."""

    def list_lacking(self, alias: str, first: int) -> I64:
        """The rows of a leaf, from `first` on, that a row which the state lacks may contain."""
        rows = self.complete_rows.get(alias)
        return np.arange(first, max(first, self.marks[alias])) if rows is None else rows.list_absent(first)

    def add_complete_rows(self, alias: str, first: int, ids: I64) -> None:
        """The state lacks no row that contains one of these leaf rows. `first` is the first row of the leaf."""
        if alias not in self.complete_rows:
            self.complete_rows[alias] = LeafRowSet(first, np.zeros(max(0, self.marks[alias] - first), np.bool_))
        self.complete_rows[alias].add(ids)

    def renumber(self, renumbered: Mapping[str, Renumbering]) -> None:
        for alias in self.marks.keys() & renumbered.keys():
            self.marks[alias] = renumbered[alias].map_mark(self.marks[alias])
            if alias == self.pushed_leaf:
                self.cursor = renumbered[alias].map_mark(self.cursor)
        for alias in self.complete_rows.keys() & renumbered.keys():
            self.complete_rows[alias].renumber(renumbered[alias])
        if self.key_count is not None:
            self.key_count.renumber(renumbered)
