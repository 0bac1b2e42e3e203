"""Builds the match batches of a shared join: new combinations with everything that members read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import numpy as np

from penstock.join.join_rows import JoinRows, sort_rows
from penstock.join.match_batch import MatchBatch, MatchOrigin, PayloadView
from penstock.join.running_trees import RunningTrees
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.row_interest import RowInterest
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds
from penstock.join.tree import JoinTree
from penstock.plan import RowCounts, SubPlan
from penstock.state import I64, U8, Mask

_NO_AGES: Mapping[str, I64] = {}


class MatchBuilder:
    """Builds match batches with the columns and births that the members of a join read."""

    def __init__(self, trees: RunningTrees, late_ending: Sequence[str]) -> None:
        """`late_ending`: the aliases with a ROWS window."""
        self.widest_windows: tuple[tuple[str, int], ...] = ()
        """The join's own windows."""
        self._largest_counts: RowCounts = ()
        self._several_counts: list[str] = []
        """The aliases with row-counted windows of several sizes."""
        self.merge_count = 0
        """How many times filter groups were merged."""
        self.late_ending = late_ending
        self._trees = trees
        self._group_places: Mapping[FilterGroup, int] = {}
        self._shown_columns: list[tuple[str, str]] = []
        self._origins: dict[frozenset[str] | None, MatchOrigin] = {}
        """By scope, what the last match batch said of the join."""

    def update(self, needs: SharedNeeds) -> None:
        """Build for other members."""
        self.widest_windows = tuple(sorted(needs.find_longest_windows().items()))
        self._largest_counts = tuple(sorted(needs.find_largest_counts().items()))
        sizes = Counter(alias for alias, _ in {each for counts in needs.row_counts for each in counts})
        self._several_counts = [alias for alias, count in sizes.items() if count > 1]
        self._group_places = {group: place for place, group in enumerate(needs.filter_groups)}
        self._shown_columns = needs.list_shown_columns()
        self._origins = {}

    def build(self, rows: JoinRows) -> MatchBatch:
        """New combinations of the root in temporal order."""
        return self._build(self._trees.tree.plan.root, rows, None)

    def build_early(self, part: SubPlan, rows: JoinRows, interest: RowInterest, readers: int) -> MatchBatch:
        """As `build`, of the early node, for the groups that read it (the code `readers`)."""
        rows, codes = interest.restrict(part, rows, readers)
        return self._build(part, rows.take(np.flatnonzero(codes)), frozenset(part.aliases))

    def _build(self, part: SubPlan, rows: JoinRows, scope: frozenset[str] | None) -> MatchBatch:
        rows = sort_rows(rows)
        tree = self._trees.tree
        stores, interest = tree.stores, tree.context.interest
        ids = dict(zip(part.aliases, rows.ids, strict=True))
        membership: Callable[[FilterGroup], Mask] | None = None
        bits = None
        if interest is not None and rows.interest is None and interest.uses_bits():
            bits = interest.read_bits(part, rows)
            rows = JoinRows(rows.ids, rows.born, rows.dies, np.arange(len(rows), dtype=np.int32))
            membership = partial(_read_bit, bits, self._group_places)
        elif interest is not None:
            rows = JoinRows(rows.ids, rows.born, rows.dies, interest.read_result(part, rows))
            membership = partial(_read_membership, interest.interest, self._group_places)
        counted = [stores[alias].rows.read_expirations(ids[alias]) for alias in self.late_ending]
        origin = self._describe_origin(tree, part, scope)
        names = self._shown_columns if scope is None else [named for named in self._shown_columns if named[0] in ids]
        late = reduce(np.minimum, counted) if counted else None
        ages: Mapping[str, I64] = _NO_AGES
        if self._several_counts:
            ages = {alias: stores[alias].count_newer_until(ids[alias], rows.born) for alias in self._several_counts}
        return MatchBatch(rows, late, ages, PayloadView(ids, stores, names), membership, origin, bits)

    def _describe_origin(self, tree: JoinTree, part: SubPlan, scope: frozenset[str] | None) -> MatchOrigin:
        known, under_budget = self._origins.get(scope), tree.shedding is not None
        if known is None or (known.satisfied, known.under_budget, known.merge_count) != (
            tree.plan.residuals, under_budget, self.merge_count
        ):  # fmt: skip
            windows = tuple((alias, life) for alias, life in self.widest_windows if alias in part.aliases)
            known = self._origins[scope] = MatchOrigin(
                windows,
                tree.plan.residuals,
                self._largest_counts,
                under_budget,
                self.merge_count,
                tree.maintenance,
                scope,
            )
        return known

    def list_late_ending_places(self) -> list[int]:
        """The places of aliases with ROWS windows in a row of the root."""
        return [self._trees.tree.plan.root.aliases.index(alias) for alias in self.late_ending]


def _read_bit(bits: U8, places: Mapping[FilterGroup, int], group: FilterGroup) -> Mask:
    """By combination, whether a filter group is in its row of bits."""
    place = places[group]
    return (bits[:, place >> 3] >> np.uint8(place & 7) & np.uint8(1)).astype(np.bool_)


def _read_membership(interest: Interest, places: Mapping[FilterGroup, int], group: FilterGroup) -> Mask:
    """By code of interest, whether a filter group is in its set."""
    return interest.membership(places[group])
