"""What a checkpoint records of its inlets: which rows and columns the state holds, and in which cells.

A query continues with the rows of its inlets only if they are the rows it needs, in the cells where it looks for them.
`find_difference` says why they are not. Rows are never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.cql import Window, format_type
from penstock.expr import Expr, to_sql
from penstock.spark.layout import Layout, StreamInlet, StreamScan
from penstock.spark.route import HashCoordinate, Route, RouteDimension

Dimensions = tuple[tuple[int, str], ...]
"""For each dimension of a route the number of cells, and what divides the rows among them."""

_COPIED = ""
"""In place of a term: rows are copied to all cells of the dimension."""
_WHOLE_ROW = "*"


@dataclass(frozen=True)
class InletRecord:
    """An inlet as the checkpoint has it."""

    stream: str
    first_cell: int
    dimensions: Dimensions
    columns: Mapping[str, str]
    """Types by column."""
    filters: tuple[tuple[str, ...], ...]
    """A row is held if it passes all filters of one of these tuples; without any, every row is held."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> InletRecord:
        dimensions = tuple((share, by) for share, by in entry["dimensions"])
        return cls(**{**entry, "dimensions": dimensions, "filters": tuple(map(tuple, entry["filters"]))})

    def is_owner(self, cell: int) -> bool:
        """Whether this cell reports the rows it holds; see `Route.is_owner`."""
        steps = (RouteDimension(share, HashCoordinate(None) if by else None) for share, by in self.dimensions)
        return Route(self.first_cell, tuple(steps)).is_owner(cell)


def record_inlets(layout: Layout) -> dict[int, InletRecord]:
    """The inlets of a layout, by number."""
    return {inlet.number: _record_inlet(inlet) for inlet in layout.inlets}


def _record_inlet(inlet: StreamInlet) -> InletRecord:
    columns = {field.name: format_type(field.type) for field in inlet.schema}
    filters = tuple(_format_filters(each) for each in inlet.filters)
    return InletRecord(inlet.stream.name, inlet.route.first_cell, _describe_dimensions(inlet.route), columns, filters)


def _describe_dimensions(route: Route) -> Dimensions:
    return tuple((step.share, _describe_coordinate(step.coordinate)) for step in route.dimensions)


def _describe_coordinate(coordinate: HashCoordinate | None) -> str:
    if coordinate is None:
        return _COPIED
    if coordinate.term is None:
        return _WHOLE_ROW
    return to_sql(coordinate.term) + (" or NULL" if coordinate.keeps_nulls else "")


def _format_filters(filters: Iterable[Expr]) -> tuple[str, ...]:
    return tuple(sorted(map(to_sql, filters)))


def find_difference(record: InletRecord, scan: StreamScan, before: StreamScan | None) -> str | None:
    """Why a FROM item cannot continue with the rows of an inlet; None if it can.

    `before`: the FROM item of the checkpoint whose place it takes, if it may differ.
    """
    alias = scan.stream.name
    if record.stream != alias:
        return f"it reads {alias} where it read {record.stream}"
    if (record.first_cell, record.dimensions) != (scan.route.first_cell, _describe_dimensions(scan.route)):
        return f"{alias} is divided among the cells in another way"
    types = {field.name: format_type(field.type) for field in scan.stream.schema}
    for column in sorted(scan.columns | {scan.stream.time}):
        if record.columns.get(column) != types[column]:
            held = record.columns.get(column)
            return f"{alias}.{column} was {held}" if held else f"it did not read {alias}.{column}"
    if before is None:
        return None
    if record.filters and not any(set(_format_filters(scan.filters)) >= set(kept) for kept in record.filters):
        return f"its conditions on {alias} let rows through that were not kept"
    if not _covers(before, scan):
        return f"its window on {alias} holds more rows than before"
    return None


def _covers(before: StreamScan, scan: StreamScan) -> bool:
    """Whether the rows kept for one FROM item contain those that another one needs."""
    if before.keeps_all:
        return True
    if scan.keeps_all or before.window.counted != scan.window.counted:
        return False
    return (
        _covers_count(before.window, scan.window) if scan.window.counted else _covers_time(before.window, scan.window)
    )


def _covers_count(before: Window, window: Window) -> bool:
    if window.row_slide is not None and window.row_slide != before.row_slide:
        return False  # the rows that were dropped were no multiple of this slide
    held, needed = ((each.row_count or 0) + (each.row_slide or 0) for each in (before, window))
    return before.partition == window.partition and held >= needed


def _covers_time(before: Window, window: Window) -> bool:
    if before.lifetime is None:
        return True
    return window.lifetime is not None and _span(before) >= _span(window) and _slide(before) >= _slide(window)


def _span(window: Window) -> int:
    return window.lifetime or 0


def _slide(window: Window) -> int:
    return window.slide or 0


def find_query_difference(
    records: Mapping[int, InletRecord],
    inlets: Sequence[int],
    scans: Sequence[StreamScan],
    before: Sequence[StreamScan] | None,
) -> str | None:
    """Why a query cannot continue with the rows of its inlets; None if it can.

    `inlets`: by FROM item; `before`: the FROM items in the checkpoint, if the query was changed.
    """
    held = [number for number in inlets if number]
    if len(held) != len(scans):
        return "it reads other streams"
    for place, (number, scan) in enumerate(zip(held, scans, strict=True)):
        if number not in records:
            return f"the checkpoint has no rows of {scan.stream.name} for it"
        why = find_difference(records[number], scan, before[place] if before is not None else None)
        if why is not None:
            return why
    return None
