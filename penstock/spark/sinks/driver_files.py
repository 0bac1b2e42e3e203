"""Files that the driver writes, for folders that tasks cannot reach: URIs that Spark knows and pyarrow does not.

A file has the name of its run, query and micro-batch, so a repeated micro-batch replaces it.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.cql import Connector
from penstock.spark.sinks.file_names import FolderMode, check_mode, choose_files_of_others, name_output
from penstock.spark.sinks.formats import FileFormat
from penstock.spark.sinks.protocol import DRIVER_LIMIT
from penstock.spark.storage import Folder


class DriverFileSink:
    """A folder with one file per query and micro-batch that has rows."""

    def __init__(self, path: str, file_format: FileFormat, mode: FolderMode = "error") -> None:
        self.path = path
        self.mode = check_mode(mode)
        self.limit = DRIVER_LIMIT
        self._folder = Folder(path)
        self._format = file_format
        self._output = ""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002 - files contain their schema
        self._output = name_output(run, name)

    def write(self, batch: int, rows: pa.Table) -> None:
        name = f"{self._output}-{batch:08d}.{self._format.extension}"
        if rows.num_rows:
            self._folder.write_with(name, lambda file: self._write_file(file, rows))
        else:
            self._folder.remove(name)

    def _write_file(self, file: object, rows: pa.Table) -> None:
        with self._format.open_writer(file, rows.schema) as writer:
            writer.write(rows)

    @property
    def connector(self) -> Connector:
        return Connector(self._format.extension, (("path", self.path), ("mode", self.mode), *self._format.options))

    def list_files_of_others(self, run: str | None) -> list[str]:
        """The result files in the folder that a run did not write; of all runs without one."""
        return choose_files_of_others(self._folder.list_names(), run, self._format.extension)

    def remove_files_of_others(self, run: str | None) -> None:
        """Remove the result files that a run did not write; other files stay."""
        for name in self.list_files_of_others(run):
            self._folder.remove(name)

    def __str__(self) -> str:
        return f"{self._format.extension} files in {self.path}"
