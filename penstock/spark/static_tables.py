"""Static tables: files of the checkpoint, named after their content, which every worker reads once.

A table is not part of the functions that Spark sends to its tasks: Spark makes large functions broadcast variables,
which the state stage cannot load, and decodes them again in every task. So tasks get the id of the content and the
place of an Arrow file. A worker maps the file into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
from pyspark import SparkContext, SparkFiles

from penstock.errors import DataError
from penstock.spark.storage import Folder

TABLE_FOLDER = "tables"
_EXTENSION = ".arrow"

_loaded: WeakValueDictionary[str, pa.Table] = WeakValueDictionary()
"""The tables that engines of this process use, by the ids of their contents."""


@dataclass(frozen=True)
class StaticTable:
    """A static table: its columns, the id of its content, and its rows or the file that has them."""

    schema: pa.Schema
    id: str
    rows: pa.Table | None
    path: str | None = None
    """A local path, or the name of a file that Spark sends to the nodes; None if the table is not stored."""
    sent: bool = False
    """Whether Spark sends the file."""

    @classmethod
    def of(cls, table: pa.Table) -> StaticTable:
        """A table that is not stored. Its id depends on columns, types and rows, not on how the rows are divided."""
        digest = _DigestWriter()
        write_table_file(table, digest)
        return cls(table.schema, digest.compute_id(), table)

    @property
    def file_name(self) -> str:
        return self.id + _EXTENSION

    def store(self, folder: Folder, send: Callable[[str], object]) -> StaticTable:
        """The same table with a file in a folder, which is written if there is none.

        Tasks read a local file directly. `send` is called with the URI of another one, so that Spark sends it to every
        node that runs tasks.
        """
        if self.file_name not in folder.list_names():
            folder.write_with(self.file_name, lambda file: write_table_file(self.read(), file))
        path = folder.find_local_path(self.file_name)
        if path is not None:
            return replace(self, path=path)
        send(f"{folder.uri}/{self.file_name}")
        return replace(self, path=self.file_name, sent=True)

    def read(self) -> pa.Table:
        """The rows; those of a file are mapped into memory, once in a process."""
        if self.rows is not None:
            return self.rows
        found = _loaded.get(self.id)
        if found is None:
            _loaded[self.id] = found = self._load()
        return found

    def _load(self) -> pa.Table:
        if self.path is None:
            raise DataError("TABLE_MISSING", "a static table has neither rows nor a file")
        try:
            path = SparkFiles.get(self.path) if self.sent else self.path
            return pa.ipc.open_file(pa.memory_map(path)).read_all()
        except (OSError, pa.ArrowException) as error:
            message = (
                f"the file {self.path} of a static table cannot be read: {error}; the checkpoint must be reachable "
                "from every node; stop the run and start it again to write the file again"
            )
            raise DataError("TABLE_MISSING", message, path=self.path) from error

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows if a file has them."""
        return {**self.__dict__, "rows": self.rows if self.path is None else None}


def store_tables(
    context: SparkContext, checkpoint: Folder, tables: Mapping[str, StaticTable]
) -> dict[str, StaticTable]:
    """The tables with files in a checkpoint."""
    folder = checkpoint.child(TABLE_FOLDER)
    return {name: table.store(folder, context.addFile) for name, table in tables.items()}


class TableCleaner:
    """Removes the files of other tables from a checkpoint, once, after the first micro-batch of a run.

    Until then the run may fail to start, and another run may still read them.
    """

    def __init__(self, checkpoint: Folder, tables: Iterable[StaticTable]) -> None:
        self._folder = checkpoint.child(TABLE_FOLDER)
        self._used = {table.file_name for table in tables}
        self._done = False

    def observe(self, report: object) -> None:
        """Called after every micro-batch. An error of the storage does not stop the run: the next call tries again."""
        del report
        if self._done:
            return
        with suppress(OSError, DataError):
            for name in self._folder.list_names():
                if name.endswith(_EXTENSION) and name not in self._used:
                    self._folder.remove(name)
            self._done = True


def write_table_file(table: pa.Table, file: Any) -> None:
    """Write an Arrow file of as few record batches as possible."""
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


class _DigestWriter:
    """A file that keeps only the digest of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, content: Any) -> int:
        self._digest.update(content)
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def compute_id(self) -> str:
        return self._digest.hexdigest()[:32]
