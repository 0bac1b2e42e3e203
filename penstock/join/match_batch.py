"""What a batch brought to those who share a join: new combinations, stored once, and how members choose theirs.

Law: `column` gives, for every combination or for those at some places, the value its part has in the leaf; it does so
as long as the harvest is held, whatever happens to the leaf. Members whose windows are the same on every stream choose
by age: a combination is theirs if its oldest part is younger than the window.

Cost: payload is read from the windows' rings when a member shows it. It is copied for all combinations only if somebody
still holds the harvest when the rings are written to again (`Crop.settle`): what nobody looks at is never gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa

from penstock.expr.nodes import Column, Expr
from penstock.join.join_rows import Rows
from penstock.join.leaf_store import LeafStore
from penstock.join.sharing.interest import NO_CODES, ages
from penstock.join.sharing.shared_needs import Sharers
from penstock.ops.kernels import choose
from penstock.state.alloc import room, taken
from penstock.state.code_set import Mask
from penstock.state.columns import RingColumn
from penstock.state.kernels import FOREVER, I32, I64
from penstock.state.maintenance import Maintenance

Named = tuple[str, str]
"""A column: the alias of its leaf, and its name."""


class Crop:
    """The payload of some combinations, in the rings of their leaves or gathered."""

    def __init__(self, ids: Mapping[str, I64], stores: Mapping[str, LeafStore], names: list[Named]) -> None:
        self._ids = ids
        self._views: dict[Named, RingColumn] = {(alias, name): stores[alias].view(name) for alias, name in names}
        self._gathered: dict[Named, pa.Array] = {}
        for alias in {alias for alias, _ in names}:
            stores[alias].lend(self)

    def read(self, named: Named) -> pa.Array:
        """The values of all combinations, shared by all who ask."""
        if named not in self._gathered:
            self._gathered[named] = self._views[named].take(self._ids[named[0]])
        return self._gathered[named]

    def at(self, places: I64) -> Callable[[Column], pa.Array]:
        """Read columns of the combinations at some places."""
        ids: dict[str, I64] = {}

        def read(column: Column) -> pa.Array:
            alias, named = column.alias, (column.alias, column.name)
            if named in self._gathered:
                return self._gathered[named].take(pa.array(places))
            if alias not in ids:
                ids[alias] = taken(self._ids[alias], places)
            return self._views[named].take(ids[alias])

        return read

    def settle(self) -> None:
        """Gather everything: the rings are about to be written to."""
        for named in self._views:
            self.read(named)
        self._views = {}


@dataclass(frozen=True)
class Harvest:
    """New combinations of a join in temporal order, with all that its members ask of them.

    `rows.dies` is when they die in the join's own windows, `rows.wanted` who wants them if there are several parties;
    `born` is told for every stream with a window in time.
    """

    rows: Rows
    born: Mapping[str, I64]
    counted: I64 | None
    """When the first part in a ROWS window dies, where there are such windows."""
    crop: Crop
    widest: tuple[tuple[str, int], ...]
    """The join's own windows."""
    tested: frozenset[Expr]
    """The predicates the combinations satisfy."""
    holding: Callable[[Sharers], Mask] | None
    """For a party, by code of interest, whether it wants that; None if there is only one party."""
    sheds: bool
    """Whether it was made under a budget: what is stale must not leave then."""
    parties: int
    """How many times parties had become one by then."""
    maintenance: Maintenance
    scope: frozenset[str] | None = None
    """The items of the node they are of, if it is not the root."""
    _at: I64 | None = None
    """Where the combinations stand in the crop, if they are only some of it."""
    _looks: list[int] = field(default_factory=lambda: [0])
    """How often somebody asked for ages: an order by age pays from some looks on."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def oldest(self) -> I64:
        """When the oldest part was born."""
        timed = [self.born[alias] for alias, _ in self.widest]
        return reduce(np.minimum, timed) if timed else self.rows.born

    @cached_property
    def age(self) -> I64:
        return ages(self.rows.born, self.oldest)

    @cached_property
    def _by_age(self) -> tuple[I64, I64]:
        order = np.argsort(self.age, kind="stable")
        return order, self.age[order]

    def of(self, party: Sharers, life: int | None) -> I64 | None:
        """The combinations younger than `life` (None: of any age) that a party wants, in order; None for all."""
        if life is None and self.holding is None:
            return None
        self._looks[0] += 1
        if life is not None and self._looks[0] > self.maintenance.order_after:
            order, ages = self._by_age
            count = int(np.searchsorted(ages, life))
            if self.maintenance.order_share * count < len(self):
                return self.wanted_of(party, np.sort(order[:count]))
        has, codes = self._interest(party)
        out = room(len(self), np.int64)
        count = choose(self.age, int(FOREVER) if life is None else life, codes, has, out)
        return None if count == len(self) else out[:count]

    def wanted_of(self, party: Sharers, places: I64 | None) -> I64 | None:
        """Those of some combinations that a party wants."""
        if self.holding is None:
            return places
        has, codes = self._interest(party)
        return among(places, has[codes if places is None else codes[places]], narrowed=True)

    def _interest(self, party: Sharers) -> tuple[Mask, I32]:
        if self.holding is None or self.rows.wanted is None:
            return np.empty(0, np.bool_), NO_CODES
        return self.holding(party), self.rows.wanted

    def take(self, places: I64) -> Harvest:
        """Some of the combinations."""
        return replace(
            self,
            rows=self.rows.take(places),
            born={alias: born[places] for alias, born in self.born.items()},
            counted=None if self.counted is None else self.counted[places],
            _at=places if self._at is None else self._at[places],
            _looks=[0],
        )

    def reading(self, places: I64 | None) -> Callable[[Column], pa.Array]:
        """Read columns of all combinations, or of those at some places."""
        if self._at is not None:
            places = self._at if places is None else self._at[places]
        if places is None:
            return lambda column: self.crop.read((column.alias, column.name))
        return self.crop.at(places)


def among(places: I64 | None, keep: Mask, *, narrowed: bool = False) -> I64 | None:
    """Those of some positions that a mask keeps: a mask over all, or (`narrowed`) over the positions."""
    if places is None:
        return None if keep.all() else np.flatnonzero(keep)
    return places[keep] if narrowed else places[keep[places]]
