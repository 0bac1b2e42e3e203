"""File formats of results: how a table becomes part of a file."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from pyarrow import orc as pa_orc

_JSON_ROWS = 2**16


class TableWriter(Protocol):
    """Writes tables to an open file."""

    def write(self, table: pa.Table) -> None: ...


@dataclass(frozen=True)
class FileFormat:
    """A file extension, and what writes such a file. It is pickled: functions are those of a module."""

    extension: str
    open_writer: Callable[[Any, pa.Schema], Any]
    """A context manager of a `TableWriter`, for an open file and a schema."""
    options: tuple[tuple[str, str], ...] = ()
    """Its options in CREATE SINK."""


@contextmanager
def _open_parquet(file: Any, schema: pa.Schema) -> Iterator[TableWriter]:
    with pa_parquet.ParquetWriter(file, schema) as writer:
        yield writer


@contextmanager
def _open_csv(file: Any, schema: pa.Schema, *, header: bool) -> Iterator[TableWriter]:
    with pa_csv.CSVWriter(file, schema, write_options=pa_csv.WriteOptions(include_header=header)) as writer:
        yield writer


@contextmanager
def _open_orc(file: Any, schema: pa.Schema) -> Iterator[TableWriter]:  # noqa: ARG001 - a file contains its schema
    with pa_orc.ORCWriter(file) as writer:
        yield writer


@contextmanager
def _open_json(file: Any, schema: pa.Schema) -> Iterator[TableWriter]:  # noqa: ARG001
    yield _JsonWriter(file)


class _JsonWriter:
    """Writes one JSON object per line."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(_JSON_ROWS):
            lines = (json_text.dumps(row, default=str, ensure_ascii=False) for row in batch.to_pylist())
            self._file.write("".join(f"{line}\n" for line in lines).encode())


PARQUET = FileFormat("parquet", _open_parquet)
ORC = FileFormat("orc", _open_orc)
JSON = FileFormat("json", _open_json)


def build_csv(header: bool) -> FileFormat:
    return FileFormat("csv", partial(_open_csv, header=header), (("header", str(header).lower()),))
