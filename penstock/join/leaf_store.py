"""A leaf: the tuples of one FROM item that some combination may still need.

Law: after `ingest` the leaf holds, under ascending ids, every tuple that passed its filters, has no NULL in a join term
and is not known to be dead. Leaf states are always complete. Filters thin what is stored, never what ROWS counts.
Where several queries share the leaf, a tuple lives as long as one of those that want it (`interest`) needs it: its ring
is the chain of their slices, and what no later slice wants is squeezed out of it.

State: rings (see `columns`) with born, dies, a code per equality class and the columns read above; indexes are made
when first asked for. Cost: O(1) per tuple, and per match when probed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import compute_mask, evaluate
from penstock.expr.nodes import Column
from penstock.join.sharing.code_ring import CodeRing
from penstock.join.sharing.interest import NO_INTEREST, Interest
from penstock.join.sharing.kernels import (
    clip_expirations,
    compute_window_ends,
    is_ascending,
    probe_with_interest,
)
from penstock.join.stored_rows import StoredRows
from penstock.plan.physical import Key, LeafPlan
from penstock.state.chain_index import ChainIndex
from penstock.state.code_set import Mask
from penstock.state.columns import make_ring_column, ring_read, ring_write
from penstock.state.interning import KeySpace
from penstock.state.kernels import ALWAYS, I32, I64, NONE, collect_living_rows, probe_chain, skip_dead_rows
from penstock.state.maintenance import SHIPPED, Maintenance
from penstock.state.probe_blocks import NO_AGE_LIMIT, PairBlock, ProbeBuffer, ProbeTarget
from penstock.state.sorted_index import F64, SortedIndex, to_floats
from penstock.state.windows import RowsWindow, compute_expirations, get_lifetime

_NO_FRESH_MARKS = np.empty(0, np.uint8)

KeyCodes = Mapping[int, I32]
"""For some classes, the code that each probe demands."""

IdRange = tuple[int, int]
"""Rows from an id to before another."""


@dataclass(frozen=True)
class Renumbering:
    """Rows `kept` (ascending) have become first, first + 1, …; every other row is dead."""

    kept: I64
    first: int

    def apply(self, ids: I64) -> tuple[I64, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """The new ids, and which of the old ones are still alive."""
        place = np.minimum(np.searchsorted(self.kept, ids), max(self.kept.size - 1, 0))
        alive = self.kept[place] == ids if self.kept.size else np.zeros(ids.size, np.bool_)
        return place + self.first, alive

    def map_mark(self, row: int) -> int:
        """The new id of the first row that is still alive from an old id on."""
        return self.first + int(np.searchsorted(self.kept, row))


class LeafStore(StoredRows):
    """The window of one FROM item."""

    def __init__(self, plan: LeafPlan, keys: KeySpace, maintenance: Maintenance = SHIPPED) -> None:
        schema = plan.source.relation.schema
        super().__init__(schema, plan.columns, [id_ for id_, _ in plan.terms], maintenance.capacity)
        self._maintenance = maintenance
        self.plan = plan
        self.keys = keys
        self.fresh_from = 0
        """Rows from here on are of the batch in progress."""
        window = plan.source.window
        self._lifetime = get_lifetime(window)
        self.rows_window: RowsWindow | None = None
        if window is not None and window.kind == "rows":
            types = [schema.field(name).type for name in window.partition]
            self.rows_window = RowsWindow(window.size or 0, types, maintenance.capacity)
        self._fifo = self.rows_window is None or self.rows_window.is_fifo
        self._indexes: dict[Key, ChainIndex] = {}
        self._sorted_indexes: dict[str, SortedIndex] = {}
        self.max_dead_ratio = maintenance.dead_per_living
        """How many dead rows between living ones are put up with, for each living one."""
        self._counted_until = self._living_count = 0
        """Where the rows ended when the living ones were last counted, and how many those were."""
        self._last_expiration = int(ALWAYS)
        self.table: Mapping[str, pa.Array] | None = None
        self._table_positions = pa.array([], pa.int64())
        self.null_interest: Mapping[int, int] = {}
        """Classes in which a term may be NULL, each with the code of those who want the tuple nevertheless."""
        self.tuples_read = 0
        self._column_first_row: dict[str, int] = {}
        """The first row that has its value, for columns that rows before it were stored without."""

    @property
    def alias(self) -> str:
        return self.plan.alias

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(index.nbytes for index in self._indexes.values())

    # ── tuples come ──────────────────────────────────────────────────────────────────────────────────────────────

    def ingest(self, times: I64, columns: Mapping[str, pa.Array], wanted: I32 | None = None) -> I64 | None:
        """One batch of tuples in their order, with times not before those of earlier batches.

        `wanted` are the tuples' codes of interest where the leaf is shared: filters have been looked at then. Returns
        the positions of the tuples that are kept, None for all.
        """
        rows = times.size
        self.tuples_read += rows
        self.fresh_from = self.end
        chosen = self._find_passing(columns, rows) if wanted is None else _find_positions(wanted)
        codes = self._encode_terms(columns, chosen, rows if chosen is None else chosen.size)
        lacking = [
            column for id_, column in codes.items() if id_ not in self.null_interest and column.min(initial=0) < 0
        ]
        if lacking:
            matchable = np.logical_and.reduce([column >= 0 for column in lacking])
            chosen = np.flatnonzero(matchable) if chosen is None else chosen[matchable]
            codes = {id_: column[matchable] for id_, column in codes.items()}
        if wanted is not None and chosen is not None:
            wanted = wanted[chosen]
        if self.null_interest and wanted is not None:
            chosen, codes, wanted = self._narrow_null_interest(
                np.arange(rows) if chosen is None else chosen, codes, wanted
            )
        stored = times if chosen is None else times[chosen]
        read = _make_reader(columns, chosen)
        payload = {name: read(Column(self.alias, name, pa.null())) for name in self._columns}
        first = self._append(stored, self._compute_expirations(stored, wanted), codes, payload, wanted)
        if self.rows_window is not None:
            parts = self.rows_window.encode_partitions([columns[name] for name in self._partition], rows)
            ids = np.full(rows, NONE, np.int64)
            ids[slice(None) if chosen is None else chosen] = np.arange(first, self.end)
            self.rows_window.add_tuples(parts, times, ids, self.dies)
        return chosen

    def _narrow_null_interest(self, chosen: I64, codes: dict[int, I32], wanted: I32) -> tuple[I64, dict[int, I32], I32]:
        """Let tuples with a NULL be wanted by those only who can do without that term."""
        assert self.interest is not None
        for id_, by in self.null_interest.items():
            excused = self.interest.intersect(wanted, np.full(wanted.size, by, np.int32))
            wanted = np.where(codes[id_] < 0, excused, wanted)
        kept = wanted != NO_INTEREST
        return chosen[kept], {id_: column[kept] for id_, column in codes.items()}, wanted[kept]

    def _find_passing(self, columns: Mapping[str, pa.Array], rows: int) -> I64 | None:
        """The positions of the tuples that pass the filters; None for all."""
        if not self.plan.filters:
            return None
        return _find_positions(compute_mask(self.plan.filters, lambda column: columns[column.name], rows))

    def _compute_expirations(self, born: I64, wanted: I32 | None) -> I64:
        """When tuples die that came at `born`: at the end of the window, or of the longest one that wants them."""
        if wanted is None or self.interest is None or self.rows_window is not None:
            return compute_expirations(born, self._lifetime)
        dies = np.empty(born.size, np.int64)
        compute_window_ends(born, self.interest.longest_windows(self.alias), wanted, dies)
        return dies

    def _encode_terms(self, columns: Mapping[str, pa.Array], chosen: I64 | None, rows: int) -> dict[int, I32]:
        """The codes of the chosen tuples in every class, NONE where the term is NULL."""
        read = _make_reader(columns, chosen)
        return {id_: self.keys.interners[id_].intern(evaluate(term, read, rows)) for id_, term in self.plan.terms}

    def load(self, table: Mapping[str, pa.Array], rows: int) -> None:
        """The rows of a static table: always valid, never fresh."""
        chosen = self.ingest(np.full(rows, ALWAYS), table)
        self._table_positions = pa.array(np.arange(rows) if chosen is None else chosen)
        self.table = table
        self.end_batch()

    def end_batch(self) -> None:
        """The batch in progress is over."""
        self.fresh_from = self.end

    @property
    def _partition(self) -> tuple[str, ...]:
        window = self.plan.source.window
        return window.partition if window is not None else ()

    def _append(
        self, born: I64, dies: I64, codes: Mapping[int, I32], payload: Mapping[str, pa.Array], wanted: I32 | None
    ) -> int:
        first = super()._append(born, dies, codes, payload, wanted)
        if born.size:
            self._index_new_rows(first, dies if self.interest is not None and wanted is not None else None)
        return first

    def _index_new_rows(self, first: int, dies: I64 | None) -> None:
        """Enter rows from `first` on into the indexes; `dies` is told where they may die out of order."""
        if dies is not None:
            self._fifo = self._fifo and is_ascending(dies, self._last_expiration)
            self._last_expiration = int(dies[-1])
        for key, index in self._indexes.items():
            self._index_rows(key, index, first)
        for name, ordered in self._sorted_indexes.items():
            self._sort_rows(name, ordered, first)

    def _resize(self, capacity: int) -> None:
        super()._resize(capacity)
        for index in self._indexes.values():
            index.resize(capacity, self.base, self.end)
        if self.rows_window is not None:
            self.rows_window.resize(capacity, self.base, self.end)

    # ── tuples are read ──────────────────────────────────────────────────────────────────────────────────────────

    def fresh_ids(self) -> I64:
        """The ids of this batch's rows."""
        return np.arange(self.fresh_from, self.end)

    def probe(
        self,
        key_codes: KeyCodes,
        born: I64,
        dies: I64,
        id_range: IdRange,
        scratch: ProbeBuffer,
        oldest: I64 | None = None,
    ) -> Iterator[PairBlock]:
        """Blocks of (probe, row id) where the row has the given codes, and the two lives overlap.

        Rows of the span count. `oldest` is for each probe a time after which the row must be born.
        """
        key = tuple(sorted(key_codes))
        index = self._get_index(key)
        codes = self.keys.encode(key, [key_codes[id_] for id_ in key], born.size, insert=False)
        stored = self._make_target(id_range)
        since = NO_AGE_LIMIT if oldest is None else oldest
        yield from scratch.iter_blocks(
            lambda at, row, out: probe_chain(
                codes, born, dies, at, row, index.head, index.next_older, stored.mask, stored.base, stored.limit,
                stored.born, stored.dies, stored.fresh, self._fifo, since, *out,
            ),
            codes.size,
        )  # fmt: skip

    def probe_with_interest(
        self,
        key_codes: KeyCodes,
        born: I64,
        dies: I64,
        id_range: IdRange,
        scratch: ProbeBuffer,
        wanted: I32,
        probing: str,
    ) -> Iterator[PairBlock]:
        """As `probe`, for tuples of another leaf, that of the alias `probing`, and only pairs that somebody wants."""
        assert self.interest is not None
        key = tuple(sorted(key_codes))
        index = self._get_index(key)
        codes = self.keys.encode(key, [key_codes[id_] for id_ in key], born.size, insert=False)
        stored, meets = (
            self._make_target(id_range),
            self.interest.intersection_table(),
        )  # first: intersections are sets of their own
        reaches = self.interest.longest_windows(probing), self.interest.longest_windows(self.alias)
        yield from scratch.iter_interest_blocks(
            lambda at, row, out: probe_with_interest(
                codes, born, dies, at, row, index.head, index.next_older, stored.mask, stored.base, stored.limit,
                stored.born, stored.dies, wanted, self._interest_ring.ring, meets, *reaches, *out,
            ),
            codes.size,
        )  # fmt: skip

    def id_range(self, first: int, *, old_only: bool) -> IdRange:
        """The rows from a stored one on, those of the batch in progress included or not."""
        return first, self.fresh_from if old_only else self.end

    def _make_target(self, id_range: IdRange) -> ProbeTarget:
        return ProbeTarget(self._capacity - 1, *id_range, self.born, self.dies, _NO_FRESH_MARKS)

    def probe_range(
        self, column: Column, lows: F64, highs: F64, born: I64, dies: I64, id_range: IdRange, scratch: ProbeBuffer
    ) -> Iterator[PairBlock]:
        """Blocks of (probe, row id) where the row's column lies in the probe's range and the two lives overlap."""
        ordered = self._sorted_indexes.get(column.name)
        if ordered is None:
            ordered = self._sorted_indexes[column.name] = SortedIndex()
            self._sort_rows(column.name, ordered, self.base)
        return ordered.probe(lows, highs, born, dies, self._make_target(id_range), scratch)

    def _sort_rows(self, name: str, ordered: SortedIndex, first: int) -> None:
        ids = np.arange(first, self.end)
        ordered.add(to_floats(self.take(name, ids)), ids, lambda old: old >= self.base)

    def list_used_codes(self, key: Key) -> Iterator[I32]:
        """The key codes that stored rows hold."""
        if len(key) == 1 and key[0] in self._codes:
            yield ring_read(self._codes[key[0]], self.base, self.end)
        elif key in self._indexes:
            yield self._indexes[key].list_used_codes(self.base, self.end)

    def _get_index(self, key: Key) -> ChainIndex:
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = ChainIndex(self._capacity)
            self._index_rows(key, index, self.base)
        return index

    def _index_rows(self, key: Key, index: ChainIndex, first: int) -> None:
        ids = np.arange(first, self.end)
        parts = [self.codes(id_, ids) for id_ in key]
        codes = self.keys.encode(key, parts, ids.size, insert=True)
        index.append(first, codes, self.keys.code_limit(key))

    # ── tuples die ───────────────────────────────────────────────────────────────────────────────────────────────

    def purge(self, bound: int) -> Renumbering | None:
        """Forget rows that die at or before `bound`; ids may change where rows die out of order."""
        self.base = skip_dead_rows(self.dies, self._capacity - 1, self.base, self.end, bound)
        lived = min(self._living_count, len(self))
        if (
            not self._fifo
            and self.end - self._counted_until > self.max_dead_ratio * lived + self._maintenance.dead_rows
        ):
            return self._compact_if_sparse(bound)
        least = self._maintenance.capacity
        if self._capacity > 8 * max(len(self), least):
            self._resize(max(least, 1 << (2 * len(self)).bit_length()))
        return None

    def truncate(self, end: int, tuples: int) -> None:
        """Forget the newest rows, from `end` on, as if the last `tuples` tuples had not come."""
        for index in self._indexes.values():
            index.retract(end, self.end)
        self._sorted_indexes = {}  # made anew when asked for
        self.end = self.fresh_from = end
        self._last_expiration = int(ring_read(self.dies, end - 1, end)[0]) if len(self) else int(ALWAYS)
        self.tuples_read -= tuples

    def clear(self) -> None:
        """Forget everything: nobody will ask for a row again."""
        self.base = self.fresh_from = self.end

    def _compact_if_sparse(self, bound: int) -> Renumbering | None:
        """Close the gaps that dead rows leave between living ones, if they are too many."""
        kept = np.empty(len(self), np.int64)
        kept = kept[: collect_living_rows(self.dies, self._capacity - 1, self.base, self.end, bound, kept)]
        self._counted_until, self._living_count = self.end, kept.size
        if len(self) - kept.size <= self.max_dead_ratio * kept.size + self._maintenance.dead_rows:
            return None
        return self._compact(kept)

    def _compact(self, kept: I64) -> Renumbering:
        first = self._move(kept)
        self._last_expiration = int(ALWAYS)
        self._fifo = self.rows_window is None or self.rows_window.is_fifo
        if kept.size:
            self._index_new_rows(first, None if self.interest is None else ring_read(self.dies, first, self.end))
        if self.rows_window is not None:
            self.rows_window.renumber(kept, first)
        self.end_batch()
        self._counted_until = self.end
        change = Renumbering(kept, first)
        self._column_first_row = {name: change.map_mark(row) for name, row in self._column_first_row.items()}
        return change

    # ── queries come and go ──────────────────────────────────────────────────────────────────────────────────────

    def clip_expirations(self, ids: I64, codes: I32, dies: I64) -> None:
        """Let combinations with these rows die when the rows leave the longest window of those who want them."""
        assert self.interest is not None
        clip_expirations(self.born, ids, self.interest.longest_windows(self.alias), codes, dies)

    def update_sharing(self, plan: LeafPlan, interest: Interest | None, wanted: I32 | None) -> None:
        """Keep other columns, and tuples for other queries: `wanted` are the new codes of the rows that are stored.

        A column that is new is NULL in the tuples there are: queries that read it must not want them (`known_after`).
        """
        schema = plan.source.relation.schema
        new = {
            name: make_ring_column(schema.field(name).type, self._capacity)
            for name in plan.columns
            if name not in self._columns
        }
        for name, column in new.items():
            if self.table is not None:
                column.append(self.base, self.base, self.table[name].take(self._table_positions))
            elif len(self):
                column.append(self.base, self.base, pa.nulls(len(self), schema.field(name).type))
                self._column_first_row[name] = self.end
        self._columns = {name: self._columns.get(name) or new[name] for name in plan.columns}
        self._column_first_row = {name: row for name, row in self._column_first_row.items() if name in self._columns}
        self.plan, self.interest = plan, interest
        self._lifetime = get_lifetime(plan.source.window)
        self._interest_ring = CodeRing()
        if interest is not None and wanted is not None:
            self._interest_ring.write(self.base, self.base, wanted, self._capacity, wide=not interest.has_few_sets)
        born, dies = self.read_lifetimes(self.list_ids())
        if self.rows_window is None and not plan.source.is_table:
            dies = self._compute_expirations(born, None if interest is None else wanted)
        if wanted is not None:
            dies = np.where(wanted == NO_INTEREST, ALWAYS, dies)
        ring_write(self.dies, self.base, dies)
        if self.rows_window is not None:
            self.rows_window.keep_only(self.list_ids()[dies > ALWAYS])
        in_order = bool((dies[1:] >= dies[:-1]).all())
        self._fifo = in_order and (self.rows_window is None or self.rows_window.is_fifo)
        self._last_expiration = int(dies[-1]) if dies.size else int(ALWAYS)

    def find_gap_end(self, names: Iterable[str]) -> int:
        """A time after which every stored tuple has its values in some columns."""
        row = max((self._column_first_row.get(name, self.base) for name in names), default=self.base)
        return int(self.read_births(np.array([row - 1]))[0]) if row > self.base else int(ALWAYS)

    @property
    def column_gaps(self) -> dict[str, int]:
        """The columns that older tuples were stored without, each with the time of the newest of these."""
        times = ((name, self.find_gap_end([name])) for name in self._column_first_row)
        return {name: time for name, time in times if time > ALWAYS}

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, bound: int, end: int | None = None) -> pa.Table:
        """The rows (those before `end`) that live after `bound`, with their join terms: all that a restore needs."""
        ids = np.arange(self.base, self.end if end is None else end)
        ids = ids[self.read_lifetimes(ids)[1] > bound]
        born, dies = self.read_lifetimes(ids)
        columns = {"_born": pa.array(born), "_dies": pa.array(dies)}
        if self.interest is not None:
            columns["_wanted"] = pa.array(self.read_interest(ids))
        if self.rows_window is not None:
            columns["_age"] = pa.array(self.rows_window.count_newer(ids))
        for id_, _ in self.plan.terms:
            columns[f"_term{id_}"] = self.keys.interners[id_].values(self.codes(id_, ids))
        columns |= {f"column {name}": self.take(name, ids) for name in self._columns}
        return pa.table(columns)

    def restore(self, table: pa.Table, column_gaps: Mapping[str, int]) -> None:
        """Take the rows of a dump as this batch's rows, so that one pass over the tree rebuilds everything.

        `kept_after` as it was when the rows were dumped.
        """
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        born, dies = (columns[name].to_numpy() for name in ("_born", "_dies"))
        codes = {id_: self.keys.interners[id_].intern(columns[f"_term{id_}"]) for id_, _ in self.plan.terms}
        self.fresh_from = self.end
        wanted = columns["_wanted"].to_numpy() if "_wanted" in columns else None
        first = self._append(born, dies, codes, {name: columns[f"column {name}"] for name in self._columns}, wanted)
        if self.rows_window is not None:
            partition = [columns[f"column {name}"] for name in self._partition]
            self.rows_window.restore(
                self.rows_window.encode_partitions(partition, born.size), columns["_age"].to_numpy(), first
            )
        self._column_first_row = {
            name: self.find_first_after(time) for name, time in column_gaps.items() if name in self._columns
        }


def _find_positions(chosen: Mask | I32) -> I64 | None:
    """Where a mask is true, or a code is not NOBODY; None for everywhere."""
    return None if np.count_nonzero(chosen) == chosen.size else np.flatnonzero(chosen)


def _make_reader(columns: Mapping[str, pa.Array], chosen: I64 | None) -> Callable[[Column], pa.Array]:
    if chosen is None:
        return lambda column: columns[column.name]
    indices = pa.array(chosen)
    return lambda column: columns[column.name].take(indices)
