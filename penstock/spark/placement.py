"""Placement: which cells a tuple goes to, so that every result arises in exactly one cell.

A grid of cells (HyperCube) with one dimension per equality class, and one per stream that has no equality (a hash of
the whole tuple: 1-Bucket-Theta). A tuple has a coordinate in every dimension of its own and goes to all cells that
agree with it; it is copied along the others. Law: the tuples of a combination that satisfies its equalities agree in
every dimension, so exactly one cell holds all of them.

GROUP BY and DISTINCT are cut by their keys alone, so that all rows of a group arise in one cell; a sequence by a key in
which all tuples that pair agree, so that a tuple meets all that it may choose from. The sides of UNION ALL are placed
each by itself, those of EXCEPT by a column of their answers, so that equal rows meet.

What cannot be cut is pinned to one cell: a ROWS window whose tuples would be counted in parts (unless its PARTITION BY
covers the dimension), an aggregate over everything, and an RSTREAM, whose answer is reported as a whole. So is a whole
query, if one of its sides is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from penstock.cql.bound import Query, QueryBody, Select, Source
from penstock.expr.nodes import Column, Expr, find_columns, rewrite
from penstock.plan.join_graph import EqualityClass, JoinGraph, build_join_graph, match_equality

_MAX_EXHAUSTIVE_CELLS = 32


@dataclass(frozen=True)
class HashCoordinate:
    """A coordinate from a hash: of a term, or of the whole tuple if there is no term."""

    term: Expr | None
    keeps_nulls: bool = False
    """Whether a NULL has a cell: it equals nothing in a join, but is a group of its own."""


@dataclass(frozen=True)
class RouteDimension:
    """One dimension as a stream sees it: how many cells it has, and the tuple's coordinate. None: all of them."""

    share: int
    coordinate: HashCoordinate | None


@dataclass(frozen=True)
class Route:
    """How the tuples of one FROM item find their cells. Terms have no alias, so that routes compare by value."""

    first_cell: int
    dimensions: tuple[RouteDimension, ...]

    @property
    def copies(self) -> int:
        """To how many cells a tuple goes."""
        return prod(step.share for step in self.dimensions if step.coordinate is None)

    def compute_strides(self) -> tuple[int, ...]:
        """How far apart the cells of a dimension are, for each dimension."""
        return tuple(prod(step.share for step in self.dimensions[place + 1 :]) for place in range(len(self.dimensions)))

    def is_owner(self, cell: int) -> bool:
        """Whether this cell speaks for the tuples it holds: one of the copies does."""
        place = cell - self.first_cell
        if not 0 <= place < prod(step.share for step in self.dimensions):
            return False
        return all(
            step.coordinate is not None or place // offset % step.share == 0
            for step, offset in zip(self.dimensions, self.compute_strides(), strict=True)
        )


SourceKey = tuple[int, str]
"""A FROM item of a query: which of its SELECTs, from left to right, and the alias there."""


@dataclass(frozen=True)
class Placement:
    """The routes of a query's streams; and why it has one cell only, if that is so."""

    routes: Mapping[SourceKey, Route]
    pin_reason: str | None = None
    follows_stream: str | None = None
    """The derived stream it reads, and so has the cells of."""

    @property
    def cells(self) -> int:
        return max((prod(step.share for step in route.dimensions) for route in self.routes.values()), default=1)

    def compute_replication(self, rates: Mapping[str, float] | None = None) -> float:
        """How many copies of a tuple there are on average."""
        if not self.routes:
            return 1.0
        weight = {item: (rates or {}).get(item[1], 1.0) for item in self.routes}
        total = sum(weight.values()) or 1.0
        return sum(weight[item] * route.copies for item, route in self.routes.items()) / total

    def __str__(self) -> str:
        if self.follows_stream:
            return f"in the cells of {self.follows_stream}"
        if self.pin_reason:
            first = next(iter(self.routes.values())).first_cell
            return f"one cell (number {first}): {self.pin_reason}"
        shares = next(iter(self.routes.values())).dimensions
        grid = " × ".join(str(step.share) for step in shares) or "1"
        return f"{grid} cells, each row in {self.compute_replication():.2g} of them on average"


@dataclass(frozen=True)
class _GridDimension:
    """Something to cut by: the aliases that have a coordinate in it."""

    coordinates: Mapping[str, HashCoordinate]


def place_query(query: Query, cells: int, rates: Mapping[str, float] | None = None) -> Placement:
    """The grid for a query. `rates`: tuples per unit of time, by alias; equal if unknown."""
    why = find_pin_reason(query)
    if why is not None:
        found = list_streams(query.body)
        return pin_streams(found, Route(choose_cell([source for _, source in found], cells), ()), why)
    routes: dict[SourceKey, Route] = {}
    for side, (select, dimensions) in enumerate(_list_dimensions(query.body)):
        weight = {source.alias: (rates or {}).get(source.alias, 1.0) for source in _list_select_streams(select)}
        shares = (cells,) if _has_except(query.body) else _choose_shares(dimensions, weight, cells)
        used = [(dimension, share) for dimension, share in zip(dimensions, shares, strict=True) if share > 1]
        routes |= {
            (side, alias): Route(0, tuple(RouteDimension(share, dim.coordinates.get(alias)) for dim, share in used))
            for alias in weight
        }
    return Placement(routes)


def list_streams(body: QueryBody) -> list[tuple[int, Source]]:
    """The FROM items of a query that are streams, each with the number of its SELECT."""
    return [(side, source) for side, select in enumerate(list_selects(body)) for source in _list_select_streams(select)]


def pin_streams(items: Iterable[tuple[int, Source]], route: Route, why: str) -> Placement:
    """All of them on one route."""
    return Placement({(side, source.alias): route for side, source in items}, why)


def find_pin_reason(query: Query) -> str | None:
    """Why a query needs all of its rows in one cell; None if it does not."""
    if query.emit == "rstream":
        return "RSTREAM reports its whole answer"
    sides = list(list_selects(query.body))
    for side in sides:
        why = _find_select_pin_reason(side)
        if why is not None:
            return why
    if _has_except(query.body) and _find_except_dimensions(sides) is None:
        return "EXCEPT compares whole rows, and no column of them is of one stream on every side"
    return None


def list_selects(body: QueryBody) -> Iterator[Select]:
    """The SELECTs of a query, from left to right."""
    if isinstance(body, Select):
        yield body
    else:
        yield from list_selects(body.left)
        yield from list_selects(body.right)


def _has_except(body: QueryBody) -> bool:
    return not isinstance(body, Select) and (body.kind == "except" or _has_except(body.left) or _has_except(body.right))


def _list_dimensions(body: QueryBody) -> Iterator[tuple[Select, tuple[_GridDimension, ...]]]:
    """The SELECTs of a query that can be cut, each with what it can be cut by."""
    sides = list(list_selects(body))
    compared = _find_except_dimensions(sides) if _has_except(body) else None
    if compared is None:
        yield from ((side, tuple(_list_select_dimensions(side))) for side in sides)
    else:
        yield from ((side, (dimension,)) for side, dimension in zip(sides, compared, strict=True))


def _find_except_dimensions(sides: Sequence[Select]) -> list[_GridDimension] | None:
    """A column of the answers by which every side can be cut, as each side sees it; None if there is none."""
    for place_ in range(len(sides[0].items)):
        found = [_build_item_dimension(side, side.items[place_].expr) for side in sides]
        dimensions = [dimension for dimension in found if dimension is not None]
        if len(dimensions) == len(sides):
            return dimensions
    return None


def _build_item_dimension(select: Select, item: Expr) -> _GridDimension | None:
    keys = find_grouping_keys(select)
    if select.sequence is not None or (keys is not None and item not in keys):
        return None
    return next(_list_key_dimensions((item,), select), None)


def _find_select_pin_reason(body: Select) -> str | None:
    if body.sequence is not None:
        return None if find_sequence_key(body) else "SEQ needs all of its rows: no key is equal in all that pair"
    graph = build_join_graph(tuple(source.alias for source in body.sources), body.where)
    keys = find_grouping_keys(body)
    for source in body.sources:
        if source.window.counted and not _can_partition(source, graph, keys or ()):
            by = "its PARTITION BY covers no equality" if source.window.partition else "it has no PARTITION BY"
            return f"the ROWS window of {source.alias} counts all of its rows, {by}"
    if keys is not None and not any(_list_key_dimensions(keys, body)):
        what = "DISTINCT needs all of its rows" if body.group_by is None else "the aggregate needs all of its rows"
        return f"{what}: no column of a stream tells them apart"
    return None


def find_grouping_keys(body: Select) -> tuple[Expr, ...] | None:
    """What is equal in rows that belong together; None if each stands for itself."""
    if body.group_by is None and not body.distinct:
        return None
    shown = [item.expr for item in body.items]
    if body.group_by is None:
        return tuple(shown)
    return tuple(key for key in body.group_by if key in shown or not body.distinct)


def find_sequence_key(body: Select) -> dict[str, Expr] | None:
    """For each item of a SEQ a term that is equal in tuples that pair; None if there is none.

    Each step must ask for it by itself: what follows only from a later condition is not known when a tuple chooses. The
    items of one stream must have one term, for their tuples are ordered by their arrival.
    """
    names, keys = [source.alias for source in body.sources], find_grouping_keys(body)
    equal = [sides for term in body.where if (sides := match_equality(term)) is not None]
    links = [link for one, two in equal for link in ((one, two), (two, one))]
    for start in dict.fromkeys(term for (alias, term), _ in links if alias == names[0]):
        found = {names[0]: start}
        for name in names[1:]:
            linked = (term for other, (alias, term) in links if alias == name and other in found.items())
            if (term := next(linked, None)) is not None:
                found[name] = term
        terms = {(source.relation.name, strip_alias(found[source.alias])) for source in body.sources
                 if source.alias in found}  # fmt: skip
        grouped = keys is None or not set(keys).isdisjoint(found.values())
        if len(found) == len(names) and len(terms) == len({name for name, _ in terms}) and grouped:
            return found
    return None


def _find_owner(key: Expr) -> str | None:
    """The one FROM item of which a key tells, if it does."""
    aliases = {column.alias for column in find_columns(key)}
    return aliases.pop() if len(aliases) == 1 else None


def _list_select_streams(body: Select) -> list[Source]:
    return [source for source in body.sources if not source.is_table]


def _can_partition(source: Source, graph: JoinGraph, keys: Sequence[Expr]) -> bool:
    terms = [
        *(term for _, term in graph.terms_of(source.alias)),
        *(key for key in keys if _find_owner(key) == source.alias),
    ]
    return any(is_covered(source, term) for term in terms)


def is_covered(source: Source, term: Expr) -> bool:
    """Whether tuples that count together agree in the term: always, but for ROWS windows."""
    window = source.window
    return not window.counted or {column.name for column in find_columns(term)} <= set(window.partition)


def _list_select_dimensions(body: Select) -> Iterator[_GridDimension]:
    keys = find_grouping_keys(body)
    if body.sequence is not None:
        terms = find_sequence_key(body) or {}
        yield _GridDimension({alias: HashCoordinate(strip_alias(term)) for alias, term in terms.items()})
    elif keys is not None:
        yield from _list_key_dimensions(keys, body)
    else:
        yield from _list_join_dimensions(body)


def _list_join_dimensions(body: Select) -> Iterator[_GridDimension]:
    """Every class in which all tuples of a stream have a coordinate, then the streams that are in none of them."""
    graph, own = (
        build_join_graph(tuple(source.alias for source in body.sources), body.where),
        _list_select_streams(body),
    )
    within: set[str] = set()
    for class_ in graph.classes:
        dimension = _build_class_dimension(class_, own)
        if dimension.coordinates:
            within |= dimension.coordinates.keys()
            yield dimension
    for source in own:
        if source.alias not in within and not source.window.counted:
            yield _GridDimension({source.alias: HashCoordinate(None)})


def _build_class_dimension(class_: EqualityClass, own: Sequence[Source]) -> _GridDimension:
    by_alias = {source.alias: source for source in own}
    return _GridDimension({
        alias: HashCoordinate(strip_alias(term))
        for alias, term in class_.terms
        if alias in by_alias and is_covered(by_alias[alias], term)
    })  # fmt: skip


def _list_key_dimensions(keys: Sequence[Expr], body: Select) -> Iterator[_GridDimension]:
    """Every key that tells of one stream: with the class it is in, or by itself."""
    graph, own = (
        build_join_graph(tuple(source.alias for source in body.sources), body.where),
        _list_select_streams(body),
    )
    by_alias = {source.alias: source for source in own}
    classes: set[int] = set()
    for key in dict.fromkeys(keys):
        owner = _find_owner(key)
        class_ = next((each for each in graph.classes if (owner, key) in each.terms), None)
        if class_ is not None:
            dimension = _build_class_dimension(class_, own)
            if dimension.coordinates and class_.id not in classes:
                classes.add(class_.id)
                yield dimension
        elif owner in by_alias and is_covered(by_alias[owner], key):
            yield _GridDimension({owner: HashCoordinate(strip_alias(key), keeps_nulls=True)})


def strip_alias(term: Expr) -> Expr:
    """A term of a stream, whatever the stream is called."""
    return rewrite(term, lambda node: replace(node, alias="") if isinstance(node, Column) else node)


def _choose_shares(dimensions: Sequence[_GridDimension], rates: Mapping[str, float], cells: int) -> tuple[int, ...]:
    """The shares with the least tuples in a cell; among those, with the least copies, then the first."""

    def cost(shares: Sequence[int]) -> tuple[float, float]:
        load = copies = 0.0
        for alias, rate in rates.items():
            own = prod(share for dim, share in zip(dimensions, shares, strict=True) if alias in dim.coordinates)
            load += rate / own
            copies += rate * prod(shares) / own
        return round(load, 9), round(copies, 9)

    small = min(cells, _MAX_EXHAUSTIVE_CELLS)
    best = min(_list_share_vectors(len(dimensions), small), key=cost)
    while (larger := _list_larger_shares(best, cells)) and cost(choice := min(larger, key=cost)) < cost(best):
        best = choice
    return best


def _list_share_vectors(length: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every vector of shares whose product is at most `most`, larger first shares first."""
    if not length:
        yield ()
        return
    for share in range(most, 0, -1):
        for rest in _list_share_vectors(length - 1, most // share):
            yield (share, *rest)


def _list_larger_shares(shares: tuple[int, ...], cells: int) -> list[tuple[int, ...]]:
    """The vectors with one share raised, by one or to as much as the cells allow."""
    found = []
    for place_ in range(len(shares)):
        rest = prod(shares) // shares[place_]
        for share in {shares[place_] + 1, cells // rest}:
            if share > shares[place_] and share * rest <= cells:
                found.append((*shares[:place_], share, *shares[place_ + 1 :]))
    return found


def choose_cell(sources: Sequence[Source], cells: int) -> int:
    """A cell for what cannot be cut: the same for the same streams, so that they are sent once."""
    names = ",".join(sorted({source.relation.name.casefold() for source in sources}))
    return zlib.crc32(names.encode()) % cells


def find_cell_keys(cells: int) -> tuple[int, ...]:
    """Keys that Spark's hash partitioning sends to partitions 0, 1, … of `cells`: the smallest for each."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(_murmur3(key) % cells, key)
        if len(found) == cells:
            return tuple(found[partition] for partition in range(cells))
    raise AssertionError


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's `hash` of one INT, as a signed 32-bit integer."""
    mask = 0xFFFFFFFF

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & mask

    mixed = rotated(value * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
