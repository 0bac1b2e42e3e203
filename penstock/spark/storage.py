"""Small files in a checkpoint or a sink's folder, which may be a local path or a URI."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from penstock.errors import DataError


def as_file_name(name: str) -> str:
    """A file name for any text; different texts have different file names."""
    return quote(name, safe=" ").replace(".", "%2E")


class Folder:
    """A folder, local or behind a URI."""

    def __init__(self, path: str) -> None:
        self.path = path
        if "://" in path or path.startswith("file:"):
            try:
                self._files, self._root = fs.FileSystem.from_uri(path)
            except (OSError, pa.ArrowException) as error:
                message = f"{path} cannot be reached as a folder: {error}"
                raise DataError("FOLDER_UNREACHABLE", message, folder=path) from error
        else:
            self._files, self._root = fs.LocalFileSystem(), path

    @property
    def is_local(self) -> bool:
        return isinstance(self._files, fs.LocalFileSystem)

    def child(self, name: str) -> Folder:
        return Folder(f"{self.path.rstrip('/')}/{name}")

    def find_local_path(self, name: str) -> str | None:
        """The path of a file on a local disk; None if the folder is not local."""
        return posixpath.join(self._root, name) if self.is_local else None

    def read(self, name: str) -> bytes | None:
        """The contents of a file, None if there is no such file."""
        path = posixpath.join(self._root, name)
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        self.write_with(name, lambda file: file.write(content))

    def write_with(self, name: str, write: Callable[[Any], Any]) -> None:
        """Write a file atomically: readers find the old one or the new one, never a part."""
        self._files.create_dir(self._root, recursive=True)
        part = posixpath.join(self._root, f"_{name}.{uuid4().hex}")
        with self._files.open_output_stream(part) as file:
            write(file)
        self._files.move(part, posixpath.join(self._root, name))

    def remove(self, name: str) -> None:
        path = posixpath.join(self._root, name)
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            self._files.delete_file(path)

    def list_names(self) -> list[str]:
        selector = fs.FileSelector(self._root, allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))

    def delete_all(self) -> None:
        """Remove the folder with its contents."""
        if self._files.get_file_info(self._root).type != fs.FileType.NotFound:
            self._files.delete_dir(self._root)

    def copy_to(self, other: Folder) -> None:
        """Copy the folder with its contents."""
        if self._files.get_file_info(self._root).type != fs.FileType.NotFound:
            fs.copy_files(self._root, other._root, source_filesystem=self._files, destination_filesystem=other._files)
