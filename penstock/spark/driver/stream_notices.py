"""The notices of a pipeline, from the last reports of its cells. Pure functions; see `penstock.ops.notices`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.cql import Stream
from penstock.ops import (
    HeldBack,
    Notice,
    describe_held_back,
    describe_late_rows,
    find_unit_difference,
    find_unit_mistake,
    read_utc,
)
from penstock.spark.layout import ALWAYS, FOREVER, Layout


@dataclass(frozen=True)
class PipelineFigures:
    """What notices are found from: reports by cell, late rows of the last micro-batch, and when rows last came."""

    cells: Sequence[Mapping[str, Any]]
    late: Mapping[str, int] = field(default_factory=dict)
    last_arrivals: Mapping[str, int] = field(default_factory=dict)

    @property
    def frontiers(self) -> dict[str, int]:
        """By stream, as of the cell that is furthest: commands and rows reach all cells."""
        found: dict[str, int] = {}
        for cell in self.cells:
            for name, frontier in cell["frontiers"].items():
                found[name] = max(frontier, found.get(name, ALWAYS))
        return found


def list_notices(layout: Layout, figures: PipelineFigures) -> tuple[Notice, ...]:
    """The notices that are active after a micro-batch."""
    streams = {stream.name: stream for stream in layout.spec.streams}
    frontiers = figures.frontiers
    newest = {name: frontiers[name] + stream.lateness for name, stream in streams.items() if name in frontiers}
    found = [describe_held_back(each) for each in _find_held_back(layout, figures, streams)]
    found += _find_late_rows(layout, figures, streams)
    units = (find_unit_mistake(streams[name], time) for name, time in newest.items() if time < FOREVER)
    found += [each for each in units if each is not None]
    for name in layout.spec.bound_queries:
        read = [(streams[each], newest[each]) for each in sorted(layout.find_base_streams(name)) if each in newest]
        if (differ := find_unit_difference(read)) is not None:
            found.append(differ)
    return tuple(dict.fromkeys(found))


def _find_held_back(layout: Layout, figures: PipelineFigures, streams: Mapping[str, Stream]) -> Iterator[HeldBack]:
    """The streams that had no rows in the last micro-batch while rows of other streams wait for them."""
    frontiers = figures.frontiers
    active = {name for cell in figures.cells for name in cell["heard"]}
    queries: dict[str, list[str]] = {}
    for name in layout.spec.bound_queries:
        awaited = min((cell["awaits"][name] for cell in figures.cells if name in cell["awaits"]), default=None)
        base = sorted(layout.find_base_streams(name))
        if awaited is None or len(base) < 2:
            continue
        lowest = min(base, key=lambda each: frontiers.get(each, ALWAYS))
        behind = frontiers.get(lowest, ALWAYS)
        if lowest not in active and behind <= awaited and any(frontiers.get(each, ALWAYS) > behind for each in base):
            queries.setdefault(lowest, []).append(name)
    for stream, held in queries.items():
        others = {each for name in held for each in layout.find_base_streams(name)}
        yield HeldBack(
            streams[stream],
            frontiers.get(stream, ALWAYS),
            max(frontiers.get(each, ALWAYS) for each in others),
            max(_count_waiting(figures, name) for name in held),
            tuple(held),
            read_utc(figures.last_arrivals[stream] / 1e6) if stream in figures.last_arrivals else "the start",
        )


def _count_waiting(figures: PipelineFigures, query: str) -> int:
    return int(sum(cell["cell"][query]["waiting"] for cell in figures.cells if query in cell["cell"]))


def _find_late_rows(layout: Layout, figures: PipelineFigures, streams: Mapping[str, Stream]) -> Iterator[Notice]:
    """The streams most of whose rows in the last micro-batch were late."""
    inlets = {str(inlet.number): inlet.stream.name for inlet in layout.inlets}
    on_time = dict.fromkeys(streams, 0)
    for cell in figures.cells:
        for number, rows in cell["rows"].items():
            if number in inlets:
                on_time[inlets[number]] += rows
    for name, late in figures.late.items():
        if late > on_time.get(name, 0):
            frontier = figures.frontiers.get(name, ALWAYS)
            yield describe_late_rows(streams[name], late, late + on_time[name], frontier, "")
