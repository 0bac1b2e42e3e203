"""Small files in a checkpoint or a sink's folder, wherever Spark would find that folder.

On the driver a path means what it means to Spark: without a scheme it is resolved against Hadoop's default file system,
and every scheme that Hadoop is configured for works (see `hadoop_files`). Files on a local disk are read and written
directly. Without a Spark session, and in tasks, which have no JVM, there are local paths and the URIs that Arrow knows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs
from pyspark import SparkContext

from penstock.errors import DataError, InternalError
from penstock.spark.hadoop_files import HadoopFolder


def as_file_name(name: str) -> str:
    """A file name for any text; different texts have different file names."""
    return quote(name, safe=" ").replace(".", "%2E")


class FolderFiles(Protocol):
    """The files of one folder."""

    @property
    def uri(self) -> str: ...
    @property
    def local_path(self) -> str | None: ...
    def read(self, name: str) -> bytes | None: ...
    def write_with(self, name: str, write: Callable[[Any], Any]) -> None: ...
    def remove(self, name: str) -> None: ...
    def list_names(self) -> list[str]: ...
    def delete_all(self) -> None: ...


class Folder:
    """A folder, local or behind a URI. The path is resolved when the folder is first used."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _files(self) -> FolderFiles:
        try:
            return _open_files(self.path)
        except (OSError, pa.ArrowException) as error:
            message = f"{self.path} cannot be reached as a folder: {error}"
            raise DataError("FOLDER_UNREACHABLE", message, folder=self.path) from error

    @property
    def uri(self) -> str:
        """The whole URI of the folder, which means the same in every process."""
        return self._files.uri

    @property
    def is_local(self) -> bool:
        return self._files.local_path is not None

    def child(self, name: str) -> Folder:
        return Folder(f"{self.path.rstrip('/')}/{name}")

    def find_local_path(self, name: str) -> str | None:
        """The path of a file on a local disk; None if the folder is not local."""
        root = self._files.local_path
        return None if root is None else posixpath.join(root, name)

    def read(self, name: str) -> bytes | None:
        """The contents of a file, None if there is no such file."""
        return self._files.read(name)

    def write(self, name: str, content: bytes) -> None:
        self.write_with(name, lambda file: file.write(content))

    def write_with(self, name: str, write: Callable[[Any], Any]) -> None:
        """Write a file atomically: readers find the old one or the new one, never a part."""
        self._files.write_with(name, write)

    def remove(self, name: str) -> None:
        self._files.remove(name)

    def list_names(self) -> list[str]:
        return self._files.list_names()

    def delete_all(self) -> None:
        """Remove the folder with its contents."""
        self._files.delete_all()

    def copy_to(self, other: Folder) -> None:
        """Copy the folder with its contents to a place where there is none; only on the driver."""
        context = SparkContext._active_spark_context
        if context is None:
            raise InternalError("NO_SPARK", "folders are copied by Spark's driver")
        HadoopFolder(context, self.path).copy_to(HadoopFolder(context, other.path))


def _open_files(path: str) -> FolderFiles:
    context = SparkContext._active_spark_context
    if context is not None:
        found = HadoopFolder(context, path)
        return found if found.local_path is None else ArrowFolder(fs.LocalFileSystem(), found.local_path, found.uri)
    if "://" in path or path.startswith("file:"):
        files, root = fs.FileSystem.from_uri(path)
        return ArrowFolder(files, root, path)
    return ArrowFolder(fs.LocalFileSystem(), path, path)


class ArrowFolder:
    """A folder in a file system of Arrow."""

    def __init__(self, files: fs.FileSystem, root: str, uri: str) -> None:
        self._files = files
        self._root = root
        self.uri = uri

    @property
    def local_path(self) -> str | None:
        return self._root if isinstance(self._files, fs.LocalFileSystem) else None

    def _exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type != fs.FileType.NotFound)

    def read(self, name: str) -> bytes | None:
        path = posixpath.join(self._root, name)
        if not self._exists(path):
            return None
        with self._files.open_input_stream(path) as file:
            return bytes(file.read())

    def write_with(self, name: str, write: Callable[[Any], Any]) -> None:
        self._files.create_dir(self._root, recursive=True)
        part = posixpath.join(self._root, f"_{name}.{uuid4().hex}")
        with self._files.open_output_stream(part) as file:
            write(file)
        self._files.move(part, posixpath.join(self._root, name))

    def remove(self, name: str) -> None:
        path = posixpath.join(self._root, name)
        if self._exists(path):
            self._files.delete_file(path)

    def list_names(self) -> list[str]:
        selector = fs.FileSelector(self._root, allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))

    def delete_all(self) -> None:
        if self._exists(self._root):
            self._files.delete_dir(self._root)
