"""Parts that add columns to the rows of another part: windows of time, ranks, and functions over frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from penstock.cql import Frame, FrameWindow, format_duration
from penstock.expr import HIDDEN, INT
from penstock.plan.explain import ExplainNode
from penstock.plan.outer_join import OuterJoinPart
from penstock.plan.part import PlanPart
from penstock.plan.projection import ProjectPart, RelationPart

EVENT_TIME = f"{HIDDEN}time"
"""The column with the time of each row below a window."""


@dataclass(frozen=True)
class TimeWindow:
    """Windows [start, end) of a length, one every `slide`; of sessions, the gap that ends one."""

    kind: str
    size: int
    slide: int
    time_type: pa.DataType
    partition: tuple[str, ...] = ()
    """The columns that divide sessions."""

    def __str__(self) -> str:
        size = format_duration(self.size, self.time_type)
        if self.kind == "session":
            by = f" by {', '.join(self.partition)}" if self.partition else ""
            return f"session{by}, gap {size}"
        return size if self.kind == "tumble" else f"{size} every {format_duration(self.slide, self.time_type)}"


@dataclass(frozen=True)
class WindowPart(PlanPart):
    """TUMBLE, HOP or SESSION. The input has the column `EVENT_TIME`.

    `starts`, `ends`: the names of the columns with the start and the end of the window; None if it is not read.
    """

    input: PlanPart
    window: TimeWindow
    columns: tuple[tuple[str, pa.DataType], ...]
    """The columns of the input that are passed on."""
    starts: str | None
    ends: str | None

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        return ExplainNode(self.window.kind, (("window", str(self.window)),), inputs)


@dataclass(frozen=True)
class SortColumn:
    """A column that rows are ordered by."""

    name: str
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        return f"{self.name}{' DESC' if self.descending else ''}"


@dataclass(frozen=True)
class RankPart(PlanPart):
    """ROW_NUMBER, RANK or DENSE_RANK, and the rows whose rank is above `offset` and at most `limit`.

    `columns` are all columns of the input: those that `order` does not have order rows that are equal there. `shown`
    are the names of those that are passed on; `rank` is the name of the column with the rank, None if it is not read.
    """

    distorted_as = "a rank"
    input: PlanPart
    function: str
    partition: tuple[str, ...]
    order: tuple[SortColumn, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    shown: tuple[str, ...]
    rank: str | None
    offset: int = 0
    limit: int | None = None

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns of the answer."""
        types = dict(self.columns)
        rank = {} if self.rank is None else {self.rank: INT}
        return {**{name: types[name] for name in self.shown}, **rank}

    @property
    def sort_columns(self) -> tuple[SortColumn, ...]:
        """All columns that rows are ordered by, those that decide between equal ones last."""
        known = {column.name for column in self.order} | set(self.partition)
        return (*self.order, *(SortColumn(name) for name, _ in self.columns if name not in known))

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        by = (("partition by", ", ".join(self.partition)),) if self.partition else ()
        order = ("order by", ", ".join(map(str, self.order)))
        rows = () if self.limit is None else (("keeps", f"ranks {self.offset + 1} to {self.limit}"),)
        return ExplainNode(self.function, (*by, order, *rows), inputs)


@dataclass(frozen=True)
class FramePart(PlanPart):
    """Functions with OVER, over frames of rows around each row; one whose frame ends behind it waits for that.

    The input only grows, and `time` is its column with the time at which a row enters. `ties` are the columns that
    order rows of one time; none if that is the order in which they come. `shown` are the columns that are passed on.
    """

    distorted_as = "OVER"
    input: PlanPart
    windows: tuple[FrameWindow, ...]
    time: str
    time_type: pa.DataType
    ties: tuple[str, ...]
    columns: tuple[tuple[str, pa.DataType], ...]
    """The columns of the input."""
    shown: tuple[str, ...]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns of the answer."""
        types = dict(self.columns)
        computed = {each.name: each.value.type for window in self.windows for each in window.functions}
        return {**{name: types[name] for name in self.shown}, **computed}

    @property
    def ahead(self) -> int:
        """How far behind a row its last frame ends."""
        return max((window.frame.ahead for window in self.windows), default=0)

    @property
    def ahead_unit(self) -> str:
        """What `ahead` counts."""
        return next((window.frame.unit for window in self.windows if window.frame.ahead), "rows")

    @property
    def inputs(self) -> tuple[PlanPart, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Any]) -> Self:
        return replace(self, input=inputs[0])

    def describe(self, inputs: tuple[ExplainNode, ...]) -> ExplainNode:
        described = []
        for window in self.windows:
            by = ", ".join(column.name for column in window.partition)
            described.append((f"by {by}, " if by else "") + _describe_frame(window.frame, self.time_type))
        return ExplainNode("over", tuple(("window", each) for each in described), inputs)


def _describe_frame(frame: Frame, time_type: pa.DataType) -> str:
    def bound(distance: int | None) -> str:
        if distance == 0:
            return "current row"
        if distance is None:
            return "all earlier rows"
        length = f"{abs(distance)} rows" if frame.unit == "rows" else format_duration(abs(distance), time_type)
        return f"{length} {'before' if distance > 0 else 'behind'}"

    return f"{bound(frame.start)} to {bound(frame.end)}"


def is_append_only(part: PlanPart) -> bool:
    """Whether the rows of a part never leave and need not be kept to know that: functions over frames, final rows."""
    while isinstance(part, (ProjectPart, RelationPart)):
        part = part.input
    return isinstance(part, FramePart) or (isinstance(part, OuterJoinPart) and part.final)
