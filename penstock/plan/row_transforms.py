"""Parts that add columns to the rows of another part: windows of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from penstock.cql import format_duration
from penstock.expr import HIDDEN
from penstock.plan.explain import ExplainNode
from penstock.plan.query import PlanPart

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
