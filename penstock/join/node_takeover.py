"""A wider join takes over a narrower one: its windows, its place in the arcs, and what its queries know.

Law: the queries of the narrower join, which read the early node of the wider one from then on, get the results that
they would have got. For the queries of the root the wider join is as new: rows that it takes over count as processed,
and the root does not need them.

Cost: the stored rows of the narrower join are copied once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.join.leaf_snapshot import dump_leaf
from penstock.join.leaf_store import LeafStore
from penstock.join.operator import JoinOperator
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.sharing.member import Member
from penstock.plan import rename_terms
from penstock.state import I32, NONE

MOST_MEMBERS = 64
"""A join of more queries stays as it is: each of them starts again."""


def can_be_taken_over(join: JoinOperator) -> bool:
    """Whether all queries of a join could read a node of another one: they only read its new rows."""
    shared = join.shared_join
    plain = not any(member.emits_ends or member.waits or member.need.scope is not None for member in shared.members)
    free = not (join.stopped or join.trees.on_parallel_track or join.tree.shedding is not None)
    spilled = any(store.rows.spilled_columns for store in join.tree.stores.values())
    return plain and free and not spilled and len(shared.members) <= MOST_MEMBERS


def take_over(
    wide: JoinOperator, narrow: JoinOperator, names: Mapping[str, str], moved: Mapping[Member, Member]
) -> None:
    """Continue a narrower join in a wider one that has no rows yet.

    `names`: the wider join's alias for each of the narrower one's. `moved`: by member of the narrower join, the member
    of the wider one that continues it and was just added.
    """
    for old, new in moved.items():
        _take_over_member(old, new, narrow)
    shared, early, interest = wide.shared_join, wide.inputs.early, wide.shared_join.interest
    assert early is not None
    assert interest is not None
    new_groups = {new.filter_group: old.filter_group for old, new in moved.items()}
    old_places = {group: place for place, group in enumerate(narrow.shared_join.needs.filter_groups)}
    kept = [old_places.get(new_groups.get(group)) for group in shared.needs.filter_groups]  # type: ignore[arg-type]
    classes = _match_classes(wide, narrow, names)
    for alias, named in names.items():
        table = dump_leaf(narrow.tree.stores[alias], narrow.tree.keys, narrow.done)
        codes = _recode(table, narrow.shared_join.interest, interest, kept)
        _store_rows(wide.tree.stores[named], narrow.tree.stores[alias], table, codes, classes)
    unread = {names[alias]: rows for alias, rows in narrow.inputs.unread().items()}
    early.move_to(narrow.done, unread)
    wide.tree.rebuild(wide.tree.plan)  # without output: the readers of the node have these rows already
    for store in wide.tree.stores.values():
        store.end_batch()


def _take_over_member(old: Member, new: Member, narrow: JoinOperator) -> None:
    new.emitted, new.counted_before = narrow.shared_join.counts.count_emitted(old), 0
    new.stale, new.failure, new.complete_since = old.stale, old.failure, old.complete_since
    new.filter_group.failure = old.filter_group.failure
    new.filter_group.missing_until = old.filter_group.missing_until


def _match_classes(wide: JoinOperator, narrow: JoinOperator, names: Mapping[str, str]) -> dict[int, int]:
    """By class of the wider join the class of the narrower one with the same terms of its streams."""
    inside = set(names.values())
    known = {rename_terms(class_, names): class_.id for class_ in narrow.tree.plan.classes}
    found = {}
    for class_ in wide.tree.plan.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in inside)
        if bound in known:
            found[class_.id] = known[bound]
    return found


def _recode(table: pa.Table, before: Interest | None, interest: Interest, kept: Sequence[int | None]) -> I32:
    """The codes of interest of rows for the groups of the wider join."""
    if before is None:
        places = [place for place, old_place in enumerate(kept) if old_place is not None]
        return np.full(table.num_rows, interest.encode_groups(places), np.int32)
    return interest.recode_from(table.column("_wanted").to_numpy(), before, kept)


def _store_rows(store: LeafStore, former: LeafStore, table: pa.Table, codes: I32, classes: Mapping[int, int]) -> None:
    """Store the rows of another leaf. The terms that join only the other streams are unknown, as if they were NULL."""
    alive = codes != NO_INTEREST
    rows, wanted = table.filter(pa.array(alive)), codes[alive]
    born, count = rows.column("_born").to_numpy(), rows.num_rows
    assert store.interest is not None
    keys = store.keys.interners
    terms = {
        id_: keys[id_].intern(rows.column(f"_term{classes[id_]}").combine_chunks())
        if id_ in classes
        else np.full(count, NONE, np.int32)
        for id_, _ in store.plan.terms
    }
    known = {name: rows.column(f"column {name}").combine_chunks() for name in former.rows.columns}
    schema = store.plan.source.schema
    payload = {
        name: known[name] if name in known else pa.nulls(count, schema.field(name).type) for name in store.rows.columns
    }
    store.append(born, store.interest.compute_expirations(born, wanted), terms, payload, wanted)
    store.gaps.restore({name: end for name, end in former.gaps.list_ends().items() if name in store.rows.columns})
    for name in store.rows.columns:
        if count and name not in known:
            store.gaps.add(name)
