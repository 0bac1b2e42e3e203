"""Window kinds as types: how long a tuple is valid, and how CQL writes the window.

Law: a tuple of time t is valid in [t, t + lifetime) if its window has a lifetime. In a row-counted window it is valid
until the `row_count`-th later tuple of its partition. A row of a view or a subquery is valid until it leaves the answer
of that query. Otherwise a tuple stays valid.

All other modules read the properties of `Window` and do not test for a kind. A new kind needs a type here, its grammar
(`query_parser`, `syntax`, `sources`) and a test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock.cql.durations import format_duration


class Window:
    """What every window has. The defaults describe a window whose tuples never expire."""

    keyword: ClassVar[str]
    """The word that introduces the window in CQL, for messages."""
    bounded: ClassVar[bool] = False
    """Whether every tuple expires as the stream goes on, the oldest first."""
    announced: ClassVar[bool] = False
    """Whether the relation announces the end of each of its rows."""

    @property
    def lifetime(self) -> int | None:
        """Ticks from a tuple's time to its expiration; None if time does not expire it."""
        return None

    @property
    def duration(self) -> int | None:
        """The length of a window over an interval of time, in ticks; None for other windows."""
        return None

    @property
    def slide(self) -> int | None:
        """The SLIDE in ticks, None without one."""
        return None

    @property
    def row_slide(self) -> int | None:
        """The SLIDE in rows of the stream, None without one."""
        return None

    @property
    def slides(self) -> bool:
        """Whether aggregates report at each slide only."""
        return self.slide is not None or self.row_slide is not None

    @property
    def row_count(self) -> int | None:
        """How many later tuples of its partition expire a tuple; None if a count does not expire it."""
        return None

    @property
    def partition(self) -> tuple[str, ...]:
        """The columns that divide the tuples into partitions that are counted separately."""
        return ()

    @property
    def counted(self) -> bool:
        """Whether tuples expire by a count of rows."""
        return self.row_count is not None

    def with_row_count(self, _count: int) -> Window:
        """The same window with another count, if it counts rows."""
        return self

    @property
    def ends_late(self) -> bool:
        """Whether the end of a tuple is not known when it arrives."""
        return self.counted or self.announced

    def text(self, _time_type: pa.DataType) -> str:
        """The window in CQL; durations are in the unit of a time column."""
        return f"[{self.keyword}]"


@dataclass(frozen=True)
class Range(Window):
    """[RANGE size SLIDE slide]: the last `size` ticks."""

    size: int
    slide: int | None = None

    keyword = "RANGE"
    bounded = True

    @property
    def lifetime(self) -> int:
        return self.size

    @property
    def duration(self) -> int:
        return self.size

    def text(self, time_type: pa.DataType) -> str:
        slide = "" if self.slide is None else f" SLIDE {format_duration(self.slide, time_type)}"
        return f"[RANGE {format_duration(self.size, time_type)}{slide}]"


@dataclass(frozen=True)
class Rows(Window):
    """[ROWS count SLIDE row_slide]: the last `count` tuples."""

    count: int
    row_slide: int | None = None

    keyword = "ROWS"
    bounded = True

    @property
    def row_count(self) -> int:
        return self.count

    def with_row_count(self, count: int) -> Rows:
        return replace(self, count=count)

    def text(self, _time_type: pa.DataType) -> str:
        return f"[ROWS {self.count}]" if self.row_slide is None else f"[ROWS {self.count} SLIDE {self.row_slide}]"


@dataclass(frozen=True)
class PartitionedRows(Window):
    """[PARTITION BY by ROWS count]: the last `count` tuples for each value of the columns `by`.

    It is not bounded: a value that never comes again keeps its tuples.
    """

    count: int
    by: tuple[str, ...]

    keyword = "PARTITION BY"

    @property
    def row_count(self) -> int:
        return self.count

    @property
    def partition(self) -> tuple[str, ...]:
        return self.by

    def with_row_count(self, count: int) -> PartitionedRows:
        return replace(self, count=count)

    def text(self, _time_type: pa.DataType) -> str:
        return f"[PARTITION BY {', '.join(self.by)} ROWS {self.count}]"


@dataclass(frozen=True)
class Now(Window):
    """[NOW]: the tuples of the current instant."""

    keyword = "NOW"
    bounded = True

    @property
    def lifetime(self) -> int:
        return 1


@dataclass(frozen=True)
class Unbounded(Window):
    """[UNBOUNDED], or no window: all tuples so far."""

    keyword = "UNBOUNDED"


@dataclass(frozen=True)
class Static(Window):
    """The rows of a table. They are always valid, and CQL writes no window for them."""

    keyword = "TABLE"

    def text(self, _time_type: pa.DataType) -> str:
        return ""


@dataclass(frozen=True)
class Current(Window):
    """The current rows of a view or a subquery. CQL writes no window for them."""

    keyword = "VIEW"
    announced = True

    def text(self, _time_type: pa.DataType) -> str:
        return ""


NOW = Now()
UNBOUNDED = Unbounded()
STATIC = Static()
CURRENT = Current()
