"""Arrow tables as bytes, one or several in a blob."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pyarrow as pa

_PART_HEADER = struct.Struct("<iq")


def encode_table(table: pa.Table) -> bytes:
    """One table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks() if len(table.columns) and table.column(0).num_chunks > 1 else table)
    return bytes(sink.getvalue())


def decode_table(blob: bytes | memoryview | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def join_blobs(parts: Mapping[int, bytes]) -> bytes:
    """Blobs under their numbers."""
    out = []
    for number, blob in parts.items():
        out += [_PART_HEADER.pack(number, len(blob)), blob]
    return b"".join(out)


def split_blobs(blob: bytes) -> dict[int, memoryview]:
    parts: dict[int, memoryview] = {}
    view, at = memoryview(blob), 0
    while at < len(view):
        number, size = _PART_HEADER.unpack_from(view, at)
        at += _PART_HEADER.size
        parts[number] = view[at : at + size]
        at += size
    return parts
