"""The keys for which an incomplete state may lack rows (JISC, section 4.3).

Law: a row that a node lacks contains a marked row of each of its leaves. So if the keys of all marked rows of one leaf
are complete, the node lacks nothing. The leaf has all columns of the key.

State: the distinct codes of the marked rows. Cost: the marked rows are read once, some in each batch; the codes are
compared with the complete keys only when enough keys have been completed since the last comparison for an answer of
yes, so that comparing costs O(1) for each completed key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.join.leaf_store import LeafStore
from penstock.plan import Key
from penstock.state import CodeSet, Renumbering


class KeyCount:
    """The distinct key codes of the marked rows of one leaf."""

    def __init__(self, alias: str, key: Key) -> None:
        self.alias = alias
        self._key = key
        self._codes = CodeSet()
        self._cursor = 0
        self._compare_at = 0

    def renumber(self, renumbered: Mapping[str, Renumbering]) -> None:
        if self.alias in renumbered:
            self._cursor = renumbered[self.alias].map_mark(self._cursor)

    def add_rows(self, store: LeafStore, first: int, mark: int, most: int) -> bool:
        """Read the keys of up to `most` more rows; returns whether those of all rows before the mark are known."""
        first = max(first, self._cursor)
        self._cursor = max(first, min(mark, first + most))
        codes = store.indexes.encode_keys(self._key, np.arange(first, self._cursor))
        self._codes.add_many(codes[codes >= 0])
        return self._cursor >= mark

    def is_within(self, complete: CodeSet) -> bool:
        """Whether all keys are among the complete ones."""
        if len(complete) < max(len(self._codes), self._compare_at):
            return False
        lacking = int(np.count_nonzero(~complete.has(self._codes.codes())))
        self._compare_at = len(complete) + lacking
        return lacking == 0
