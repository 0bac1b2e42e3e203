"""A table of Delta Lake. Tasks write Parquet files, the driver commits them to the log with the `deltalake` package.

Law: after the commit of a micro-batch the table has its rows once, whatever attempts, retries and restarts there were.
- Append: files of attempts lie in the folder of the table and count only if the log names them. The log entry has the
  transaction identifier of run and query, with the number of the micro-batch: one that the table has is not written
  again. Files that no entry names are removed by VACUUM, as those of every writer of Delta.
- With a `key`, the changes of EMIT CHANGES are applied by one MERGE per micro-batch with the same identifier: rows and
  their negations cancel out, a row that left is deleted if the table still has exactly it, and a row that entered
  replaces the row of its key. The driver reads the changes of the micro-batch for this.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.cql import Connector, is_secret, redact, resolve_secrets
from penstock.errors import DataError, UnsupportedError
from penstock.spark.delta import import_deltalake, list_obstacles
from penstock.spark.sinks.files import GROUP_BYTES, STAGING_FOLDER, group_batches, open_folder, resolve_path
from penstock.spark.sinks.net_changes import (
    NET_COLUMN,
    check_key,
    choose_stored_type,
    compute_net_changes,
    describe_columns,
    list_values,
    select_stored,
)
from penstock.spark.sinks.protocol import Attempt, TaskSink

_COMMIT_ATTEMPTS = 8
"""How often a commit is tried again after another writer changed the table."""


class DeltaSink(TaskSink):
    """A Delta table in a folder."""

    def __init__(self, path: str, key: Sequence[str] = (), options: Mapping[str, str] | None = None) -> None:
        import_deltalake()
        self._path = path if "://" in path else resolve_path(path)
        self._key = tuple(key)
        self._options = dict(options or {})
        self._schema = pa.schema([])
        self._application = ""

    def __str__(self) -> str:
        return f"Delta table {self._path}, {'upserted by ' + ', '.join(self._key) if self._key else 'appended'}"

    @property
    def connector(self) -> Connector | None:
        """None if an option of the storage is written out: it may be a password, and a checkpoint must not have it."""
        if not all(map(is_secret, self._options.values())):
            return None
        own = {"path": self._path, "key": ", ".join(self._key)}
        return Connector("delta", tuple((self._options | own).items()))

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        files, root = open_folder(self._path)
        name = f"part-{attempt.batch:08d}-{attempt.cell:05d}-{attempt.token}.parquet"
        name = posixpath.join(STAGING_FOLDER, name) if self._key else name  # a name that readers of the folder skip
        place = posixpath.join(root, name)
        files.create_dir(posixpath.dirname(place), recursive=True)
        count = 0
        with files.open_output_stream(place) as file, pq.ParquetWriter(file, self._schema) as writer:
            for group in group_batches(rows, GROUP_BYTES):
                writer.write(group.cast(self._schema))
                count += group.num_rows
        return {"file": name, "rows": count, "size": files.get_file_info(place).size}

    # ── the driver ───────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._schema = pa.schema([field.with_type(choose_stored_type(field.type)) for field in schema])
        self._application = f"penstock-{run}-{name}"
        check_key(name, schema, self._key)
        files, root = open_folder(self._path)
        files.create_dir(root, recursive=True)
        deltalake = import_deltalake()
        shown = select_stored(self._schema, self._key)
        storage = resolve_secrets(self._options) or None
        try:
            if not deltalake.DeltaTable.is_deltatable(self._path, storage):
                deltalake.DeltaTable.create(self._path, shown, storage_options=storage)
            table = self._open_table()
            found = pa.schema(table.schema().to_arrow())
        except Exception as error:  # those of its parts are not DeltaError
            said = redact(str(error)).strip().splitlines()[0]
            raise DataError("SINK_FAILED", f"{self} cannot be opened: {said}; check path and options") from None
        if describe_columns(found) != describe_columns(shown):
            message = f"{self} has the columns {describe_columns(found)}, but {name} has {describe_columns(shown)}"
            raise DataError("SINK_SCHEMA", f"{message}; change the SELECT, or name another folder")
        if obstacles := list_obstacles(table, merged=bool(self._key)):
            message = f"{self} has {', '.join(obstacles)}, which would not be obeyed; name another folder"
            raise UnsupportedError("SINK_FEATURES", f"{message}, or write it with Delta's connector for Spark")

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        conflict = import_deltalake().exceptions.CommitFailedError
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                self._commit_once(batch, messages)
                break
            except conflict as error:  # another writer changed the table
                if attempt == _COMMIT_ATTEMPTS:
                    said = redact(str(error)).strip().splitlines()[0]
                    raise DataError("SINK_FAILED", f"{self}: other writers change it all the time: {said}") from None
        if self._key:
            files, root = open_folder(self._path)
            for message in messages:
                files.delete_file(posixpath.join(root, message["file"]))

    def _commit_once(self, batch: int, messages: Sequence[Any]) -> None:
        table = self._open_table()
        written = table.transaction_version(self._application)
        if written is None or written < batch:
            if self._key:
                self._merge(table, batch, messages)
            elif messages:
                self._append(table, batch, messages)

    def _append(self, table: Any, batch: int, messages: Sequence[Any]) -> None:
        now = int(time.time() * 1000)
        actions = [
            import_deltalake().transaction.AddAction(
                each["file"], each["size"], {}, now, True, json.dumps({"numRecords": each["rows"]})
            )
            for each in messages
            if each["rows"]
        ]
        shown = table.schema()
        table.create_write_transaction(actions, "append", shown, [], commit_properties=self._mark(batch))

    def _merge(self, table: Any, batch: int, messages: Sequence[Any]) -> None:
        files, root = open_folder(self._path)
        parts = [pq.read_table(posixpath.join(root, each["file"]), filesystem=files) for each in messages]
        net = compute_net_changes(pa.concat_tables([self._schema.empty_table(), *parts]), self._key)
        if not net.num_rows:
            return
        same, equal = _match(self._key), _match(list_values(self._schema))
        values = {each: _name("s", each) for each in select_stored(self._schema, self._key).names}
        merge = table.merge(net, same, source_alias="s", target_alias="t", commit_properties=self._mark(batch))
        merge = merge.when_matched_update(values, predicate=f"s.{NET_COLUMN} > 0")
        merge = merge.when_matched_delete(predicate=f"s.{NET_COLUMN} < 0 AND {equal}")
        merge.when_not_matched_insert(values, predicate=f"s.{NET_COLUMN} > 0").execute()

    def _mark(self, batch: int) -> Any:
        deltalake = import_deltalake()
        return deltalake.CommitProperties(app_transactions=[deltalake.Transaction(self._application, batch)])

    def _open_table(self) -> Any:
        return import_deltalake().DeltaTable(self._path, storage_options=resolve_secrets(self._options) or None)


def _match(names: Sequence[str]) -> str:
    """The condition that s and t agree on columns; NULL equals NULL."""
    return " AND ".join(f"({_name('t', each)} IS NOT DISTINCT FROM {_name('s', each)})" for each in names)


def _name(table: str, column: str) -> str:
    quoted = column.replace('"', '""')
    return f'{table}."{quoted}"'
