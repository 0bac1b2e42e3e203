"""Placement: which cells a tuple goes to, so that every result arises in exactly one cell.

A grid of cells (HyperCube) with one dimension per equality class, and one per stream that has no equality (a hash of
the whole tuple: 1-Bucket-Theta). A tuple has a coordinate in every dimension of its stream and goes to all cells that
agree with it; it is copied along the other dimensions. Law: the tuples of a combination that satisfies its equalities
agree in every dimension, so exactly one cell holds all of them.

GROUP BY and DISTINCT are divided by their keys alone, so that all rows of a group arise in one cell; a sequence by a
key in which all tuples that pair agree, so that a tuple meets all its candidates; functions over frames by a key of
all their partitions. The sides of UNION ALL are placed
separately, those of EXCEPT by a column of their answers, so that equal rows meet.

Work that cannot be divided is pinned to one cell: a ROWS window whose tuples would be counted in parts (unless its
PARTITION BY covers the dimension), an aggregate over everything, and an RSTREAM, which reports its whole answer. If one
side of a query is pinned, the whole query is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from penstock.cql import Query, QueryBody, Select, Source
from penstock.expr import Expr
from penstock.plan import build_join_graph
from penstock.spark.frame_placement import find_frame_key, list_frames
from penstock.spark.grid import (
    can_partition,
    find_except_dimensions,
    find_grouping_keys,
    find_sequence_key,
    has_except,
    list_dimensions,
    list_key_dimensions,
    list_select_streams,
    list_selects,
    reads_subqueries,
)
from penstock.spark.route import HashCoordinate, Route, RouteDimension, strip_alias
from penstock.spark.shares import choose_shares

SourceKey = tuple[int, str]
"""A FROM item of a query: the index of its SELECT, from left to right, and its alias."""


@dataclass(frozen=True)
class Placement:
    """The routes of a query's streams; and the reason if it is pinned to one cell."""

    routes: Mapping[SourceKey, Route]
    pin_reason: str | None = None
    follows_stream: str | None = None
    """The derived stream it reads, in whose cells it runs."""

    @property
    def cells(self) -> int:
        return max((prod(step.share for step in route.dimensions) for route in self.routes.values()), default=1)

    def compute_replication(self) -> float:
        """How many copies of a tuple there are on average, if all streams have the same rate."""
        return sum(route.copies for route in self.routes.values()) / len(self.routes) if self.routes else 1.0

    def __str__(self) -> str:
        if self.follows_stream:
            return f"in the cells of {self.follows_stream}"
        if self.pin_reason:
            first = next(iter(self.routes.values())).first_cell
            return f"one cell (number {first}): {self.pin_reason}"
        shares = next(iter(self.routes.values())).dimensions
        grid = " × ".join(str(step.share) for step in shares) or "1"
        return f"{grid} cells, each row in {self.compute_replication():.2g} of them on average"


def place_query(query: Query, cells: int, rates: Mapping[str, float] | None = None) -> Placement:
    """The grid for a query. `rates`: tuples per unit of time, by alias; equal if unknown."""
    why = find_pin_reason(query)
    if why is not None:
        found = list_streams(query.body)
        return pin_streams(found, Route(choose_cell([source for _, source in found], cells), ()), why)
    framed = find_frame_key(query.body)
    if framed is not None:
        return _place_by_key(query.body, framed[1], cells)
    routes: dict[SourceKey, Route] = {}
    for side, (select, dimensions) in enumerate(list_dimensions(query.body)):
        weight = {source.alias: (rates or {}).get(source.alias, 1.0) for source in list_select_streams(select)}
        shares = (cells,) if has_except(query.body) else choose_shares(dimensions, weight, cells)
        used = [(dimension, share) for dimension, share in zip(dimensions, shares, strict=True) if share > 1]
        routes |= {
            (side, alias): Route(0, tuple(RouteDimension(share, dim.coordinates.get(alias)) for dim, share in used))
            for alias in weight
        }
    return Placement(routes)


def _place_by_key(body: QueryBody, key: Expr, cells: int) -> Placement:
    """The routes of a query over one stream that is divided by a term of it."""
    steps = (RouteDimension(cells, HashCoordinate(strip_alias(key), keeps_nulls=True)),) if cells > 1 else ()
    return Placement({(side, source.alias): Route(0, steps) for side, source in list_streams(body)})


def list_streams(body: QueryBody) -> list[tuple[int, Source]]:
    """The FROM items of a query that are streams, each with the index of its SELECT."""
    return [(side, source) for side, select in enumerate(list_selects(body)) for source in list_select_streams(select)]


def pin_streams(items: Iterable[tuple[int, Source]], route: Route, why: str) -> Placement:
    """A placement of FROM items on one route."""
    return Placement({(side, source.alias): route for side, source in items}, why)


def find_pin_reason(query: Query) -> str | None:
    """Why a query needs all of its rows in one cell; None if it does not."""
    if query.emit == "rstream":
        return "RSTREAM reports its whole answer"
    if list_frames(query.body):
        if find_frame_key(query.body) is not None:
            return None
        return "OVER needs all of its rows: its windows have no PARTITION BY of the stream in common"
    if reads_subqueries(query.body):
        return "its subqueries and outer joins are computed in one place"
    sides = list(list_selects(query.body))
    for side in sides:
        why = _find_select_pin_reason(side)
        if why is not None:
            return why
    if has_except(query.body) and find_except_dimensions(sides) is None:
        return "a set operation compares whole rows, and no column of them is of one stream on every side"
    return None


def _find_select_pin_reason(body: Select) -> str | None:
    if body.sequence is not None:
        return None if find_sequence_key(body) else "SEQ needs all of its rows: no key is equal in all that pair"
    graph = build_join_graph(tuple(source.alias for source in body.sources), body.where)
    keys = find_grouping_keys(body)
    for source in body.sources:
        if source.window.counted and not can_partition(source, graph, keys or ()):
            by = "its PARTITION BY covers no equality" if source.window.partition else "it has no PARTITION BY"
            return f"the ROWS window of {source.alias} counts all of its rows, {by}"
    if keys is not None and not any(list_key_dimensions(keys, body)):
        what = "DISTINCT needs all of its rows" if body.group_by is None else "the aggregate needs all of its rows"
        return f"{what}: no column of a stream tells them apart"
    return None


def choose_cell(sources: Sequence[Source], cells: int) -> int:
    """A cell for work that cannot be divided: the same for the same streams, so that their rows are sent once."""
    names = ",".join(sorted({source.relation.name.casefold() for source in sources}))
    return zlib.crc32(names.encode()) % cells
