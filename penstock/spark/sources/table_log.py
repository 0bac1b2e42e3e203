"""The order in which the files of a table that grows are read as a stream.

A table has numbered versions. A stream reads the files of one version, its base, and then those that each later version
added. Law: a position says which files have been read; what lies between two positions is the same whenever it is
asked for, as long as the table keeps these versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True)
class TableFile:
    """A file to read: how its log finds it, and its size in bytes."""

    place: Any
    size: int


class TableLog(Protocol):
    """A table with versions."""

    def find_last(self) -> int:
        """The newest version."""

    def list_versions(self, after: int, last: int) -> Sequence[int]:
        """The versions after one of them, in order."""

    def list_base(self, version: int) -> Sequence[TableFile]:
        """All files of a version, in the order in which they were added."""

    def list_added(self, version: int) -> Sequence[TableFile]:
        """The files that a version added. An error if it removed or changed rows."""

    def read(self, file: TableFile, schema: pa.Schema) -> pa.Table:
        """The rows of a file; columns that it does not have are NULL."""


ALL = -1
"""The index of a position that has read all files of its version."""


@dataclass(frozen=True)
class Position:
    """Read are the files of `base`, those that versions before `version` added, and the first `index` of `version`.

    Before a stream begins, base and version are -1.
    """

    base: int = -1
    version: int = -1
    index: int = 0

    @classmethod
    def from_offset(cls, offset: Mapping[str, int]) -> Position:
        return cls(offset["base"], offset["version"], offset["index"])

    def to_offset(self) -> dict[str, int]:
        return {"base": self.base, "version": self.version, "index": self.index}


BEGIN = Position()


class TableWalk:
    """The files of a table by position. It keeps the list of the last version that it asked for."""

    def __init__(self, log: TableLog) -> None:
        self._log = log
        self._kept: tuple[tuple[int, int], Sequence[TableFile]] | None = None

    def find_end(self, start: Position, last: int, most: int | None = None) -> Position:
        """The position after at most some files from a position on, up to a version."""
        base = last if start == BEGIN else start.base
        found, room = start, most
        for version, begin in self._list_steps(base, start, last):
            left = 0 if room is None else len(self._list_version(base, version)) - begin
            if room is not None and left > room:
                return Position(base, version, begin + room) if room else found
            room = None if room is None else room - left
            found = Position(base, version, ALL)
        return found

    def list_files(self, start: Position, end: Position) -> list[TableFile]:
        """The files between two positions."""
        found: list[TableFile] = []
        for version, begin in self._list_steps(end.base, start, end.version):
            files = self._list_version(end.base, version)
            found += files[begin : end.index if version == end.version and end.index != ALL else len(files)]
        return found

    def _list_steps(self, base: int, start: Position, last: int) -> Iterator[tuple[int, int]]:
        """Versions to read, each with the number of its files that have been read."""
        first = base if start == BEGIN else start.version
        if start.index != ALL:
            yield first, start.index
        yield from ((version, 0) for version in self._log.list_versions(first, last))

    def _list_version(self, base: int, version: int) -> Sequence[TableFile]:
        if self._kept is None or self._kept[0] != (base, version):
            files = self._log.list_base(version) if version == base else self._log.list_added(version)
            self._kept = (base, version), files
        return self._kept[1]


def divide_files(files: Sequence[TableFile], most_bytes: int) -> list[list[TableFile]]:
    """Files in groups, each to be read by one task."""
    groups: list[list[TableFile]] = []
    size = most_bytes
    for file in files:
        if size + file.size > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups
