"""Arrow tables as bytes, one or several in a blob."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pyarrow as pa

_HEAD = struct.Struct("<iq")


def encoded(table: pa.Table) -> bytes:
    """One table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks() if len(table.columns) and table.column(0).num_chunks > 1 else table)
    return bytes(sink.getvalue())


def decoded(blob: bytes | memoryview | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def framed(parts: Mapping[int, bytes]) -> bytes:
    """Blobs under their numbers."""
    out = []
    for number, blob in parts.items():
        out += [_HEAD.pack(number, len(blob)), blob]
    return b"".join(out)


def unframed(blob: bytes) -> dict[int, memoryview]:
    parts: dict[int, memoryview] = {}
    view, at = memoryview(blob), 0
    while at < len(view):
        number, size = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        parts[number] = view[at : at + size]
        at += size
    return parts
