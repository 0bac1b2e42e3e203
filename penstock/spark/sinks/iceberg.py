"""A table of Apache Iceberg. Tasks write Parquet files, the driver commits them with the package pyiceberg.

Law: after the commit of a micro-batch the table has its rows once, whatever attempts, retries and restarts there were.
- The number of the micro-batch is a property of the table, named after run and query. It is set in the transaction that
  adds the rows, so a micro-batch that the table has is not written again. It is in the summary of the snapshot too, but
  snapshots expire and properties stay.
- Append: files of attempts count only if a snapshot names them.
- With a `key`, the changes of EMIT CHANGES become one transaction: the rows of all keys that changed are deleted, and
  those of them that stay are inserted with those that entered. pyiceberg rewrites the files that have such rows.
Files that no snapshot names, of failed attempts, are removed by Iceberg's own removal of orphan files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.cql import Connector
from penstock.errors import DataError, UnsupportedError
from penstock.spark.iceberg import IcebergTable, import_pyiceberg, refuse_parts
from penstock.spark.sinks.files import GROUP_BYTES, group_batches
from penstock.spark.sinks.net_changes import (
    NET_COLUMN,
    check_key,
    choose_stored_type,
    compute_net_changes,
    describe_columns,
    list_values,
    mark_rows,
    select_stored,
)
from penstock.spark.sinks.protocol import Attempt, TaskSink

_COMMIT_ATTEMPTS = 8
"""How often a commit is tried again after another writer changed the table."""
_PROPERTY = "penstock-batch-"


class IcebergSink(TaskSink):
    """A table of a catalog."""

    def __init__(self, table: IcebergTable, key: Sequence[str] = ()) -> None:
        import_pyiceberg()
        self._table = table
        self._key = tuple(key)
        self._schema = pa.schema([])
        self._output = ""
        self._location = ""

    def __str__(self) -> str:
        return f"{self._table}, {'upserted by ' + ', '.join(self._key) if self._key else 'appended'}"

    @property
    def connector(self) -> Connector | None:
        """None if an option may be a password that is written out: a checkpoint must not have it."""
        if self._table.has_open_secret:
            return None
        own = {"table": self._table.name, "key": ", ".join(self._key)}
        return Connector("iceberg", tuple((dict(self._table.options) | own).items()))

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        name = f"penstock-{attempt.batch:08d}-{attempt.cell:05d}-{attempt.token}.parquet"
        place = posixpath.join(self._location, "changes" if self._key else "data", name)
        count = 0
        files = self._table.open_files(self._location)
        with files.new_output(place).create() as file, pq.ParquetWriter(file, self._schema) as writer:
            for group in group_batches(rows, GROUP_BYTES):
                writer.write(group.cast(self._schema))
                count += group.num_rows
        return {"file": place, "rows": count}

    # ── the driver ───────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        stored = [field.with_type(choose_stored_type(field.type, small_integers=False)) for field in schema]
        self._schema = pa.schema(stored)
        self._output = f"{run}/{name}"
        check_key(name, schema, self._key)
        if dotted := [each for each in self._key if "." in each]:
            message = f"pyiceberg does not find rows by a column with a dot in its name, {', '.join(dotted)}"
            raise UnsupportedError("SINK_KEY", f"{message}; give it another name with AS")
        shown = select_stored(self._schema, self._key)
        if self._key:  # pyiceberg reads rows and writes them again
            refuse_parts(str(self), shown, "SINK_TYPE")
        with self._table.explain_errors("SINK_FAILED", "opened"):
            catalog = self._table.open_catalog()
            if not catalog.table_exists(self._table.name):
                catalog.create_namespace_if_not_exists(self._table.name.rpartition(".")[0])
            table = catalog.create_table_if_not_exists(self._table.name, shown)
        self._location = table.location()
        if not table.spec().is_unpartitioned():
            message = f"{self} is partitioned by {table.spec()}; only tables without partitions are written"
            raise UnsupportedError("SINK_PARTITIONED", f"{message}; name another table")
        found, required = table.schema().as_arrow(), [field.name for field in table.schema().fields if field.required]
        if describe_columns(found) != describe_columns(shown) or required:
            message = f"{self} has the columns {describe_columns(found)}, but {name} has {describe_columns(shown)}"
            message += f"; {', '.join(required)} must not be NULL in the table" if required else ""
            raise DataError("SINK_SCHEMA", f"{message}; change the SELECT, or name another table")

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        with self._table.explain_errors("SINK_FAILED", "committed"):
            for attempt in range(1, _COMMIT_ATTEMPTS + 1):
                try:
                    table, written = self._load_written()
                    if written < batch:
                        self._add_batch(table, batch, [each["file"] for each in messages if each["rows"]])
                    break
                except import_pyiceberg().exceptions.CommitFailedException:  # another writer changed the table
                    if attempt == _COMMIT_ATTEMPTS:
                        raise
            for message in messages:
                if self._key or written >= batch or not message["rows"]:
                    table.io.delete(message["file"])

    def _load_written(self) -> tuple[Any, int]:
        """The table, and the last micro-batch that it has of this run and query."""
        table = self._table.load()
        return table, int(table.properties.get(_PROPERTY + self._output, -1))

    def _add_batch(self, table: Any, batch: int, paths: list[str]) -> None:
        if paths:
            summary = {"penstock-output": self._output, "penstock-batch": str(batch)}
            with table.transaction() as change:
                self._change_table(table, change, paths, summary)
                change.set_properties({_PROPERTY + self._output: str(batch)})

    def _change_table(self, table: Any, change: Any, paths: list[str], summary: dict[str, str]) -> None:
        if not self._key:
            change.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
            return
        parts = []
        for path in paths:
            with table.io.new_input(path).open() as file:
                parts.append(pq.read_table(file, schema=self._schema))
        net = compute_net_changes(pa.concat_tables(parts), self._key)
        if not net.num_rows:
            return
        names = select_stored(self._schema, self._key).names
        entered = net.filter(pc.greater(net.column(NET_COLUMN), 0)).select(names)
        left = net.filter(pc.less(net.column(NET_COLUMN), 0)).select(names)
        touched = build_filter(net.select(self._key))
        present = table.scan(row_filter=touched).to_arrow().select(names).cast(entered.schema)
        gone = pc.or_(mark_rows(present, entered, self._key), mark_rows(present, left, list_values(self._schema)))
        if present.num_rows:
            change.delete(touched, snapshot_properties=summary)
        change.append(pa.concat_tables([present.filter(pc.invert(gone)), entered]), snapshot_properties=summary)


def build_filter(keys: pa.Table) -> Any:
    """A condition that holds for all rows with these keys, and perhaps for others: columns are compared one by one."""
    expressions = import_pyiceberg().expressions
    parts = []
    for name in keys.column_names:
        column = keys.column(name).unique()
        conditions = []
        if pa.types.is_floating(column.type):
            if pc.any(pc.is_nan(column)).as_py():
                conditions.append(expressions.IsNaN(name))
            column = column.filter(pc.fill_null(pc.invert(pc.is_nan(column)), True))
        if column.null_count:
            conditions.append(expressions.IsNull(name))
        if values := column.drop_null().to_pylist():
            conditions.append(expressions.In(name, values))
            if pa.types.is_floating(column.type) and 0.0 in values:  # a set of values does not find -0.0
                conditions.append(expressions.EqualTo(name, 0.0))
        parts.append(reduce(expressions.Or, conditions))
    return reduce(expressions.And, parts)
