"""Files through Hadoop's FileSystem, on the driver: whatever storage Spark is configured for.

Spark resolves a path without a scheme against the default file system, and knows schemes such as `s3a:` and `dbfs:`
only through Hadoop's configuration. So the driver asks Hadoop where a path is and, unless that is a local disk, reads
and writes there through the JVM. Errors of Java become OSError.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

_BUFFER_BYTES = 4 << 20
_LOCAL_SCHEME = "file"


class HadoopFolder:
    """A folder in a file system of Hadoop. Files are written atomically, as Spark writes its checkpoint files."""

    def __init__(self, context: SparkContext, path: str) -> None:
        jvm: Any = context._jvm
        with _translate_errors():
            given = jvm.org.apache.hadoop.fs.Path(path)
            self._files = given.getFileSystem(cast(Any, context._jsc).hadoopConfiguration())
            self._root = self._files.makeQualified(given)
            self.uri: str = self._root.toString()
        self._jvm = jvm

    @property
    def local_path(self) -> str | None:
        """Its path if it is on a local disk, else None."""
        uri = self._root.toUri()
        return str(uri.getPath()) if uri.getScheme() == _LOCAL_SCHEME else None

    @cached_property
    def _file_manager(self) -> Any:
        """Spark's way to write files of a checkpoint on this storage, which a setting of the session may choose."""
        settings = self._jvm.org.apache.spark.sql.SparkSession.active().sessionState().newHadoopConf()
        managers = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        return managers.create(self._root, settings)

    def _resolve(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def read(self, name: str) -> bytes | None:
        with _translate_errors():
            path = self._resolve(name)
            if not self._files.exists(path):
                return None
            stream = self._files.open(path)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write_with(self, name: str, write: Callable[[Any], Any]) -> None:
        with _translate_errors():
            self._files.mkdirs(self._root)
            stream = self._file_manager.createAtomic(self._resolve(name), True)
            try:
                with io.BufferedWriter(_StreamWriter(stream), _BUFFER_BYTES) as file:
                    write(file)
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def remove(self, name: str) -> None:
        with _translate_errors():
            self._files.delete(self._resolve(name), False)

    def list_names(self) -> list[str]:
        with _translate_errors():
            if not self._files.exists(self._root):
                return []
            return sorted(status.getPath().getName() for status in self._files.listStatus(self._root))

    def delete_all(self) -> None:
        with _translate_errors():
            self._files.delete(self._root, True)

    def copy_to(self, other: HadoopFolder) -> None:
        """Copy the folder with its contents to a place where there is none."""
        with _translate_errors():
            if self._files.exists(self._root):
                other._files.mkdirs(other._root.getParent())
                copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
                copy(self._files, self._root, other._files, other._root, False, self._files.getConf())


class _StreamWriter(io.RawIOBase):
    """Java's output stream as a file of Python. Closing it leaves the stream open."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._stream.write(bytes(content))
        return len(content)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Errors of Java as OSError."""
    try:
        yield
    except Py4JJavaError as error:
        raise OSError(str(error.java_exception)) from error
    except Py4JError as error:
        raise OSError(str(error)) from error
