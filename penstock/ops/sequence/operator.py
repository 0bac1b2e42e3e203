"""The sequence operator: pairs each row of the right input with one earlier row of the left.

Law: rows are ordered by (time, order of declaration of their streams, arrival). A right row pairs with the newest
(RECENT) or with the earliest unused (CHRONICLE) left row that is before it in this order, is valid at its time and
satisfies the predicates with it, or with none. In CHRONICLE a left row pairs once. The pair has the time of the right
row and its place in the order, and is valid until the first of the two expires; so steps compose to longer sequences.
With ends, the pair is written again with sign -1 when it expires.

A right row waits only until the frontier of the left input says that no earlier left row will come (Figures 12 and 13
of the query graph paper). State: the left rows that can still pair (see `buffer`): in RECENT without further predicates
and with one window length one a key, in CHRONICLE the unused ones; and the current pairs if it writes ends.
Cost: O(1) a row; with predicates other than equalities, O(candidates with the same key).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.expr import Column, Expr, FunctionError, compute_mask, evaluate
from penstock.ops.evaluation import make_evaluation_error
from penstock.ops.expirations import Expirations
from penstock.ops.kernels import pick_sequence_pairs
from penstock.ops.protocol import (
    Batch,
    Changes,
    Inlet,
    Outlet,
    OutputMode,
    QueryOperator,
    SavedState,
    StreamRows,
    as_stream_rows,
    concat,
    merge_changes,
)
from penstock.ops.sequence.buffer import SequenceBuffer
from penstock.ops.time_merge import clamp_time, find_cut, has_ready
from penstock.plan import SequenceStep
from penstock.state import (
    ALWAYS,
    FOREVER,
    I64,
    SHIPPED,
    Maintenance,
    compute_expirations,
    flatten_column,
    flatten_table,
)

_DIES = "_dies"


def qualify_column(column: Column) -> str:
    """The name of the column of a FROM item in batches of pairs."""
    return f"{column.alias}.{column.name}"


@dataclass(frozen=True)
class SequenceInput:
    """An input of a step: a stream with its filters and window, or the pairs of the step before (`alias` is None).

    Only rows with an arrival number from `since` on count: a query does not see rows that arrived before it started.
    """

    inlet: Inlet
    alias: str | None = None
    filters: tuple[Expr, ...] = ()
    lifetime: int | None = None
    since: int = 0

    def read(self, until: int) -> _InputRows | None:
        batches = self.inlet.read(until)
        if not batches:
            return None
        batch = as_stream_rows(concat(batches))
        if self.alias is None:
            dies = batch.columns[_DIES].to_numpy()
            return _InputRows(batch.times, batch.numbers, dies, batch.columns)
        keep = batch.numbers >= self.since
        if self.filters:
            keep &= compute_mask(self.filters, lambda column: batch.columns[column.name], len(batch))
        if not keep.all():
            batch = batch.take(np.flatnonzero(keep))
        named = {f"{self.alias}.{name}": column for name, column in batch.columns.items()}
        return _InputRows(batch.times, batch.numbers, compute_expirations(batch.times, self.lifetime), named)


@dataclass(frozen=True)
class _InputRows:
    """Rows of an input with their expirations; columns by qualified name."""

    times: I64
    numbers: I64
    dies: I64
    columns: Mapping[str, pa.Array]

    def read(self, column: Column) -> pa.Array:
        return self.columns[qualify_column(column)]


class SequenceOperator(QueryOperator):
    """One step of a sequence."""

    def __init__(
        self,
        id_: str,
        step: SequenceStep,
        left: SequenceInput,
        right: SequenceInput,
        outlet: Outlet,
        mode: OutputMode,
        maintenance: Maintenance = SHIPPED,
    ) -> None:
        self.id = id_
        self._step = step
        self._left = left
        self._right = right
        self._outlet = outlet
        self._ends = mode.ends
        self._strict = mode.whole
        kept = [column for column in step.needed_columns if column.alias != right.alias]
        self._buffer = SequenceBuffer(
            [term.type for term, _ in step.keys], {qualify_column(c): c.type for c in kept}, maintenance
        )
        self._expirations = Expirations([])
        self._never_expiring: list[Changes] = []
        self._next_number = 0
        self._passed_frontier = int(ALWAYS)
        self._rows_in = [0, 0]
        self._emitted = 0

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _inlets(self) -> tuple[Inlet, Inlet]:
        return self._left.inlet, self._right.inlet

    def _compute_bounds(self) -> tuple[int, int]:
        """The last instant that may be processed, and the frontier of the pairs after it."""
        left, right = (inlet.frontier for inlet in self._inlets)
        limit = left if self._step.tie_order > 0 else left - 1
        if self._strict:
            limit = min(limit, right - 1)
        return clamp_time(min(limit, right)), clamp_time(min(limit + 1, right))

    def has_work(self) -> bool:
        bound, frontier = self._compute_bounds()
        return frontier > self._passed_frontier or has_ready(self._inlets, bound)

    def run(self, budget: int) -> int:
        bound, frontier = self._compute_bounds()
        until = find_cut(self._inlets, bound, budget)
        taken = self._try_pair(until)
        self._passed_frontier = frontier if until == bound else until
        self._outlet.advance(self._passed_frontier)
        self._rows_in = [seen + more for seen, more in zip(self._rows_in, taken, strict=True)]
        return sum(taken)

    def _try_pair(self, until: int) -> list[int]:
        """Pair the rows up to a time; returns how many were read. A function that fails stops the operator."""
        if self.failure is not None:
            return [sum(map(len, inlet.read(until))) for inlet in self._inlets]
        try:
            left, right = self._left.read(until), self._right.read(until)
            if left is not None:
                self._buffer_left(left)
            born = None if right is None else self._pair_right(right)
        except FunctionError as error:
            self.failure = make_evaluation_error(self.id, error)
            return [0, 0]
        self._write(born, until)
        self._buffer.purge(until)
        return [0 if rows is None else rows.times.size for rows in (left, right)]

    def metrics(self) -> dict[str, object]:
        return {
            "rows_in": tuple(self._rows_in),
            "pending": len(self._buffer),
            "waiting": [inlet.waiting() for inlet in self._inlets],
            "living": len(self._expirations),
            "emitted": self._emitted,
            **({} if self.failure is None else {"error": str(self.failure)}),
        }

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _buffer_left(self, left: _InputRows) -> None:
        terms = [evaluate(term, left.read, left.times.size) for term, _ in self._step.keys]
        codes = self._buffer.encode_keys(terms, left.times.size, insert=True)
        self._buffer.append(left.times, left.numbers, left.dies, codes, left.columns)

    def _pair_right(self, right: _InputRows) -> Batch | None:
        count = right.times.size
        terms = [evaluate(term, right.read, count) for _, term in self._step.keys]
        wanted = self._buffer.encode_keys(terms, count, insert=False)
        limits = self._buffer.find_limits(right.times, right.numbers, self._step.tie_order)
        if self._step.residuals and count:
            rows = self._match_predicates(right, wanted, limits)
        else:
            rows = self._buffer.match(wanted, right.times, limits, recent=self._step.is_recent)
        found = np.flatnonzero(rows >= 0)
        return self._build_pairs(rows[found], right, found) if found.size else None

    def _match_predicates(
        self, right: _InputRows, wanted: np.ndarray[tuple[int], np.dtype[np.int32]], limits: I64
    ) -> I64:
        """Pairs under predicates: all candidates are tested, then the first that satisfies them is taken."""
        chosen = np.full(right.times.size, -1, np.int64)
        recent = self._step.is_recent
        for tuples, rows in self._buffer.iter_candidates(wanted, right.times, limits, recent=recent):
            if not rows.size:
                continue
            holds = compute_mask(self._step.residuals, self._make_reader(rows, right, tuples), rows.size)
            before = chosen >= 0
            used = self._buffer.gone
            pick_sequence_pairs(recent, tuples, rows, holds.view(np.uint8), used.size - 1, used, chosen)
            if not recent:
                self._buffer.remove(chosen[(chosen >= 0) & ~before])
        return chosen

    def _make_reader(self, rows: I64, right: _InputRows, tuples: I64) -> Callable[[Column], pa.Array]:
        indices = pa.array(tuples)

        def read(column: Column) -> pa.Array:
            if column.alias == self._right.alias:
                return right.read(column).take(indices)
            return self._buffer.take(qualify_column(column), rows)

        return read

    def _build_pairs(self, rows: I64, right: _InputRows, tuples: I64) -> Batch:
        read = self._make_reader(rows, right, tuples)
        dies = np.minimum(self._buffer.dies(rows), right.dies[tuples])
        times = right.times[tuples]
        if self._step.outputs is None:
            carried = {qualify_column(column): read(column) for column in self._step.carried_columns}
            return StreamRows(times, {**carried, _DIES: pa.array(dies)}, None, right.numbers[tuples])
        shown = {name: evaluate(expr, read, rows.size) for name, expr in self._step.outputs}
        if not self._ends:
            return Batch(times, shown)
        numbers = np.arange(self._next_number, self._next_number + rows.size)
        self._next_number += rows.size
        born = Changes(times, shown, np.ones(rows.size, np.int8), numbers)
        self._track_expiration(dies, born)
        return born

    def _track_expiration(self, dies: I64, born: Changes) -> None:
        self._expirations.add(dies, born.numbers, np.empty((0, len(born)), np.int64), born.columns)
        if (dies == FOREVER).any():
            self._never_expiring.append(born.take(np.flatnonzero(dies == FOREVER)))

    def _write(self, born: Batch | None, until: int) -> None:
        ended = self._expirations.pop_due(until) if self._ends else None
        batch = merge_changes(ended, born)
        if batch is not None:
            self._emitted += len(batch)
            self._outlet.write(batch)

    # ── saved state ──────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> SavedState:
        """The rows that can still pair, the current pairs, and how far each stream was read."""
        sides = self._left, self._right
        values = {
            "unread": [side.inlet.waiting() for side in sides if side.alias is not None],
            "since": [side.since for side in sides],
        }
        tables = {"waiting": self._buffer.dump()}
        if self._ends:
            expiring = self._expirations.pop_due(int(FOREVER) - 1)
            if expiring is not None:
                shape = np.empty((0, len(expiring)), np.int64)
                self._expirations.add(expiring.times, expiring.numbers, shape, expiring.columns)
            tables["current"] = _pairs_as_table(expiring, self._never_expiring, self._step.outputs or ())
        return SavedState(values, tables)

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        tables = saved.tables
        streams = [side.inlet for side in (self._left, self._right) if side.alias is not None]
        for inlet, rows in zip(streams, saved.values["unread"], strict=True):
            inlet.rewind(rows)
        self._left, self._right = (
            replace(side, since=first)
            for side, first in zip((self._left, self._right), saved.values["since"], strict=True)
        )
        held = flatten_table(tables["waiting"])
        times, numbers, dies = (held[name].to_numpy() for name in ("_time", "_number", "_dies"))
        stored = {name.removeprefix("column "): column for name, column in held.items() if name[0] != "_"}
        self._buffer_left(_InputRows(times, numbers, dies, stored))
        if not self._ends:
            return None
        pairs = tables["current"]
        names = [name for name, _ in self._step.outputs or ()]
        shown = {name: flatten_column(pairs.column(place)) for place, name in enumerate(names)}
        count = pairs.num_rows
        born = Changes(np.full(count, ALWAYS + 1), shown, np.ones(count, np.int8), np.arange(count))
        self._next_number = count
        self._track_expiration(flatten_column(pairs.column(len(names))).to_numpy(), born)
        return born


def _pairs_as_table(
    expiring: Changes | None, never_expiring: Sequence[Changes], outputs: tuple[tuple[str, Expr], ...]
) -> pa.Table:
    """Current pairs, their expirations in the last column."""
    schema = pa.schema([*((name, expr.type) for name, expr in outputs), (_DIES, pa.int64())])
    parts = [*([] if expiring is None else [expiring]), *never_expiring]
    if not parts:
        return schema.empty_table()
    pairs = concat(parts)
    dies = np.full(len(pairs), FOREVER)
    if expiring is not None:
        dies[: len(expiring)] = expiring.times
    return pa.Table.from_arrays([*pairs.columns.values(), pa.array(dies)], schema=schema)
