"""Match batches: the new combinations of one batch, stored once, from which each member selects its own.

Law: a reader returns, for all combinations or for those at some positions, the value of a column in the leaf. It does
so as long as the match batch exists, for any later changes of the leaf. Members with the same window on every stream
select by age: a combination is theirs if its oldest part is younger than the window.

Cost: payload is read from the windows of the leaves when a member builds its rows. It is copied for all combinations
only if the match batch still exists when a part leaves its window (`PayloadView.materialize`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from penstock.expr import Column, Expr
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_store import LeafStore
from penstock.join.sharing.interest import NO_CODES, compute_ages
from penstock.join.sharing.kernels import select_by_age
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.join.stored_rows import StoredRows
from penstock.plan import RowCounts
from penstock.state import FOREVER, I32, I64, U8, Maintenance, Mask, allocate, gather, take_values

ColumnRef = tuple[str, str]
"""A column: the alias of its leaf, and its name."""


class PayloadView:
    """The payload of some combinations, in the windows of their leaves or copied."""

    def __init__(self, ids: Mapping[str, I64], stores: Mapping[str, LeafStore], names: Sequence[ColumnRef]) -> None:
        """`names`: the columns that can be read."""
        self._ids = ids
        self._rows: dict[str, StoredRows] = {alias: stores[alias].rows for alias in ids}
        """By alias, the rows that the combinations refer to; empty when all is copied."""
        self._names = names
        self._gathered: dict[ColumnRef, pa.Array] = {}
        self._births: dict[str, I64] = {}
        self._oldest: dict[str, int] = {}
        for alias, rows in self._rows.items():
            rows.add_viewer(self, alias)

    def read_column(self, named: ColumnRef) -> pa.Array:
        """The values of all combinations, read once for all members."""
        if named not in self._gathered:
            alias, name = named
            self._gathered[named] = self._rows[alias].take(name, self._ids[alias])
        return self._gathered[named]

    def read_births(self, alias: str) -> I64:
        """The births of the parts from one stream."""
        if alias not in self._births:
            self._births[alias] = self._rows[alias].read_births(self._ids[alias])
        return self._births[alias]

    def make_reader(self, places: I64, *, keeps: bool = False) -> Callable[[Column], pa.Array]:
        """Read columns of the combinations at some positions. `keeps`: columns of all are copied once, and kept."""
        ids: dict[str, I64] = {}

        def read(column: Column) -> pa.Array:
            alias, named = column.alias, (column.alias, column.name)
            if keeps or not self._rows:
                return take_values(self.read_column(named), places)
            if alias not in ids:
                ids[alias] = gather(self._ids[alias], places)
            return self._rows[alias].take(column.name, ids[alias])

        return read

    def compute_ages(self, born: I64, aliases: Iterable[str]) -> I64:
        """The ages at `born` of the oldest parts from some streams, at most FOREVER."""
        ages = np.zeros(born.size, np.int64)
        for alias in aliases:
            if self._rows:
                self._rows[alias].raise_ages(self._ids[alias], born, ages)
            else:
                np.maximum(ages, compute_ages(born, self._births[alias]), out=ages)
        return ages

    def find_oldest(self, alias: str) -> int:
        """The smallest id of a row of a leaf."""
        if alias not in self._oldest:
            self._oldest[alias] = int(self._ids[alias].min(initial=FOREVER))
        return self._oldest[alias]

    def keep_rows(self, alias: str, former: StoredRows) -> None:
        """A leaf renumbers its rows: read them as they were, or copy what they show if that takes less memory."""
        if alias in self._rows and self._ids[alias].size >= len(former):
            self._rows[alias] = former
        else:
            self.materialize()

    def materialize(self) -> None:
        """Copy all columns and births: the rows are about to be overwritten or renumbered."""
        for named in self._names:
            self.read_column(named)
        for alias in self._rows:
            self.read_births(alias)
        self._names, self._rows = (), {}


@dataclass(frozen=True)
class MatchOrigin:
    """The state of the join when a match batch was found; the batch may be read long after."""

    widest_windows: tuple[tuple[str, int], ...]
    """The join's own windows."""
    satisfied: frozenset[Expr]
    """The predicates that all combinations satisfy."""
    largest_counts: RowCounts
    """The sizes of the join's own row-counted windows."""
    under_budget: bool
    """Whether the join had a budget: stale combinations are dropped then."""
    merge_count: int
    """How many times filter groups had been merged."""
    maintenance: Maintenance
    scope: frozenset[str] | None = None
    """The aliases of the early node that found the combinations; None for the root."""

    @cached_property
    def longest_window(self) -> int:
        """The longest of the join's own windows."""
        return max((life for _, life in self.widest_windows), default=0)


@dataclass
class MatchBatch:
    """New combinations of a join in temporal order, with everything that its members read of them.

    `rows.dies` is when they die in the join's own windows; `rows.interest` are their codes of interest if there are
    several filter groups.
    """

    rows: JoinRows
    late_expirations: I64 | None
    """When the first part in a ROWS window dies, if there are such windows."""
    row_ages: Mapping[str, I64]
    """By alias with row-counted windows of several sizes: how many tuples had come after each part at the birth."""
    payload: PayloadView
    membership: Callable[[FilterGroup], Mask] | None
    """For a filter group, by code of interest, whether the group is in its set; None if there is only one group."""
    origin: MatchOrigin
    group_bits: U8 | None = None
    """The sets of filter groups as rows of bits, if they have no codes: `rows.interest` are places of rows then."""
    _payload_places: I64 | None = None
    """The positions of the combinations in the payload view, if they are only some of it."""
    _age_lookups: list[int] = field(default_factory=lambda: [0])
    """How many members selected by age: sorting by age is worth its cost after some of them."""
    tables: WeakValueDictionary[Hashable, pa.Table] = field(default_factory=WeakValueDictionary)
    """The tables that were built of it and are still in use, by their selection and their columns."""

    def __len__(self) -> int:
        return len(self.rows)

    def read_births(self, alias: str) -> I64:
        """The births of the parts from one stream."""
        births = self.payload.read_births(alias)
        return births if self._payload_places is None else births[self._payload_places]

    @cached_property
    def oldest_birth(self) -> I64:
        """The birth of the oldest part."""
        timed = [self.read_births(alias) for alias, _ in self.origin.widest_windows]
        return reduce(np.minimum, timed) if timed else self.rows.born

    @cached_property
    def age(self) -> I64:
        aliases = [alias for alias, _ in self.origin.widest_windows]
        if self._payload_places is None:
            return self.payload.compute_ages(self.rows.born, aliases)
        return compute_ages(self.rows.born, self.oldest_birth)

    @cached_property
    def _age_order(self) -> tuple[I64, I64]:
        order = np.argsort(self.age, kind="stable")
        return order, self.age[order]

    def select_younger(self, filter_group: FilterGroup, life: int | None) -> I64 | None:
        """The combinations younger than `life` (None: of any age) that a filter group needs, in order; None for all."""
        if life is None and self.membership is None:
            return None
        self._age_lookups[0] += 1
        if life is not None and self._has_many_readers():
            order, ages = self._age_order
            count = int(ages.searchsorted(life))
            if self.origin.maintenance.order_share * count < len(self):
                return self.select_wanted(filter_group, np.sort(order[:count]))
        has, codes = self._read_interest(filter_group)
        out = allocate(len(self), np.int64)
        count = select_by_age(self.age, int(FOREVER) if life is None else life, codes, has, out)
        return None if count == len(self) else out[:count]

    def _has_many_readers(self) -> bool:
        """Whether so many members selected by age that sorting by age, and copying columns for all, is worth it."""
        return self._age_lookups[0] > self.origin.maintenance.order_after

    def identify_selection(self, filter_group: FilterGroup, life: int | None) -> Hashable:
        """A value that is equal only if `select_younger` returns the same places."""
        if life is None:
            return filter_group, len(self)
        if self._has_many_readers():  # all lives between two ages select the same
            return filter_group, int(self._age_order[1].searchsorted(life))
        return filter_group, None, life

    def select_wanted(self, filter_group: FilterGroup, places: I64 | None) -> I64 | None:
        """Those of some combinations that a filter group needs."""
        if self.membership is None:
            return places
        has, codes = self._read_interest(filter_group)
        return filter_positions(places, has[codes if places is None else codes[places]], narrowed=True)

    def _read_interest(self, filter_group: FilterGroup) -> tuple[Mask, I32]:
        if self.membership is None or self.rows.interest is None:
            return np.empty(0, np.bool_), NO_CODES
        return self.membership(filter_group), self.rows.interest

    def take(self, places: I64) -> MatchBatch:
        """Some of the combinations."""
        return replace(
            self,
            rows=self.rows.take(places),
            late_expirations=None if self.late_expirations is None else self.late_expirations[places],
            row_ages={alias: ages[places] for alias, ages in self.row_ages.items()},
            group_bits=None if self.group_bits is None else self.group_bits[places],
            _payload_places=places if self._payload_places is None else self._payload_places[places],
            _age_lookups=[0],
            tables=WeakValueDictionary(),
        )

    def make_reader(self, places: I64 | None) -> Callable[[Column], pa.Array]:
        """Read columns of all combinations, or of those at some positions."""
        if self._payload_places is not None:
            places = self._payload_places if places is None else self._payload_places[places]
        if places is None:
            return lambda column: self.payload.read_column((column.alias, column.name))
        return self.payload.make_reader(places, keeps=self._has_many_readers())


def filter_positions(places: I64 | None, keep: Mask, *, narrowed: bool = False) -> I64 | None:
    """Those of some positions that a mask keeps: a mask over all, or (`narrowed`) over the positions."""
    if places is None:
        return None if keep.all() else np.flatnonzero(keep)
    return places[keep] if narrowed else places[keep[places]]
