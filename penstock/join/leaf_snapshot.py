"""The rows of a leaf in a snapshot.

Law: a leaf that restores a dump holds the rows that lived when it was dumped, with the same lifetimes, join terms,
columns and codes of interest, under new ids.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.join.leaf_store import LeafStore
from penstock.state import FOREVER, KeySpace, RowsWindow


def dump_leaf(store: LeafStore, keys: KeySpace, bound: int, end: int | None = None) -> pa.Table:
    """The rows (those before `end`) that live after `bound`, with everything that a restore needs."""
    rows = store.rows
    ids = np.arange(rows.base, rows.end if end is None else end)
    ids = ids[rows.read_lifetimes(ids)[1] > bound]
    born, dies = rows.read_lifetimes(ids)
    columns = {"_born": pa.array(born), "_dies": pa.array(dies)}
    if store.interest is not None:
        columns["_wanted"] = pa.array(store.interest.read(ids))
    if isinstance(store.late_ends, RowsWindow):
        columns["_age"] = pa.array(store.late_ends.count_newer(ids))
    for id_, _ in store.plan.terms:
        columns[f"_term{id_}"] = keys.interners[id_].values(rows.codes(id_, ids))
    columns |= {f"column {name}": rows.take(name, ids) for name in rows.columns}
    return pa.table(columns)


def restore_leaf(store: LeafStore, keys: KeySpace, table: pa.Table, column_gaps: Mapping[str, int]) -> None:
    """Store the rows of a dump as rows of the current batch, so that one pass over the tree rebuilds all states.

    `column_gaps` are the gaps of the leaf when it was dumped.
    """
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    born, dies = (columns[name].to_numpy() for name in ("_born", "_dies"))
    codes = {id_: keys.interners[id_].intern(columns[f"_term{id_}"]) for id_, _ in store.plan.terms}
    store.fresh_from = store.rows.end
    wanted = columns["_wanted"].to_numpy() if "_wanted" in columns else None
    payload = {name: columns[f"column {name}"] for name in store.rows.columns}
    first = store.append(born, dies, codes, payload, wanted)
    if isinstance(store.late_ends, RowsWindow):
        partition = [columns[f"column {name}"] for name in store.partition]
        parts = store.late_ends.encode_partitions(partition, born.size)
        store.late_ends.restore(parts, columns["_age"].to_numpy(), first, dies == FOREVER)
    store.gaps.restore({name: time for name, time in column_gaps.items() if name in store.rows.columns})
