"""The versions of a Delta table: the entries of its log, which are files of JSON."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import DataError
from penstock.spark.delta import open_table
from penstock.spark.lake_columns import cast_rows
from penstock.spark.sinks.files import open_folder
from penstock.spark.sources.table_log import TableFile

_LOG_FOLDER = "_delta_log"
_ACTION_COLUMNS = ("modification_time", "path", "size_bytes")
_CHANGED = "a stream reads added rows only. Read the table with CREATE TABLE, or from a table that is only appended to"


class DeltaLog:
    """The versions of a Delta table. A place is a path in the table and the values of its partition."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._options = dict(options)
        self._last: int | None = None

    def __str__(self) -> str:
        return f"Delta table {self._path}"

    def find_last(self) -> int:
        if self._last is None:
            self._last = int(open_table(self._path, self._options).version())
        files, root = open_folder(self._path)
        while files.get_file_info(self._name_entry(root, self._last + 1)).is_file:
            self._last += 1
        return self._last

    def list_versions(self, after: int, last: int) -> Sequence[int]:
        return range(after + 1, last + 1)

    def list_base(self, version: int) -> Sequence[TableFile]:
        actions = open_table(self._path, self._options, version).get_add_actions(flatten=False)
        known = pa.table(actions)
        columns = [name for name in (*_ACTION_COLUMNS, "partition") if name in known.column_names]
        rows = sorted(known.select(columns).to_pylist(), key=lambda row: (row["modification_time"], row["path"]))
        return [TableFile((row["path"], row.get("partition") or {}), row["size_bytes"]) for row in rows]

    def list_added(self, version: int) -> Sequence[TableFile]:
        added = []
        for action in self._read_entry(version):
            if action.get("remove", {}).get("dataChange"):
                message = f"version {version} of Delta table {self._path} changed or removed rows, and {_CHANGED}"
                raise DataError("SOURCE_ROWS_CHANGED", message)
            add = action.get("add")
            if add and add["dataChange"]:
                added.append(TableFile((add["path"], add.get("partitionValues") or {}), add["size"]))
        return added

    def read(self, file: TableFile, schema: pa.Schema) -> pa.Table:
        path, partition = file.place
        files, root = open_folder(self._path)
        with files.open_input_file(posixpath.join(root, unquote(path))) as data:
            parquet = pq.ParquetFile(data)
            names = parquet.schema_arrow.names
            rows = parquet.read([name for name in schema.names if name in names])
            size = parquet.metadata.num_rows
        columns = [
            rows.column(field.name) if field.name in names else _fill(partition, field, size) for field in schema
        ]
        return cast_rows(f"Delta table {self._path}", pa.table(columns, names=schema.names), schema)

    def _read_entry(self, version: int) -> list[dict[str, Any]]:
        files, root = open_folder(self._path)
        try:
            with files.open_input_stream(self._name_entry(root, version)) as file:
                return [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            message = (
                f"Delta table {self._path} no longer has the entry of version {version} in its log; "
                "keep entries for longer (delta.logRetentionDuration), and start with a new checkpoint"
            )
            raise DataError("SOURCE_VERSION_LOST", message) from None

    def _name_entry(self, root: str, version: int) -> str:
        return posixpath.join(root, _LOG_FOLDER, f"{version:020d}.json")


def _fill(partition: Mapping[str, Any], field: pa.Field, size: int) -> pa.Array:
    """The value of a partition in every row; NULL if the file is older than the column."""
    value = partition.get(field.name)
    if value is None or value == "":
        return pa.nulls(size, field.type)
    scalar = pa.scalar(value).cast(field.type) if isinstance(value, str) else pa.scalar(value, field.type)
    return pa.repeat(scalar, size)
