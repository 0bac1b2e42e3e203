"""The static tables of an engine: their rows, and those that combinations may still need after a replacement.

Law: new rows hold from the instant behind the latest time that any stream has reached, by a tuple or by `advance`. So
all tuples that were pushed before a replacement are joined with the old rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.join import FormerRows, TableVersions
from penstock.ops import SourceOperator
from penstock.state import ALWAYS, FOREVER


@dataclass(frozen=True)
class ReplacedRows:
    """Rows that a table had before an instant, in ticks or as a timestamp: an engine may have streams of both kinds."""

    table: str
    until_tick: int
    until_timestamp: int
    rows: pa.Table

    def find_until(self, *, timed: bool) -> int:
        return self.until_timestamp if timed else self.until_tick


class TableHistory(Mapping[str, pa.Table]):
    """The rows of each table by its name, and rows that were replaced."""

    def __init__(self) -> None:
        self._rows: dict[str, pa.Table] = {}
        self.replaced: list[ReplacedRows] = []

    def __getitem__(self, name: str) -> pa.Table:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: str, rows: pa.Table) -> None:
        """A new table."""
        self._rows[name] = rows

    def replace(self, name: str, rows: pa.Table, sources: Iterable[SourceOperator]) -> None:
        """Other rows of a table, for combinations that are born behind the latest time of all streams."""
        ends = {timed: _find_latest_time(sources, timed=timed) + 1 for timed in (False, True)}
        self.replaced.append(ReplacedRows(name, ends[False], ends[True], self._rows[name]))
        self._rows[name] = rows

    def read_versions(self, name: str, *, timed: bool) -> TableVersions:
        """The rows of a table for joins of streams whose times are timestamps, or ticks."""
        former = [FormerRows(each.find_until(timed=timed), each.rows) for each in self.replaced if each.table == name]
        return TableVersions(self._rows[name], tuple(former))

    def drop_former(self, oldest: Mapping[bool, int]) -> None:
        """Forget rows that no combination gets any more: none is born before a time, of timestamps and of ticks."""
        self.replaced = [
            each for each in self.replaced if any(oldest[timed] < each.find_until(timed=timed) for timed in oldest)
        ]


def has_timestamps(source: SourceOperator) -> bool:
    """Whether the times of a stream are timestamps, not ticks."""
    return bool(pa.types.is_timestamp(source.stream.time_type))


def _find_latest_time(sources: Iterable[SourceOperator], *, timed: bool) -> int:
    """The latest time that a stream has reached; streams that have ended do not count."""
    times = (source.find_newest_time() for source in sources if has_timestamps(source) is timed)
    return max((time for time in times if time < FOREVER - 1), default=int(ALWAYS))
