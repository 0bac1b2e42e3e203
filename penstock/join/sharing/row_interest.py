"""The interest of a tree's rows: which filter groups need a combination, and when it leaves their windows.

Law: the interest of a row is the intersection of its parts' interests. A row dies when a part leaves the longest window
of the groups in that intersection; a row with an empty intersection is dead. See `interest` for why intermediate rows
may be dropped by this rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.join.join_rows import JoinRows
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.sharing.leaf_interest import LeafInterest
from penstock.plan import LeafPlan, SubPlan
from penstock.state import ALWAYS, FOREVER, I32, I64, U8

InterestTarget = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], I32, I64, I64]
"""The arguments of `extend_wanted_rows` from `wanted` to `row_reach`."""


class RowInterest:
    """Which of the queries that share a tree need its rows. Exists while their needs differ."""

    def __init__(
        self,
        interest: Interest,
        leaves: Mapping[str, LeafInterest],
        root_code: int,
        early_aliases: frozenset[str] | None,
    ) -> None:
        """`early_aliases`: the aliases of the node that queries over some of the streams read, if there are such."""
        self.interest = interest
        self.root_code = root_code
        """The code of the groups that read the root."""
        self._leaves = leaves
        self._early_aliases = early_aliases

    def covers(self, part: SubPlan) -> bool:
        """Whether rows of a node differ in interest: above an early node they do not if one group reads the root."""
        if self._early_aliases is None or self._early_aliases.issuperset(part.aliases):
            return True
        return self.interest.sets[self.root_code].bit_count() != 1

    def read(self, part: SubPlan, rows: JoinRows) -> I32:
        """The codes of the groups that need all parts of a row."""
        if rows.interest is not None:
            return rows.interest
        first, *others = ((self._leaves[alias], ids) for alias, ids in zip(part.aliases, rows.ids, strict=True))
        codes = first[0].read(first[1])
        if not self.interest.has_few_sets:
            return reduce(self.interest.intersect, (leaf.read(ids) for leaf, ids in others), codes)
        intersections = self.interest.intersection_table()
        for leaf, ids in others:
            leaf.intersect(ids, intersections, codes)
        return codes

    def uses_bits(self) -> bool:
        """Whether the interest of combinations is rows of bits. Those of an early node always have codes."""
        return self._early_aliases is None and self.interest.uses_bits

    def read_bits(self, part: SubPlan, rows: JoinRows) -> U8:
        """As `read`, as rows of bits: not numbered, and not kept."""
        first, *others = ((self._leaves[alias], ids) for alias, ids in zip(part.aliases, rows.ids, strict=True))
        bits: U8 = self.interest.read_sets()[first[0].read(first[1])]
        for leaf, ids in others:
            leaf.intersect_bits(ids, bits)
        return bits

    def read_result(self, part: SubPlan, rows: JoinRows) -> I32:
        """As `read`, for new rows of the root or of the early node."""
        return self.read(part, rows) if self.covers(part) else np.full(len(rows), self.root_code, np.int32)

    def clip(self, part: SubPlan, rows: JoinRows) -> JoinRows:
        """The rows with the deaths that their groups give them. A row that no group needs dies before it is born."""
        if not isinstance(part, LeafPlan) and self.uses_bits():
            return self._clip_by_bits(part, rows)
        codes, dies = self.read(part, rows), rows.dies.copy()
        for alias, ids in zip(part.aliases, rows.ids, strict=True):
            self._leaves[alias].clip_expirations(ids, codes, dies)
        return JoinRows(rows.ids, rows.born, np.where(codes == NO_INTEREST, ALWAYS, dies), codes)

    def _clip_by_bits(self, part: SubPlan, rows: JoinRows) -> JoinRows:
        bits, dies = self.read_bits(part, rows), rows.dies.copy()
        places = np.arange(len(rows), dtype=np.int32)
        for alias, ids in zip(part.aliases, rows.ids, strict=True):
            self._leaves[alias].clip_by_windows(ids, self.interest.find_longest_windows(alias, bits), places, dies)
        return JoinRows(rows.ids, rows.born, np.where(bits.any(axis=1), dies, ALWAYS))

    def restrict(self, part: SubPlan, rows: JoinRows, to: int) -> tuple[JoinRows, I32]:
        """The rows with the codes of those groups in the set `to` that need them, and these codes."""
        codes = self.interest.intersect(self.read(part, rows), np.full(len(rows), to, np.int32))
        return JoinRows(rows.ids, rows.born, rows.dies, codes), codes

    def find_target(self, part: SubPlan, other: SubPlan) -> InterestTarget | None:
        """What a compiled loop needs to test the interest of rows of one leaf and another; None for other nodes."""
        if not isinstance(part, LeafPlan) or not isinstance(other, LeafPlan) or not self.interest.has_few_sets:
            return None
        ours, theirs = self._leaves[part.alias], self._leaves[other.alias]
        table = self.interest.intersection_table()  # before the windows: an intersection may be a new set
        return ours.ring, theirs.ring, table, ours.list_windows(), theirs.list_windows()

    def compute_born_after(self, part: SubPlan, rows: JoinRows, other: SubPlan) -> I64 | None:
        """For each row, the time after which a tuple of the other leaf must be born to be needed together with it."""
        if not isinstance(other, LeafPlan) or other.source.is_table:
            return None
        reach = self.interest.longest_window(other.alias, self.read(part, rows))
        oldest: I64 = rows.born - reach
        return np.where((reach == FOREVER) | (oldest > rows.born), ALWAYS, oldest)
