"""Files that tasks write: each attempt writes aside, the driver moves the files of the attempts that count into place.

Law: after the commit of a micro-batch the folder shows exactly its rows once, whatever attempts there were before.
- A task writes below `<folder>/_penstock/<output>/<batch>/`, a name that Spark, pyarrow and others skip. The name of
  the file contains the token of the attempt, so attempts never write to the same file.
- The commit moves a file to a name of run, query, micro-batch, cell and part. A repeated commit replaces its files.
- Micro-batches are repeated only in the first one of a run. Its commit also removes what an earlier attempt left.
- What is left aside is removed with the commit of its micro-batch, or at the next start.
A file is moved as a whole, and its rows are in temporal order. Files of a micro-batch become visible one by one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.cql import Connector
from penstock.errors import DataError
from penstock.spark.sinks.file_names import FolderMode, check_mode, choose_files_of_others, name_output
from penstock.spark.sinks.formats import FileFormat
from penstock.spark.sinks.protocol import Attempt, TaskSink
from penstock.spark.storage import Folder

STAGING_FOLDER = "_penstock"
FILE_SIZE = 512 * 2**20
"""A file is ended when it has this many bytes."""
_GROUP_ROWS = 2**20
GROUP_BYTES = 64 * 2**20
"""Rows are written in groups of at most this size: this is what a task keeps in memory."""
_LOCAL_SCHEME = "file:"


class FileSink(TaskSink):
    """A folder with files of one format, one or more for each cell and micro-batch with rows."""

    def __init__(
        self, path: str, file_format: FileFormat, mode: FolderMode = "error", file_size: int = FILE_SIZE
    ) -> None:
        self.path = path if "://" in path or path.startswith(_LOCAL_SCHEME) else resolve_path(path)
        self.mode = check_mode(mode)
        self._format = file_format
        self._file_size = file_size
        self._output = ""
        self._is_first = True
        open_folder(self.path)

    def __str__(self) -> str:
        return f"{self._format.extension} files in {self.path}"

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002 - files contain their schema
        self._output = name_output(run, name)
        self._is_first = True

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        files, root = open_folder(self.path)
        folder = posixpath.join(root, self._get_staging(attempt.batch))
        files.create_dir(folder, recursive=True)
        names: list[str] = []
        groups = group_batches(rows, min(GROUP_BYTES, self._file_size))
        group = next(groups, None)
        while group is not None:
            names.append(f"{attempt.cell:05d}-{attempt.token}-{len(names):03d}.{self._format.extension}")
            with (
                files.open_output_stream(posixpath.join(folder, names[-1])) as file,
                self._format.open_writer(file, group.schema) as writer,
            ):
                while group is not None:
                    writer.write(group)
                    group = next(groups, None)
                    if file.tell() >= self._file_size:
                        break
        return {"cell": attempt.cell, "files": names}

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        files, root = open_folder(self.path)
        staging = posixpath.join(root, self._get_staging(batch))
        moves = {
            f"{self._output}-{batch:08d}-{message['cell']:05d}-{part:03d}.{self._format.extension}": name
            for message in messages
            for part, name in enumerate(message["files"])
        }
        if self._is_first:
            self._remove_leftovers(files, root, batch, moves)
        for name, staged in moves.items():
            _move_file(files, posixpath.join(staging, staged), posixpath.join(root, name))
        if messages:
            _delete_folder(files, staging)
        self._is_first = False

    @property
    def connector(self) -> Connector:
        options = (("path", self.path), ("mode", self.mode), ("fileSize", str(self._file_size)))
        return Connector(self._format.extension, (*options, *self._format.options))

    def list_files_of_others(self, run: str | None) -> list[str]:
        """The result files in the folder that a run did not write; of all runs without one."""
        files, root = open_folder(self.path)
        names = (info.base_name for info in files.get_file_info(fs.FileSelector(root, allow_not_found=True)))
        return choose_files_of_others(names, run, self._format.extension)

    def remove_files_of_others(self, run: str | None) -> None:
        """Remove the result files that a run did not write; other files stay."""
        files, root = open_folder(self.path)
        for name in self.list_files_of_others(run):
            files.delete_file(posixpath.join(root, name))

    def _get_staging(self, batch: int) -> str:
        return f"{STAGING_FOLDER}/{self._output}/{batch:08d}"

    def _remove_leftovers(self, files: fs.FileSystem, root: str, batch: int, moves: dict[str, str]) -> None:
        """Remove files of an earlier commit of this micro-batch, and all that was written aside for other ones."""
        replaces = isinstance(files, fs.LocalFileSystem)  # elsewhere a move may refuse to replace a file
        own = re.compile(re.escape(f"{self._output}-{batch:08d}-") + r"\d{5,}-\d{3,}\.\w+")
        for info in files.get_file_info(fs.FileSelector(root, allow_not_found=True)):
            if own.fullmatch(info.base_name) and not (replaces and info.base_name in moves):
                files.delete_file(info.path)
        staging = posixpath.join(root, STAGING_FOLDER, self._output)
        for info in files.get_file_info(fs.FileSelector(staging, allow_not_found=True)):
            if info.base_name != f"{batch:08d}" or not moves:
                _delete_folder(files, info.path)


def resolve_path(path: str) -> str:
    """A path without a scheme as Spark resolves it, for workers that may run in another folder."""
    folder = Folder(path)
    return str(Path(path).absolute()) if folder.is_local else folder.uri


def open_folder(path: str) -> tuple[fs.FileSystem, str]:
    if "://" not in path and not path.startswith(_LOCAL_SCHEME):
        return fs.LocalFileSystem(), path
    try:
        files, root = fs.FileSystem.from_uri(path)
    except (OSError, pa.ArrowException) as error:
        message = f"{path} cannot be reached as a folder: {error}"
        raise DataError("FOLDER_UNREACHABLE", message, folder=path) from error
    return files, root


def group_batches(rows: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """The rows in tables of about a number of bytes, which have a bounded number of rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= most or sum(each.num_rows for each in held) >= _GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _move_file(files: fs.FileSystem, source: str, target: str) -> None:
    try:
        files.move(source, target)
    except FileNotFoundError as error:
        message = (
            f"{source} was written by a task and is not visible to the driver; "
            "give the sink a folder that the driver and all executors reach, such as a URI of a shared file system"
        )
        raise DataError("SINK_NOT_SHARED", message) from error


def _delete_folder(files: fs.FileSystem, path: str) -> None:
    if files.get_file_info(path).type == fs.FileType.Directory:
        files.delete_dir(path)
