"""The versions of an Iceberg table: the sequence numbers of the snapshots that its present one descends from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import DataError, UnsupportedError
from penstock.spark.iceberg import IcebergTable, import_pyiceberg
from penstock.spark.lake_columns import cast_rows
from penstock.spark.sources.table_log import TableFile

_APPEND, _REPLACE = "append", "replace"
_ADDED = 1
"""The status of an entry of a manifest."""
_CHANGED = "a stream reads added rows only. Read the table with CREATE TABLE, or from a table that is only appended to"


class IcebergLog:
    """The versions of an Iceberg table; an empty table has version 0. A place is a task of pyiceberg."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._metadata: Any = None

    def __str__(self) -> str:
        return str(self._table)

    def find_last(self) -> int:
        snapshots = self._list_snapshots(self._load())
        return int(snapshots[-1].sequence_number) if snapshots else 0

    def list_versions(self, after: int, last: int) -> Sequence[int]:
        if last <= after:
            return []
        snapshots = self._list_snapshots(self._load())
        if after and all(each.sequence_number != after for each in snapshots):
            raise self._explain_lost(after)
        return [int(each.sequence_number) for each in snapshots if after < each.sequence_number <= last]

    def list_base(self, version: int) -> Sequence[TableFile]:
        if version == 0:
            return []
        table = self._load()
        snapshot = self._find_snapshot(table, version)
        added = {
            entry.data_file.file_path: entry.sequence_number
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
        }
        found = [
            TableFile(task, task.file.file_size_in_bytes)
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        ]
        return sorted(found, key=lambda each: (added[each.place.file.file_path] or 0, each.place.file.file_path))

    def list_added(self, version: int) -> Sequence[TableFile]:
        from pyiceberg.table import FileScanTask  # noqa: PLC0415 - an optional extra

        table = self._load()
        snapshot = self._find_snapshot(table, version)
        operation = snapshot.summary.operation.value if snapshot.summary else _APPEND
        if operation == _REPLACE:
            return []
        if operation != _APPEND:
            message = f"snapshot {snapshot.snapshot_id} of {self._table} changed or removed rows, and {_CHANGED}"
            raise DataError("SOURCE_ROWS_CHANGED", message)
        entries = (
            entry
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status == _ADDED and entry.snapshot_id == snapshot.snapshot_id
        )
        found = [TableFile(FileScanTask(each.data_file), each.data_file.file_size_in_bytes) for each in entries]
        return sorted(found, key=lambda file: str(file.place.file.file_path))

    def read(self, file: TableFile, schema: pa.Schema) -> pa.Table:
        from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415 - an optional extra

        if self._metadata is None:
            self._metadata = self._load().metadata
        metadata = self._metadata
        files = self._table.open_files(metadata.location)
        everything = import_pyiceberg().expressions.AlwaysTrue()
        columns = metadata.schema().select(*schema.names)
        rows = ArrowScan(metadata, files, columns, everything).to_table([file.place])
        return cast_rows(str(self._table), rows, schema)

    def _load(self) -> Any:
        with self._table.explain_errors("SOURCE_UNREADABLE", "read"):
            table = self._table.load()
        if table.metadata.format_version == 1:
            message = f"{self._table} has the format version 1, whose snapshots have no sequence numbers"
            raise UnsupportedError(
                "SOURCE_FEATURES", f"{message}; upgrade it to version 2, or read it with CREATE TABLE"
            )
        return table

    def _list_snapshots(self, table: Any) -> list[Any]:
        """The present snapshot and those that it descends from, the oldest first."""
        found, snapshot = [], table.current_snapshot()
        while snapshot is not None:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return found[::-1]

    def _find_snapshot(self, table: Any, version: int) -> Any:
        found = next((each for each in self._list_snapshots(table) if each.sequence_number == version), None)
        if found is None:
            raise self._explain_lost(version)
        return found

    def _explain_lost(self, version: int) -> DataError:
        message = f"{self._table} no longer has the snapshot with the sequence number {version}"
        remedy = "let snapshots expire later than a run stands still, and start with a new checkpoint"
        return DataError("SOURCE_VERSION_LOST", f"{message}; {remedy}")
