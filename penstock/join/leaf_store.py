"""A leaf: the tuples of one FROM item that some combination may still need.

Law: after `ingest` the leaf holds, under ascending ids, every tuple that passed its filters, has no NULL in a join term
and is not known to be dead. Leaf states are always complete. Filters reduce what is stored, never what ROWS counts.
Where several queries share the leaf, a tuple lives as long as the longest window of the queries that need it: the ring
is the chain of their slices, and rows that no later slice needs are removed by a compaction.

State: the rows in rings (`stored_rows`), their indexes (`leaf_indexes`), and, where the leaf is shared, the interest of
each row (`sharing/leaf_interest`). Cost: O(1) per tuple, and per match when probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.cql import Source
from penstock.expr import compute_mask
from penstock.join.column_gaps import ColumnGaps
from penstock.join.expiry_order import ExpiryOrder
from penstock.join.leaf_indexes import IdRange, LeafIndexes
from penstock.join.sharing.interest import NO_INTEREST
from penstock.join.sharing.leaf_interest import LeafInterest
from penstock.join.stored_rows import StoredRows
from penstock.join.tuple_selection import select_tuples
from penstock.plan import LeafPlan
from penstock.state import (
    ALWAYS,
    FOREVER,
    I32,
    I64,
    NONE,
    SHIPPED,
    AnnouncedEnds,
    KeySpace,
    LateEnds,
    Maintenance,
    Renumbering,
    RowLines,
    RowsWindow,
    collect_living_rows,
    compute_expirations,
    make_ring_column,
    ring_read,
    ring_write,
    skip_dead_rows,
)


@dataclass(frozen=True)
class LoadedTable:
    """The table that a leaf was loaded from, and the positions of the rows that it keeps."""

    columns: Mapping[str, pa.Array]
    positions: pa.Array

    def read(self, name: str) -> pa.Array:
        """A column of the rows that are kept."""
        return self.columns[name].take(self.positions)


def _make_late_ends(source: Source, maintenance: Maintenance) -> LateEnds | None:
    """How rows end if they do not know their end at birth; None if they do."""
    window = source.window
    if window.announced:
        return AnnouncedEnds(maintenance)
    if window.row_count is None:
        return None
    types = [source.relation.schema.field(name).type for name in window.partition]
    return RowsWindow(window.row_count, types, maintenance)


class LeafStore:
    """The window of one FROM item."""

    def __init__(self, plan: LeafPlan, keys: KeySpace, maintenance: Maintenance = SHIPPED) -> None:
        schema = plan.source.schema
        self.alias = plan.alias
        self.plan = plan
        self.rows = StoredRows(schema, plan.columns, [id_ for id_, _ in plan.terms], maintenance.capacity)
        window = plan.source.window
        self.late_ends: LateEnds | None = _make_late_ends(plan.source, maintenance)
        self.expiry = ExpiryOrder(maintenance, fifo_window=self.late_ends is None or self.late_ends.is_fifo)
        self.indexes = LeafIndexes(self.rows, keys, self.expiry)
        self.gaps = ColumnGaps(self.rows)
        self.interest: LeafInterest | None = None
        """Which queries need each row, while queries with different needs share the leaf."""
        self.table: LoadedTable | None = None
        self.fresh_from = 0
        """Rows from this id on belong to the current batch."""
        self._arrived: RowLines | None = None
        """The rows that were stored last, while they belong to the current batch."""
        self.tuples_read = 0
        self._keys = keys
        self._maintenance = maintenance
        self._lifetime = window.lifetime

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> KeySpace:
        """The codes of join keys."""
        return self._keys

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.indexes.nbytes + (0 if self.interest is None else self.interest.nbytes)

    @property
    def row_bytes(self) -> float:
        """Bytes per stored row, without the space that a ring keeps free."""
        return self.nbytes / self.rows.capacity

    # ── tuples arrive ────────────────────────────────────────────────────────────────────────────────────────────

    def ingest(
        self,
        times: I64,
        columns: Mapping[str, pa.Array],
        wanted: I32 | None = None,
        numbers: I64 | None = None,
    ) -> I64 | None:
        """Store one batch of tuples in their order, with times not before those of earlier batches.

        `wanted` are the tuples' codes of interest where the leaf is shared: filters have been evaluated then. There are
        no codes if all filter groups that read the stream need all tuples.
        `numbers` are those of a relation's rows. Returns the positions of the tuples that are kept, None for all.
        """
        self.tuples_read += times.size
        self.fresh_from = self.rows.end
        kept = select_tuples(self.plan, self._keys, self.interest, columns, times.size, wanted)
        born = kept.take(times)
        dies = self._find_expirations(born, kept.wanted)
        first = self.append(born, dies, kept.codes, kept.read(columns, self.rows.columns), kept.wanted)
        if self.late_ends is None:
            return kept.chosen
        if isinstance(self.late_ends, RowsWindow):
            parts = self.late_ends.encode_partitions([columns[name] for name in self.partition], times.size)
            ids = np.full(times.size, NONE, np.int64)
            ids[slice(None) if kept.chosen is None else kept.chosen] = np.arange(first, self.rows.end)
            self.late_ends.add_tuples(parts, times, ids, self.rows.dies)
        elif isinstance(self.late_ends, AnnouncedEnds) and numbers is not None:
            self.late_ends.add_rows(kept.take(numbers), first)
        return kept.chosen

    def end_rows(self, numbers: I64, times: I64) -> None:
        """Rows of a relation leave it."""
        if isinstance(self.late_ends, AnnouncedEnds):
            self.late_ends.end_rows(numbers, times, self.rows.dies)

    def _compute_expirations(self, born: I64, wanted: I32) -> I64:
        """When stored rows die, whatever queries need them."""
        dies = self._find_expirations(born, wanted)
        return compute_expirations(born, dies) if isinstance(dies, int) else dies

    def _find_expirations(self, born: I64, wanted: I32 | None) -> I64 | int:
        """When tuples born at `born` die: at the end of the longest window that needs them, or how long all live."""
        if wanted is not None and self.interest is not None and self.late_ends is None:
            return self.interest.compute_expirations(born, wanted)
        if self._lifetime is None:
            return np.full(born.size, FOREVER)
        return min(self._lifetime, int(FOREVER))

    def append(
        self, born: I64, dies: I64 | int, codes: Mapping[int, I32], payload: Mapping[str, pa.Array], wanted: I32 | None
    ) -> int:
        """Store rows and enter them into the indexes; returns the id of the first. `dies`: see `StoredRows.append`."""
        rows, first = self.rows, self.rows.end
        need = first - rows.base + born.size
        if need > rows.capacity:
            self._resize(1 << (need - 1).bit_length())
        if born.size:
            self._arrived = rows.append(born, dies, codes, payload)
            if self.interest is not None:
                self.interest.append(first, wanted, born.size)
                self.expiry.add(self._arrived[2])
            self.indexes.add_rows(first, codes)
        return first

    def load(self, table: Mapping[str, pa.Array], rows: int) -> None:
        """Store the rows of a static table: they are always valid and never fresh."""
        chosen = self.ingest(np.full(rows, ALWAYS), table)
        self.table = LoadedTable(table, pa.array(np.arange(rows) if chosen is None else chosen))
        self.end_batch()

    def replace_table(self, table: Mapping[str, pa.Array], rows: int, wanted: int | None) -> None:
        """Store other rows of a static table. `wanted` is their code of interest where the leaf is shared."""
        self.rows.materialize_viewers()
        self.clear()
        self.expiry.restart(self.fresh_ids())
        chosen = np.arange(rows)
        if wanted is not None:  # filters of tables are those of all queries
            chosen = chosen[compute_mask(self.plan.filters, lambda column: table[column.name], rows)]
        given = {name: column.take(pa.array(chosen)) for name, column in table.items()}
        codes = None if wanted is None else np.full(chosen.size, wanted, np.int32)
        kept = self.ingest(np.full(chosen.size, ALWAYS), given, codes)
        self.table = LoadedTable(table, pa.array(chosen if kept is None else chosen[kept]))
        self.end_batch()

    def count_newer_until(self, ids: I64, times: I64) -> I64:
        """How many tuples of the window's partition came after each row by a time, in a row-counted window."""
        assert isinstance(self.late_ends, RowsWindow)
        return self.late_ends.count_newer_until(ids, times)

    def end_batch(self) -> None:
        """The current batch is over: no row is fresh any more."""
        self.fresh_from = self.rows.end
        self._arrived = None

    def find_reach(self) -> int:
        """For how long a row can live; FOREVER if that is not known at its birth."""
        return int(FOREVER) if self.late_ends is not None or self._lifetime is None else self._lifetime

    @property
    def partition(self) -> tuple[str, ...]:
        """The PARTITION BY columns of the window."""
        window = self.plan.source.window
        return window.partition if window is not None else ()

    def read_fresh(self) -> RowLines:
        """The ids, births and deaths of this batch's rows."""
        arrived, first, end = self._arrived, self.fresh_from, self.rows.end
        if arrived is not None and arrived.shape[1] == end - first and self.late_ends is None:
            return arrived
        return self.rows.read_span(first, end)

    def fresh_ids(self) -> I64:
        """The ids of this batch's rows."""
        return np.arange(self.fresh_from, self.rows.end)

    def id_range(self, first: int, *, old_only: bool) -> IdRange:
        """The rows from a stored one on, with or without those of the current batch."""
        return first, self.fresh_from if old_only else self.rows.end

    # ── tuples die ───────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, bound: int) -> Renumbering | None:
        """Drop rows that die at or before `bound`; ids change where rows die out of order."""
        rows, least = self.rows, self._maintenance.capacity
        rows.base = skip_dead_rows(rows.dies, rows.capacity - 1, rows.base, rows.end, bound)
        if not self.expiry.in_order and self.expiry.is_count_due(rows):
            return self._compact_if_sparse(bound)
        if rows.capacity > 8 * least and rows.capacity > 8 * len(rows):
            self._resize(max(least, 1 << (2 * len(rows)).bit_length()))
        return None

    def _compact_if_sparse(self, bound: int) -> Renumbering | None:
        """Close the gaps that dead rows leave between living ones, if there are too many."""
        rows = self.rows
        kept = np.empty(len(rows), np.int64)
        kept = kept[: collect_living_rows(rows.dies, rows.capacity - 1, rows.base, rows.end, bound, kept)]
        return self._compact(kept) if self.expiry.has_too_many_dead(rows, kept.size) else None

    def _compact(self, kept: I64) -> Renumbering:
        first = self.rows.move(kept)
        if self.interest is not None:
            self.interest.move(kept, first)
        self.expiry.restart(kept[:0] if self.interest is None else ring_read(self.rows.dies, first, self.rows.end))
        if kept.size:
            self.indexes.add_rows(first)
        if self.late_ends is not None:
            self.late_ends.renumber(kept, first, ring_read(self.rows.dies, first, self.rows.end) == FOREVER)
        self.end_batch()
        self.expiry.mark_compacted(self.rows)
        change = Renumbering(kept, first)
        self.gaps.renumber(change)
        return change

    def truncate(self, end: int, tuples: int) -> None:
        """Remove the newest rows, from `end` on, as if the last `tuples` tuples had not arrived."""
        self.rows.materialize_viewers()
        self.indexes.retract(end)
        self.rows.end = self.fresh_from = end
        self.expiry.truncate(self.rows)
        self.tuples_read -= tuples

    def clear(self) -> None:
        """Drop all rows: none is read again."""
        self.rows.base = self.fresh_from = self.rows.end

    def _resize(self, capacity: int) -> None:
        self.rows.resize(capacity)
        self.indexes.resize()
        if self.interest is not None:
            self.interest.resize()
        if self.late_ends is not None:
            self.late_ends.resize(capacity, self.rows.base, self.rows.end)

    # ── queries are added and removed ────────────────────────────────────────────────────────────────────────────

    def update_sharing(self, plan: LeafPlan, interest: LeafInterest | None, wanted: I32) -> None:
        """Keep other columns, and tuples for other queries. `wanted` are the new codes of the stored rows."""
        self.update_plan(plan)
        self.interest = interest
        ids = self.rows.list_ids()
        born, dies = self.rows.read_lifetimes(ids)
        if self.late_ends is None and not plan.source.is_table:
            dies = self._compute_expirations(born, wanted)
        dies = np.where(wanted == NO_INTEREST, ALWAYS, dies)
        ring_write(self.rows.dies, self.rows.base, dies)
        if self.late_ends is not None:
            self.late_ends.keep_only(ids[dies == FOREVER])
        self.expiry.restart(dies)

    def update_plan(self, plan: LeafPlan) -> None:
        """Keep other columns, and tuples that arrive from now on by another window."""
        self._update_columns(plan)
        self.plan = plan
        window = plan.source.window
        self._lifetime = window.lifetime
        count, ends = window.row_count, self.late_ends
        if isinstance(ends, RowsWindow) and count is not None and count != ends.size:
            ids = self.rows.list_ids()
            ends.set_size(count, ids[self.rows.read_expirations(ids) == FOREVER], self.rows.dies)

    def _update_columns(self, plan: LeafPlan) -> None:
        """Keep the columns of a plan. A new column is NULL in the rows stored so far: see `column_gaps`."""
        rows, schema = self.rows, plan.source.schema
        if any(name not in plan.columns for name in rows.columns):
            rows.materialize_viewers()
        columns = {name: rows.columns[name] for name in plan.columns if name in rows.columns}
        for name in plan.columns:
            if name not in columns:
                column = columns[name] = make_ring_column(schema.field(name).type, rows.capacity)
                if self.table is not None:
                    column.append(rows.base, rows.base, self.table.read(name))
                elif len(rows):
                    column.append(rows.base, rows.base, pa.nulls(len(rows), schema.field(name).type))
                    self.gaps.add(name)
        rows.columns = {name: columns[name] for name in plan.columns}
        self.gaps.retain(rows.columns)
        self.indexes.keep_columns(rows.columns)
