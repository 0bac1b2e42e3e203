"""History: which of the stored tuples a new query can use, and from when its results are complete.

Law: a query that reads history gets every stored tuple that passes its filters and has all columns it reads. After
`find_missing_until` no tuple is missing that the query needs, because other queries kept it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.expr import Column, compute_mask, find_columns
from penstock.join.leaf_store import LeafStore
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds, StartPoint
from penstock.join.sharing.slices import subtract_time
from penstock.plan import JoinRequirement
from penstock.state import ALWAYS, I32, I64

Stores = Mapping[str, LeafStore]


def can_read_history(member: Member, needs: SharedNeeds, stores: Stores) -> bool:
    """Whether the stored tuples contain everything that a query reads; rows with ends are followed from birth on."""
    need = member.need
    known = {(alias, name) for alias, store in stores.items() for name in store.plan.columns}
    filters = {(alias, column.name) for alias, expr in need.filters for column in find_columns(expr)}
    alike = (group for group in needs.filter_groups if (group.filters, group.scope) == (need.filters, need.scope))
    same = next(alike, None)
    whole = same is not None and same.start.drained_until == ALWAYS and find_gap_end(need, stores) == ALWAYS
    return member.pulls and need.input_columns <= known and (filters <= known or whole)


def find_gap_end(need: JoinRequirement, stores: Stores) -> int:
    """A time after which the stored tuples have the values of all columns that a query reads."""
    read = {
        *need.input_columns,
        *((alias, column.name) for alias, expr in need.filters for column in find_columns(expr)),
    }
    known = (store.gaps.find_end([name for owner, name in read if owner == alias]) for alias, store in stores.items())
    return max(known, default=int(ALWAYS))


def find_missing_until(need: JoinRequirement, needs: SharedNeeds, start: StartPoint, done: int) -> int:
    """A time after which no tuple is missing that the query needs: others of its scope kept it, NULLs included."""
    horizons = []
    groups = [group for group in needs.filter_groups if group.scope == need.scope]
    for alias, _ in need.lifetimes:
        mine = {expr for owner, expr in need.filters if owner == alias}
        wider = [group for group in groups if set(group.filters_of(alias)) <= mine]
        kept = [max(subtract_time(done, group.longest_windows[alias]), group.missing_until) for group in wider]
        horizons.append(min(kept, default=start.drained_until))
    return max(horizons, default=start.drained_until)


def recode_rows(
    stores: Stores,
    groups: Sequence[FilterGroup],
    before: Sequence[FilterGroup],
    interest: Interest,
    *,
    add_history: bool,
) -> dict[str, I32]:
    """The codes of interest of stored tuples for other filter groups: groups from `before` need what they needed.

    `add_history`: the last group, if it is new, needs the stored tuples that pass its filters.
    """
    former = {group: place for place, group in enumerate(before)}
    kept = [former.get(group) for group in groups]
    found = {}
    for alias, store in stores.items():
        ids = store.rows.list_ids()
        if store.plan.source.is_table:
            found[alias] = np.full(ids.size, interest.encode_groups(range(len(kept))), np.int32)
            continue
        if store.interest is None:
            known = interest.encode_groups(place for place, old_place in enumerate(kept) if old_place is not None)
            codes = np.where(store.rows.is_freed(ids), NO_INTEREST, known).astype(np.int32)
        else:
            codes = interest.recode_from(store.interest.read(ids), store.interest.interest, kept)
        if add_history and kept[-1] is None and groups[-1].reads(alias):
            passing = compute_mask(groups[-1].filters_of(alias), partial(_read_column, store, ids), ids.size)
            passing &= store.rows.read_births(ids) > groups[-1].start.drained_until  # older ones lack a column it reads
            codes = interest.add_group(codes, len(groups) - 1, passing)
        found[alias] = codes
    return found


def _read_column(store: LeafStore, ids: I64, column: Column) -> pa.Array:
    return store.rows.take(column.name, ids)
