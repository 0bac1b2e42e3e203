"""Arrow helpers: columns as one contiguous array each, and tables as bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.state.alloc import gather
from penstock.state.kernels import I64


def flatten_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array. A chunked column is copied, so the result does not keep larger buffers alive."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def take_values(values: pa.Array, places: I64) -> pa.Array:
    """The values at some positions. Values of eight bytes without NULLs are copied without a call of Arrow."""
    if values.null_count or not pa.types.is_primitive(values.type) or values.type.bit_width != 64:
        return values.take(pa.array(places))
    words = np.frombuffer(values.buffers()[1], np.int64, len(values), 8 * values.offset)
    return pa.Array.from_buffers(values.type, places.size, [None, pa.py_buffer(gather(words, places))])


def flatten_table(table: pa.Table) -> dict[str, pa.Array]:
    """The columns of a table by name, as one array each."""
    return {name: flatten_column(table.column(name)) for name in table.column_names}


def encode_table(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream of one record batch, if it fits into one."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks() if len(table.columns) and table.column(0).num_chunks > 1 else table)
    return bytes(sink.getvalue())


def decode_table(blob: bytes | memoryview | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream. Its columns refer to the blob."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
