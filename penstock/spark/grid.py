"""Grid dimensions: the terms by which the work of a query can be divided among cells.

A join is divided by its equality classes, and by a hash of the whole tuple for a stream that is in none of them. GROUP
BY and DISTINCT are divided by their keys alone, a sequence by a key in which all tuples that pair agree, the sides of
EXCEPT by a column of their answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cql import OuterJoin, QueryBody, RowTransform, Select, SelectItem, SetOperation, Source, Stream, Subquery
from penstock.expr import Expr, find_columns
from penstock.plan import EqualityClass, JoinGraph, build_join_graph, match_equality
from penstock.spark.route import HashCoordinate, strip_alias


@dataclass(frozen=True)
class GridDimension:
    """A dimension of the grid: the aliases that have a coordinate in it."""

    coordinates: Mapping[str, HashCoordinate]


def list_selects(body: QueryBody) -> Iterator[Select]:
    """The SELECTs of a query, from left to right, subqueries before the SELECT that reads them.

    An outer join is listed as a SELECT over its two sides, without conditions: rows that fail them are kept; a window
    function as a SELECT over its stream.
    """
    if isinstance(body, SetOperation):
        yield from list_selects(body.left)
        yield from list_selects(body.right)
        return
    select = body if isinstance(body, Select) else _as_select(body)
    for source in select.sources:
        if isinstance(source.relation, Subquery):
            yield from list_selects(source.relation.body)
    yield select


def count_items(body: QueryBody) -> int:
    """How many FROM items the SELECTs of a query have."""
    return sum(len(select.sources) for select in list_selects(body))


def _as_select(body: OuterJoin | RowTransform) -> Select:
    if isinstance(body, RowTransform):
        return Select((body.source,), (), tuple(item for item in body.items if find_columns(item.expr)[0].alias))
    conditions = tuple(SelectItem("", expr) for expr in body.on)
    items = (item for item in body.items if find_columns(item.expr)[0].alias)
    return Select((body.left, body.right), (), (*items, *conditions))


def list_select_streams(body: Select) -> list[Source]:
    return [source for source in body.sources if isinstance(source.relation, Stream)]


def has_except(body: QueryBody) -> bool:
    """Whether the query compares whole rows: it has a set operation other than UNION ALL."""
    return isinstance(body, SetOperation) and (
        body.kind != "union all" or has_except(body.left) or has_except(body.right)
    )


def reads_subqueries(body: QueryBody) -> bool:
    """Whether some FROM item is a query or an outer join."""
    return any(isinstance(source.relation, Subquery) for select in list_selects(body) for source in select.sources)


def list_dimensions(body: QueryBody) -> Iterator[tuple[Select, tuple[GridDimension, ...]]]:
    """The SELECTs of a query, each with its dimensions."""
    sides = list(list_selects(body))
    compared = find_except_dimensions(sides) if has_except(body) else None
    if compared is None:
        yield from ((side, tuple(_list_select_dimensions(side))) for side in sides)
    else:
        yield from ((side, (dimension,)) for side, dimension in zip(sides, compared, strict=True))


def find_except_dimensions(sides: Sequence[Select]) -> list[GridDimension] | None:
    """A column of the answers by which every side can be divided, as a dimension of each side; None without one."""
    for index in range(len(sides[0].items)):
        found = [_build_item_dimension(side, side.items[index].expr) for side in sides]
        dimensions = [dimension for dimension in found if dimension is not None]
        if len(dimensions) == len(sides):
            return dimensions
    return None


def _build_item_dimension(select: Select, item: Expr) -> GridDimension | None:
    keys = find_grouping_keys(select)
    if select.sequence is not None or (keys is not None and item not in keys):
        return None
    return next(list_key_dimensions((item,), select), None)


def find_grouping_keys(body: Select) -> tuple[Expr, ...] | None:
    """The terms that are equal in rows of one group; None without GROUP BY and DISTINCT."""
    if body.group_by is None and not body.distinct:
        return None
    shown = [item.expr for item in body.items]
    if body.group_by is None:
        return tuple(shown)
    return tuple(key for key in body.group_by if key in shown or not body.distinct)


def find_sequence_key(body: Select) -> dict[str, Expr] | None:
    """For each item of a SEQ a term that is equal in tuples that pair; None if there is none.

    Each step must require it by its own condition: a later condition is not known when a tuple chooses its partner.
    The items of one stream must have one term, because their tuples are ordered by arrival.
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


def can_partition(source: Source, graph: JoinGraph, keys: Sequence[Expr]) -> bool:
    terms = [
        *(term for _, term in graph.terms_of(source.alias)),
        *(key for key in keys if _find_owner(key) == source.alias),
    ]
    return any(is_covered(source, term) for term in terms)


def is_covered(source: Source, term: Expr) -> bool:
    """Whether tuples of one window agree in the term: always true except for ROWS windows."""
    window = source.window
    return not window.counted or {column.name for column in find_columns(term)} <= set(window.partition)


def _list_select_dimensions(body: Select) -> Iterator[GridDimension]:
    keys = find_grouping_keys(body)
    if body.sequence is not None:
        terms = find_sequence_key(body) or {}
        yield GridDimension({alias: HashCoordinate(strip_alias(term)) for alias, term in terms.items()})
    elif keys is not None:
        yield from list_key_dimensions(keys, body)
    else:
        yield from _list_join_dimensions(body)


def _list_join_dimensions(body: Select) -> Iterator[GridDimension]:
    """Every equality class with coordinates, then the streams that are in none of them."""
    graph, own = (
        build_join_graph(tuple(source.alias for source in body.sources), body.where),
        list_select_streams(body),
    )
    within: set[str] = set()
    for class_ in graph.classes:
        dimension = _build_class_dimension(class_, own)
        if dimension.coordinates:
            within |= dimension.coordinates.keys()
            yield dimension
    for source in own:
        if source.alias not in within and not source.window.counted:
            yield GridDimension({source.alias: HashCoordinate(None)})


def _build_class_dimension(class_: EqualityClass, own: Sequence[Source]) -> GridDimension:
    by_alias = {source.alias: source for source in own}
    return GridDimension({
        alias: HashCoordinate(strip_alias(term))
        for alias, term in class_.terms
        if alias in by_alias and is_covered(by_alias[alias], term)
    })  # fmt: skip


def list_key_dimensions(keys: Sequence[Expr], body: Select) -> Iterator[GridDimension]:
    """Every key of one stream: with its equality class, or by itself."""
    graph, own = (
        build_join_graph(tuple(source.alias for source in body.sources), body.where),
        list_select_streams(body),
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
            yield GridDimension({owner: HashCoordinate(strip_alias(key), keeps_nulls=True)})


def _find_owner(key: Expr) -> str | None:
    """The FROM item of a key; None if the key has columns of several items or of none."""
    aliases = {column.alias for column in find_columns(key)}
    return aliases.pop() if len(aliases) == 1 else None
