"""Several blobs in one, each under a number."""

from __future__ import annotations

import struct
from collections.abc import Mapping

_PART_HEADER = struct.Struct("<iq")


def join_blobs(parts: Mapping[int, bytes]) -> bytes:
    """One blob of several, by their numbers."""
    out = []
    for number, blob in parts.items():
        out += [_PART_HEADER.pack(number, len(blob)), blob]
    return b"".join(out)


def split_blobs(blob: bytes) -> dict[int, memoryview]:
    """The blobs that `join_blobs` made one, by their numbers, without a copy."""
    parts: dict[int, memoryview] = {}
    view, at = memoryview(blob), 0
    while at < len(view):
        number, size = _PART_HEADER.unpack_from(view, at)
        at += _PART_HEADER.size
        parts[number] = view[at : at + size]
        at += size
    return parts
