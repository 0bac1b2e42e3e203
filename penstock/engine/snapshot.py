"""Snapshots: an engine's declarations, queries, frontiers and base windows as bytes.

Intermediate results are not saved: they follow from the base windows. The content is a zip of a JSON index and Arrow
IPC streams. Nothing in it is code, so a snapshot from elsewhere can be wrong but not harmful. A header holds the
version, the length and a digest of the content: bytes that were damaged are never read.

A new version needs a converter in `CONVERTERS`, so that snapshots of the version before are read: the tests restore a
stored snapshot of every version from 7 on. Versions before 7 were never released.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa

from penstock.cql import Stream
from penstock.engine.table_history import ReplacedRows
from penstock.errors import DataError
from penstock.graph import RunSettings
from penstock.join import DemandFilter
from penstock.ops import SavedState
from penstock.state import decode_table, encode_table

VERSION = 7
_INDEX = "index.json"
_MAGIC = b"PENSTOCK"
_HEADER = struct.Struct(">8sIQ32s")
"""Magic, version, length of the content, SHA-256 of the content."""

Converter = Callable[[dict[str, Any], list[pa.Table]], dict[str, Any]]
"""Takes the index and the tables of a version and returns the index of the next one; it may append tables."""
CONVERTERS: dict[int, Converter] = {}
"""By version, the converter to the next one."""


@dataclass(frozen=True)
class SavedSource:
    """The declaration of a stream, the state of its source, and the rows that its readers have not read."""

    stream: Stream
    state: SavedState
    outlet: SavedState
    run_settings: RunSettings


@dataclass(frozen=True)
class SavedQuery:
    """The text and plan of a query, and the state of its parts."""

    name: str
    text: str
    plan: str | None
    state: str
    demand: DemandFilter | None
    parts: tuple[SavedState, ...]
    outlet: SavedState | None
    """The rows that the readers of a derived stream or view have not read; None for any other query."""
    view: bool = False


@dataclass(frozen=True)
class Snapshot:
    """All that an engine needs to continue elsewhere, except code and clocks."""

    options: Mapping[str, Any]
    adapt: Mapping[str, Any] | None
    pushes: int
    budgets: Mapping[str, Any]
    stream_order: tuple[str, ...]
    aggregates: tuple[str, ...]
    tables: Mapping[str, pa.Table]
    sources: tuple[SavedSource, ...]
    queries: tuple[SavedQuery, ...]
    functions: tuple[tuple[str, str], ...] = ()
    """The user-defined functions, and the types that they return."""
    replaced: tuple[ReplacedRows, ...] = ()
    """Rows of static tables that some combinations still need."""

    def to_bytes(self) -> bytes:
        """The snapshot as bytes, with a header."""
        out, writer = io.BytesIO(), _TableWriter()
        index = _describe(self, writer)
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(zipfile.ZipInfo(_INDEX), json.dumps(index))  # without the time: equal states, equal bytes
            for number, table in enumerate(writer.tables):
                archive.writestr(zipfile.ZipInfo(f"{number}.arrow"), encode_table(table))
        return add_header(out.getvalue())

    @classmethod
    def from_bytes(cls, blob: bytes) -> Snapshot:
        """The snapshot in some bytes; DataError if they are damaged or of a version that this engine cannot read."""
        version, content = _read_content(blob)
        with refuse_bad_content(), zipfile.ZipFile(io.BytesIO(content)) as archive:
            index = json.loads(archive.read(_INDEX))
            count = len(archive.namelist()) - 1
            tables = [decode_table(archive.read(f"{number}.arrow")) for number in range(count)]
            for older in range(version, VERSION):
                index = CONVERTERS[older](index, tables)
            return _build(index, tables)


# ── the index: plain values, with the numbers of tables ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _TableWriter:
    """Collects tables and gives them numbers."""

    tables: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> int:
        self.tables.append(table)
        return len(self.tables) - 1

    def add_state(self, state: SavedState) -> dict[str, Any]:
        return {"values": state.values, "tables": {name: self.add(table) for name, table in state.tables.items()}}


def _describe(snapshot: Snapshot, writer: _TableWriter) -> dict[str, Any]:
    plain = ("options", "adapt", "pushes", "budgets", "stream_order", "aggregates")
    return {
        **{name: getattr(snapshot, name) for name in plain},
        "tables": {name: writer.add(table) for name, table in snapshot.tables.items()},
        "sources": [_describe_source(source, writer) for source in snapshot.sources],
        "queries": [_describe_query(query, writer) for query in snapshot.queries],
        **({"functions": snapshot.functions} if snapshot.functions else {}),
        **({"replaced": [_describe_replaced(each, writer) for each in snapshot.replaced]} if snapshot.replaced else {}),
    }


def _describe_replaced(replaced: ReplacedRows, writer: _TableWriter) -> dict[str, Any]:
    return {**vars(replaced), "rows": writer.add(replaced.rows)}


def _describe_source(source: SavedSource, writer: _TableWriter) -> dict[str, Any]:
    declared = {
        key: value for key, value in asdict(source.stream).items() if key not in ("schema", "connector", "rejects")
    }
    return {
        "stream": declared,
        "schema": writer.add(source.stream.schema.empty_table()),
        "state": writer.add_state(source.state),
        "outlet": writer.add_state(source.outlet),
        "run_settings": source.run_settings,
    }


def _describe_query(query: SavedQuery, writer: _TableWriter) -> dict[str, Any]:
    return {
        "name": query.name,
        "text": query.text,
        "plan": query.plan,
        "state": query.state,
        "demand": query.demand,
        "parts": [writer.add_state(part) for part in query.parts],
        "outlet": None if query.outlet is None else writer.add_state(query.outlet),
        **({"view": True} if query.view else {}),
    }


def _build(index: Mapping[str, Any], tables: list[pa.Table]) -> Snapshot:
    def state(entry: Mapping[str, Any]) -> SavedState:
        return SavedState(entry["values"], {name: tables[number] for name, number in entry["tables"].items()})

    def source(entry: Mapping[str, Any]) -> SavedSource:
        declared: dict[str, Any] = dict(entry["stream"])
        declared |= {name: tuple(value) for name, value in declared.items() if isinstance(value, list)}
        declared["key"] = tuple(entry["stream"].get("key", ()))
        declared.pop("rejects", None)  # only a pipeline on Spark has them
        stream = Stream(schema=tables[entry["schema"]].schema, **declared)
        return SavedSource(stream, state(entry["state"]), state(entry["outlet"]), entry["run_settings"])

    def query(entry: Mapping[str, Any]) -> SavedQuery:
        parts = tuple(map(state, entry["parts"]))
        outlet = None if entry["outlet"] is None else state(entry["outlet"])
        return SavedQuery(**{**entry, "parts": parts, "outlet": outlet})

    return Snapshot(
        **{
            **index,
            "tables": {name: tables[number] for name, number in index["tables"].items()},
            "sources": tuple(map(source, index["sources"])),
            "queries": tuple(map(query, index["queries"])),
            "functions": tuple((name, kind) for name, kind in index.get("functions", ())),
            "replaced": tuple(
                ReplacedRows(**{**each, "rows": tables[each["rows"]]}) for each in index.get("replaced", ())
            ),
        }
    )


# ── the header ───────────────────────────────────────────────────────────────────────────────────────────────────


def add_header(content: bytes) -> bytes:
    """The content of a snapshot behind its header."""
    return _HEADER.pack(_MAGIC, VERSION, len(content), sha256(content).digest()) + content


def _read_content(blob: object) -> tuple[int, bytes]:
    """The version and the content of a snapshot, if it is complete and of a version that can be read."""
    if not isinstance(blob, bytes | bytearray | memoryview):
        message = f"a snapshot is the bytes that Engine.snapshot returned, not a {type(blob).__name__}"
        raise DataError("BAD_SNAPSHOT", message)
    found = bytes(blob)
    if found.startswith(b"PK"):
        raise _make_version_error("5 or older, or another zip file")
    if len(found) < _HEADER.size or not found.startswith(_MAGIC):
        raise DataError("BAD_SNAPSHOT", "this is not a snapshot of an engine, or only a part of one")
    _, version, length, digest = _HEADER.unpack_from(found)
    if version > VERSION:
        message = (
            f"a snapshot of version {version}, which a newer version of Penstock wrote; this engine reads up to "
            f"version {VERSION}: update Penstock"
        )
        raise DataError("BAD_SNAPSHOT", message)
    if version < min(CONVERTERS, default=VERSION):
        raise _make_version_error(str(version))
    content = found[_HEADER.size :]
    if len(content) != length:
        message = f"this is not a whole snapshot of an engine: it has {len(content)} bytes of content, not {length}"
        raise DataError("BAD_SNAPSHOT", message)
    if sha256(content).digest() != digest:
        message = "this snapshot of an engine was damaged: its content does not fit its digest"
        raise DataError("BAD_SNAPSHOT", message)
    return version, content


def _make_version_error(version: str) -> DataError:
    message = (
        f"a snapshot of version {version}; this engine reads version {VERSION}: "
        "restore it with the version of Penstock that wrote it, or start anew"
    )
    return DataError("BAD_SNAPSHOT", message)


@contextmanager
def refuse_bad_content() -> Iterator[None]:
    """Refuse a snapshot that is complete but whose content is not what an engine writes."""
    try:
        yield
    except MemoryError:
        raise
    except _CONTENT_ERRORS as error:
        message = f"the content of this snapshot does not fit together: {type(error).__name__}: {error}"
        raise DataError("BAD_SNAPSHOT", message) from error


_CONTENT_ERRORS = (
    zipfile.BadZipFile, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError,
    NotImplementedError, RecursionError, EOFError, StopIteration, pa.ArrowException,
)  # fmt: skip
