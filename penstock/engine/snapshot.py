"""Snapshots: an engine's declarations, queries, frontiers and base windows as bytes.

Intermediate results are not saved: they follow from the base windows. The content is a zip of a JSON index and Arrow
IPC streams; nothing in it is code, so a snapshot from elsewhere can be wrong but not harmful. A header before it has
the version, the length and a digest of the content: bytes that were damaged are never read.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.cql.catalog import Stream
from penstock.engine.parts import DumpedJoins, SavedState
from penstock.engine.query import RunningQuery
from penstock.errors import DataError
from penstock.graph.buffers import Buffer
from penstock.graph.graph import RunSettings
from penstock.join.demand.gate import DemandFilter
from penstock.ops.emit import DerivedStreamOperator
from penstock.ops.protocol import Batch
from penstock.ops.source import SourceOperator
from penstock.state.arrow import decode_table, encode_table, flatten_table
from penstock.state.instants import to_ticks

_VERSION = 7
_INDEX = "index.json"
_MAGIC = b"PENSTOCK"
_HEADER = struct.Struct(">8sIQ32s")
"""Magic, version, length of the content, SHA-256 of the content."""


@dataclass(frozen=True)
class SavedSource:
    """A stream's declaration and how far it had come."""

    stream: Stream
    entry: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    def apply(self, source: SourceOperator, outlet: Buffer) -> None:
        """Put the stream back to where it was; readers opened later find the unread tuples with `unread`."""
        source.restore(_as_batch(self.tables["held"], self.stream.time), self.entry["frontier"], self.entry["arrived"])
        for rejects, name in ((source.late, "late"), (source.dead_letters, "dead")):
            rejects.extend(self.tables[name])
            rejects.count = self.entry[name]
        unread = _as_batch(self.tables["unread"], self.stream.time)
        if unread is not None:
            outlet.append(unread)


@dataclass(frozen=True)
class SavedQuery:
    """A query's text and plan, and its stages at rest. A derived stream also has what its readers had not read."""

    name: str
    text: str
    plan: str | None
    state: str
    demand: DemandFilter | None
    failed: str | None
    saved_states: tuple[SavedState, ...]
    derived: Mapping[str, Any] | None
    unread: pa.Table | None

    @property
    def join_ids(self) -> list[int]:
        """The numbers of its joins: queries that had one in common have the same."""
        return [rest.values["join_id"] for rest in self.saved_states if "join_id" in rest.values]

    def apply(self, running: RunningQuery) -> None:
        running.restore(self.saved_states, self.failed)
        stream = running.last_node.operator
        if self.derived is not None and self.unread is not None and isinstance(stream, DerivedStreamOperator):
            stream.arrival_count = self.derived["arrived"]
            running.last_node.outlet.advance(self.derived["frontier"])
            unread = _as_batch(self.unread, stream.stream.time)
            if unread is not None:
                running.last_node.outlet.append(unread)


class SnapshotArchive:
    """The contents of a snapshot: an index of entries, and the Arrow tables they refer to by number."""

    def __init__(self) -> None:
        self._index: dict[str, Any] = {
            "options": {},
            "tables": [],
            "sources": [],
            "queries": [],
            "names": {},
        }
        self._tables: list[pa.Table] = []

    def _add_arrow_table(self, table: pa.Table) -> int:
        self._tables.append(table)
        return len(self._tables) - 1

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add_options(self, options: Mapping[str, object]) -> None:
        self._index["options"] = dict(options)

    def add_table(self, name: str, table: pa.Table) -> None:
        self._index["tables"].append({"name": name, "table": self._add_arrow_table(table)})

    def add_source(self, source: SourceOperator, outlet: Buffer, run_settings: RunSettings) -> None:
        stream = source.stream
        declared = {key: value for key, value in asdict(stream).items() if key not in ("schema", "connector")}
        tables = {
            "held": _as_table(source.held_rows(), stream.schema),
            "unread": _as_table(outlet.unread(), stream.schema),
            "late": source.late.with_reasons(),
            "dead": source.dead_letters.with_reasons(),
        }
        self._index["sources"].append({
            "stream": declared,
            "frontier": source.frontier,
            "arrived": source.arrival_count,
            "late": source.late.count,
            "dead": source.dead_letters.count,
            "run_settings": run_settings,
            "tables": {key: self._add_arrow_table(table) for key, table in tables.items()},
        })  # fmt: skip

    def add_names(self, order: Sequence[str], aggregates: Sequence[str]) -> None:
        """The streams in the order of their declaration, and the names of user-defined aggregates."""
        self._index["names"] = {"order": list(order), "aggregates": list(aggregates)}

    def add_query(self, running: RunningQuery, shared: DumpedJoins) -> None:
        derived = unread = None
        stream = running.last_node.operator
        if isinstance(stream, DerivedStreamOperator):
            outlet = running.last_node.outlet
            derived = {"arrived": stream.arrival_count, "frontier": outlet.frontier}
            unread = self._add_arrow_table(_as_table(outlet.unread(), stream.stream.schema))
        self._index["queries"].append(
            {
                "name": running.name,
                "text": running.query.text,
                "plan": running.plan_text,
                "state": running.state,
                "demand": running.demand if running.keeps_demand else None,
                "failed": None if running.failure is None else running.failure.message,
                "saved_states": [
                    {
                        "values": rest.values,
                        "tables": {name: self._add_arrow_table(table) for name, table in rest.tables.items()},
                    }
                    for rest in running.dump(shared)
                ],
                "derived": derived,
                "unread": unread,
            }
        )

    def to_bytes(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(_INDEX, json.dumps(self._index))
            for number, table in enumerate(self._tables):
                archive.writestr(f"{number}.arrow", encode_table(table))
        return add_header(out.getvalue())

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_bytes(cls, blob: bytes) -> SnapshotArchive:
        parts, content = cls(), _read_content(blob)
        with refuse_bad_content(), zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts._index = json.loads(archive.read(_INDEX))
            count = len(archive.namelist()) - 1
            parts._tables = [decode_table(archive.read(f"{n}.arrow")) for n in range(count)]
        return parts

    def options(self) -> dict[str, Any]:
        return dict(self._index["options"])

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        for entry in self._index["tables"]:
            yield entry["name"], self._tables[entry["table"]]

    def sources(self) -> Iterator[SavedSource]:
        for entry in self._index["sources"]:
            tables = {key: self._tables[number] for key, number in entry["tables"].items()}
            schema = tables["late"].schema.remove(len(tables["late"].schema) - 1)
            yield SavedSource(Stream(schema=schema, **entry["stream"]), entry, tables)

    def names(self) -> tuple[list[str], list[str]]:
        """The streams in the order of their declaration, and the names of user-defined aggregates."""
        return self._index["names"]["order"], self._index["names"]["aggregates"]

    def queries(self) -> Iterator[SavedQuery]:
        for entry in self._index["queries"]:
            saved_states = tuple(
                SavedState(rest["values"], {name: self._tables[number] for name, number in rest["tables"].items()})
                for rest in entry["saved_states"]
            )
            unread = None if entry["unread"] is None else self._tables[entry["unread"]]
            yield SavedQuery(**{**entry, "saved_states": saved_states, "unread": unread})


def add_header(content: bytes) -> bytes:
    """The content of a snapshot behind its header."""
    return _HEADER.pack(_MAGIC, _VERSION, len(content), sha256(content).digest()) + content


def _read_content(blob: object) -> bytes:
    """The content of a snapshot, if it is whole and of this version."""
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise DataError(
            "BAD_SNAPSHOT", f"a snapshot is the bytes that Engine.snapshot gave, not a {type(blob).__name__}"
        )
    found = bytes(blob)
    if found.startswith(b"PK"):
        message = f"a snapshot of version 5 or older, or another zip file; this engine reads version {_VERSION}"
        raise DataError("BAD_SNAPSHOT", message)
    if len(found) < _HEADER.size or not found.startswith(_MAGIC):
        raise DataError("BAD_SNAPSHOT", "this is not a snapshot of an engine, or only a part of one")
    _, version, length, digest = _HEADER.unpack_from(found)
    if version != _VERSION:
        raise DataError("BAD_SNAPSHOT", f"a snapshot of version {version}; this engine reads version {_VERSION}")
    content = found[_HEADER.size :]
    if len(content) != length:
        message = f"this is not a whole snapshot of an engine: it has {len(content)} bytes of content, not {length}"
        raise DataError("BAD_SNAPSHOT", message)
    if sha256(content).digest() != digest:
        raise DataError("BAD_SNAPSHOT", "this snapshot of an engine was damaged: its content does not fit its digest")
    return content


@contextmanager
def refuse_bad_content() -> Iterator[None]:
    """Name a snapshot whose content is whole, but not what an engine writes."""
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

_NUMBER = "_number"


def _as_table(batch: Batch | None, schema: pa.Schema) -> pa.Table:
    """Tuples of a stream with their arrival numbers."""
    schema = schema.append(pa.field(_NUMBER, pa.int64()))
    if batch is None or batch.numbers is None:
        return schema.empty_table()
    return pa.table([*(batch.columns[name] for name in schema.names[:-1]), pa.array(batch.numbers)], schema=schema)


def _as_batch(table: pa.Table, time: str) -> Batch | None:
    if not table.num_rows:
        return None
    columns = flatten_table(table)
    numbers = np.asarray(columns.pop(_NUMBER))
    return Batch(to_ticks(columns[time]), columns, numbers=numbers)
