"""The FROM items of a bound query, changed one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.cql import QueryBody, RowTransform, Select, SetOperation, Source, Subquery


def map_sources(body: QueryBody, change: Callable[[Source], Source]) -> QueryBody:
    """A query body with every FROM item changed, in the order of the text."""
    if isinstance(body, SetOperation):
        left = map_sources(body.left, change)
        return replace(body, left=left, right=map_sources(body.right, change))
    if isinstance(body, RowTransform):
        return replace(body, source=change(_map_subquery(body.source, change)))
    sources = body.sources if isinstance(body, Select) else (body.left, body.right)
    below = [_map_subquery(source, change) for source in sources]
    changed = tuple(map(change, below))
    if isinstance(body, Select):
        return replace(body, sources=changed)
    return replace(body, left=changed[0], right=changed[1])


def _map_subquery(source: Source, change: Callable[[Source], Source]) -> Source:
    relation = source.relation
    if not isinstance(relation, Subquery):
        return source
    return replace(source, relation=replace(relation, body=map_sources(relation.body, change)))
