"""Functions with OVER by brute force: the frame of every row, listed from all rows of its partition."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cql import FramedRows, FrameFunction, FrameWindow
from penstock.expr import Aggregate, Column
from penstock.testing.interval_operators import AFTER_END, FOREVER, ValidRow
from penstock.testing.row_aggregates import compute_aggregate
from penstock.testing.row_evaluator import Env, to_comparison_key, to_identity

_Row = dict[str, Any]


def compute_frames(body: FramedRows, rows: list[ValidRow], classes: Mapping[str, type]) -> Iterator[ValidRow]:
    """Every row once, from the instant on at which its frames are complete, with the results of the functions."""
    entered = sorted((row.values[0] for row in rows), key=lambda row: _list_order_keys(body, row))
    own = [item.name for item in body.items if isinstance(item.expr, Column) and item.expr.alias]
    found: dict[str, list[Any]] = {}
    for window in body.windows:
        for function in window.functions:
            compute = _FrameOracle(body, window, function, entered, classes).compute
            found[function.name] = [compute(at) for at in range(len(entered))]
    for at, row in enumerate(entered):
        values = (*(row[name] for name in own), *(found[item.name][at] for item in body.items[len(own) :]))
        yield ValidRow(values, max(_find_end(body, window, entered, at) for window in body.windows), FOREVER)


def _find_end(body: FramedRows, window: FrameWindow, rows: list[_Row], at: int) -> int:
    """The instant at which a frame is complete."""
    time, ahead = int(rows[at][body.time.name]), window.frame.ahead
    if window.frame.unit == "range" or not ahead:
        return time + ahead
    key = _get_key(window, rows[at])
    later = [row for row in rows[at + 1 :] if _get_key(window, row) == key]
    return int(later[ahead - 1][body.time.name]) if len(later) >= ahead else AFTER_END


def _get_key(window: FrameWindow, row: _Row) -> Hashable:
    return to_identity(row[column.name] for column in window.partition)


def _list_order_keys(body: FramedRows, row: _Row) -> list[Any]:
    """The time, then, if arrival does not decide, all columns: ascending, NULLs first."""
    ties = [] if body.by_arrival else [row[name] for name in body.source.relation.schema.names]
    return [row[body.time.name], *((0,) if value is None else (1, to_comparison_key(value)) for value in ties)]


@dataclass(frozen=True)
class _FrameOracle:
    """One function over all rows, which are in their order."""

    body: FramedRows
    window: FrameWindow
    function: FrameFunction
    rows: list[_Row]
    classes: Mapping[str, type]

    def compute(self, at: int) -> Any:
        """The result of one row."""
        inside, value, default = self._list_frame(at), self.function.value, self.function.default
        if isinstance(value, Aggregate):
            members: list[Env] = [{self.body.source.alias: self.rows[place]} for place in inside]
            return compute_aggregate(value, members, self.classes)
        assert isinstance(value, Column)
        place = self.function.place
        chosen = inside[-1:] if self.function.kind == "last" else inside[place - 1 : place]
        if chosen:
            return self.rows[chosen[0]][value.name]
        return None if default is None else self.rows[at][default.name]

    def _list_frame(self, at: int) -> list[int]:
        """The rows of the frame."""
        members = [place for place in range(len(self.rows)) if self._get_key(place) == self._get_key(at)]
        frame = self.window.frame
        if frame.unit == "rows":
            position = members.index(at)
            first = 0 if frame.start is None else max(position - frame.start, 0)  # behind the row if negative
            return members[first : max(position - frame.end + 1, 0)]
        distances = {place: self._get_time(at) - self._get_time(place) for place in members}
        return [
            place
            for place in members
            if frame.end <= distances[place] and (frame.start is None or distances[place] <= frame.start)
        ]

    def _get_time(self, place: int) -> int:
        return int(self.rows[place][self.body.time.name])

    def _get_key(self, place: int) -> Hashable:
        return _get_key(self.window, self.rows[place])
