"""Pack: rows of a stream become one Arrow blob per cell and inlet, inside `mapInArrow`.

Every non-empty input partition also sends every cell the largest time of all its rows, before filters. So the frontier
of a stream is the same function of the micro-batches in every cell. Bad rows (see `split_bad_rows`) go to the dead
letters, through one cell. The clock of a stream that declares AHEAD is the time of the micro-batch, which Spark keeps
with its offsets: a repeated micro-batch makes the same decision. In frames, which have no heartbeats of a driver, every
cell gets that time too, to advance idle streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.cql import Stream
from penstock.expr import Expr, FunctionError, compute_mask, evaluate
from penstock.ops import fit_stream_columns, split_bad_rows
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.hashing import hash_column, hash_rows
from penstock.spark.layout import ALWAYS, Layout, StreamInlet, get_layout
from penstock.spark.payloads import RECORD_COLUMNS, Payload
from penstock.spark.route import Route
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.setup import freeze_gc, get_task_context, read_task_spec
from penstock.state import decode_table, encode_table, flatten_column

ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`."""

DecodedRows = tuple[pa.Table, pa.Table | None]
"""Rows of a stream, and dead letters of payloads that could not be decoded."""

PACKED_DDL = "cell int, stream int, inlet int, part int, seq int, top bigint, data binary"
PACKED_SCHEMA = pa.schema([
    ("cell", pa.int32()), ("stream", pa.int32()), ("inlet", pa.int32()), ("part", pa.int32()), ("seq", pa.int32()),
    ("top", pa.int64()), ("data", pa.binary()),
])  # fmt: skip
NO_ROWS, BAD_ROWS, COMMAND, CLOCK = -1, -2, -3, -4
"""Values in place of an inlet's number: only the largest time; bad rows; a command; the time of the micro-batch."""
NOW_COLUMN = "\0now"
"""The time of the micro-batch, for a stream that declares AHEAD. Users cannot name a column like this."""
OWN_COLUMN = "\0own"
"""A column of the second and later inlets of a stream: whether no earlier inlet took the row.

Users cannot name a column like this."""


def merge_batches(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Merge Arrow batches into tables of at least `size` rows; the last may have fewer."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= size:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


class Packer:
    """Packs the rows of one stream."""

    def __init__(self, layout: Layout, stream: Stream, most: int | None = None) -> None:
        """`most`: about the largest size of the data in one packed row; without it rows stay together."""
        self._stream = stream
        self._most = most
        self._number = layout.spec.streams.index(stream)
        self._inlets = layout.list_inlets(stream.name)
        self._cells = layout.spec.cells
        self._keys = find_cell_keys(self._cells)
        self._clocked = layout.spec.clocked

    def pack(self, table: pa.Table, part: int, seq: int, rejected: pa.Table | None = None) -> pa.RecordBatch:
        """The rows for the cells, as a batch of PACKED_SCHEMA; the packed rows are numbered from `seq` on.

        `rejected`: more dead letters, of bad payloads.
        """
        now, table = _take_clock(table)
        rows = split_bad_rows(self._stream, fit_stream_columns(self._stream, table), now)
        dead = [self._explain_rows(columns, reason) for columns, reason in rows.bad_rows]
        if rejected is not None and rejected.num_rows:
            dead.append(rejected)
        out: list[tuple[int, int, bytes | None]] = [
            (0, BAD_ROWS, blob) for table in dead for blob in self._encode_parts(table)
        ]
        top = int(rows.times.max()) if rows.times.size else None
        if top is not None:
            out += self._pack_inlets(dict(rows.columns), rows.times.size)
            sent = {cell for cell, inlet, _ in out if inlet >= 0}
            out += [(cell, NO_ROWS, None) for cell in range(self._cells) if cell not in sent]
        tops = [ALWAYS if top is None else top] * len(out)
        if self._clocked and now is not None:
            out += [(cell, CLOCK, None) for cell in range(self._cells)]
            tops += [now] * self._cells
        size = len(out)
        numbers = [
            [self._keys[cell] for cell, _, _ in out], [self._number] * size, [inlet for _, inlet, _ in out],
            [part] * size, range(seq, seq + size), tops, [blob for _, _, blob in out],
        ]  # fmt: skip
        arrays = [pa.array(values, field.type) for values, field in zip(numbers, PACKED_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=PACKED_SCHEMA)

    def _explain_rows(self, columns: Mapping[str, pa.Array], reason: str) -> pa.Table:
        """Dead letters, with the reason if the stream has a column for it."""
        table = pa.table(dict(columns))
        if all(field.name != "_reason" for field in self._stream.rejects):
            return table
        return table.append_column("_reason", pa.repeat(reason, table.num_rows))

    def _pack_inlets(self, columns: dict[str, pa.Array], rows: int) -> Iterator[tuple[int, int, bytes]]:
        taken: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        for inlet in self._inlets:
            wanted = _find_wanted_rows(inlet, columns, rows)
            table = pa.table({name: columns[name] for name in inlet.schema.names}, schema=inlet.schema)
            if inlet is not self._inlets[0]:
                table = table.append_column(OWN_COLUMN, pa.array(wanted & ~taken))
            for cell, chosen in route_rows(inlet.route, table.slice(0, rows), columns, np.flatnonzero(wanted)):
                sent = table if chosen.size == rows else table.take(pa.array(chosen))
                yield from ((cell, inlet.number, blob) for blob in self._encode_parts(sent))
            taken |= wanted

    def _encode_parts(self, table: pa.Table) -> Iterator[bytes]:
        """A table as Arrow blobs of about the largest size."""
        parts = 1 if self._most is None else max(1, min(-(-table.nbytes // self._most), table.num_rows))
        size = max(1, -(-table.num_rows // parts))
        yield from (encode_table(table.slice(start, size)) for start in range(0, table.num_rows, size))


def _take_clock(table: pa.Table) -> tuple[int | None, pa.Table]:
    """The time of the micro-batch, if the rows have it, and the rows without it."""
    if NOW_COLUMN not in table.column_names or not table.num_rows:
        return None, table
    now = table.column(NOW_COLUMN)[0].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    return now, table.drop_columns([NOW_COLUMN])


def _find_wanted_rows(inlet: StreamInlet, columns: dict[str, pa.Array], rows: int) -> NDArray[np.bool_]:
    if not inlet.filters:
        return np.ones(rows, np.bool_)
    wanted: NDArray[np.bool_] = np.zeros(rows, np.bool_)
    for filters in inlet.filters:
        try:
            wanted |= compute_mask(filters, lambda column: columns[column.name], rows)
        except FunctionError:  # fails again in the cell, where it stops its query and no other
            return np.ones(rows, np.bool_)
    return wanted


def _evaluate_term(term: Expr, columns: dict[str, pa.Array], rows: int) -> pa.Array:
    """The values by which rows are divided. A function that fails here fails again in the cells."""
    try:
        return evaluate(term, lambda column: columns[column.name], rows)
    except FunctionError:
        return pa.repeat(pa.scalar(0), rows)


def route_rows(
    route: Route, table: pa.Table, columns: dict[str, pa.Array], chosen: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For every cell that gets some of the chosen rows: their numbers, in order."""
    cell: NDArray[np.int64] = np.full(chosen.size, route.first_cell, np.int64)
    copies: NDArray[np.int64] = np.zeros(1, np.int64)
    for salt, (step, offset) in enumerate(zip(route.dimensions, route.compute_strides(), strict=True)):
        if step.coordinate is None:
            copies = (copies[:, None] + offset * np.arange(step.share)).ravel()
            continue
        if step.coordinate.term is None:
            content = [flatten_column(table.column(name)) for name in table.column_names if name != OWN_COLUMN]
            words = hash_rows(content, table.num_rows)
        else:
            values = _evaluate_term(step.coordinate.term, columns, table.num_rows)
            words = hash_column(flatten_column(values), salt + 1)
            if values.null_count and not step.coordinate.keeps_nulls:  # NULL equals no value: no cell needs the row
                valid = values.is_valid().to_numpy(zero_copy_only=False)[chosen]
                chosen, cell = chosen[valid], cell[valid]
        share = np.uint64(step.share)
        cell = cell + offset * ((words[chosen] >> np.uint64(11)) % share).astype(np.int64)
    if not chosen.size:
        return
    order = np.argsort(cell, kind="stable")
    cells, starts = np.unique(cell[order], return_index=True)
    for number, rows in zip(cells, np.split(chosen[order], starts[1:]), strict=True):
        for copy in copies:
            yield int(number + copy), rows


def pack_commands(commands: Sequence[bytes], keys: Sequence[int]) -> pa.RecordBatch:
    """Every command for every cell, as a batch of PACKED_SCHEMA. `keys`: those of the cells."""
    rows = [
        {"cell": key, "stream": -1, "inlet": COMMAND, "part": 0, "seq": 0, "top": ALWAYS, "data": command}
        for command in commands
        for key in keys
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PACKED_SCHEMA)


def unpack_blobs(batches: Iterator[pa.RecordBatch], stream: Stream) -> Iterator[pa.Table]:
    """The rows of a stream of Arrow blobs; with a second column, that is the time of the micro-batch."""
    for batch in batches:
        for place, blob in enumerate(batch.column(0)):
            if blob.is_valid:
                table = decode_table(blob.as_buffer())
                yield table if batch.num_columns == 1 else _stamp_rows(table, stream, batch.column(1)[place])


def _stamp_rows(table: pa.Table, stream: Stream, now: pa.Scalar) -> pa.Table:
    """The rows with the time of the micro-batch as their time, or beside it for AHEAD."""
    if stream.timestamps == "external":
        return table.append_column(NOW_COLUMN, pa.repeat(now, table.num_rows))
    others = table.drop_columns([name for name in table.column_names if name.casefold() == stream.time.casefold()])
    times = pa.repeat(now, table.num_rows).cast(stream.time_type)
    return others.append_column(stream.schema.field(stream.time), times)


def decode_payloads(tables: Iterator[pa.Table], payload: Payload, stream: Stream) -> Iterator[DecodedRows]:
    """The rows and the dead letters of records; with one column more, that is the time of the micro-batch."""
    for table in tables:
        size = len(RECORD_COLUMNS)
        records = pa.table(table.columns[:size], names=list(RECORD_COLUMNS))
        rows, rejected = payload.decode(records, stream)
        yield (rows if table.num_columns == size else _stamp_rows(rows, stream, table.column(size)[0])), rejected


def build_pack_map(
    spec: PipelineSpec, stream: Stream, names: Sequence[str] | None, payload: Payload | None = None
) -> ArrowMap:
    """The function for `mapInArrow` that packs a stream.

    `names`: its columns; None for a stream of Arrow blobs, or of records that `payload` decodes.
    """

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = get_task_context()
        packer = Packer(get_layout(read_task_spec(spec)), stream, spec.maintenance.packed_bytes)
        tables: Iterator[DecodedRows]
        if payload is not None:
            tables = decode_payloads(merge_batches(batches, spec.maintenance.chunk_rows), payload, stream)
        elif names is None:
            tables = ((table, None) for table in unpack_blobs(batches, stream))
        else:
            merged = merge_batches(batches, spec.maintenance.chunk_rows)
            tables = ((each.rename_columns(names), None) for each in merged)
        seq = 0
        for table, rejected in tables:
            packed = packer.pack(table, context.partitionId(), seq, rejected)
            seq += packed.num_rows
            yield packed
        freeze_gc(spec.id)

    return pack
