"""Derived streams for queries that began later than the stream: each such query reads a copy that began with it.

A query that is added while running sees what comes from then on. Cells do not store the rows of derived streams: a cell
that is rebuilt derives them again from base rows, older rows too. A query that began later than the stream must not see
those. So it reads a copy of the stream: the same text with inlets of its own, which begin with the query. Law: what a
query reads depends only on the rows that arrive from its start on. Cost: the stream is derived once more.

Queries that begin with the same change of the pipeline share their copies. A copy that no query reads is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from penstock.cql import bind_query
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec

Copy = tuple[str, int]
"""A derived stream, and the change of the pipeline with which a copy of it begins."""


def complete_copies(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline with exactly the copies of derived streams that its queries need."""
    if not spec.derived_streams:
        return spec
    present = {(query.copy_of, query.since): query for query in spec.queries if query.copy_of is not None}
    needed = _find_needed(spec, frozenset((name, since) for name, since in present if name is not None))
    if needed == present.keys():
        return spec
    names = {query.name.casefold() for query in spec.queries}
    originals = {query.name: query for query in spec.queries if query.derived and query.copy_of is None}
    queries: dict[str, QuerySpec] = {}
    for query in spec.queries:
        if query.copy_of is None:
            copies = [(name, query.since) for name in originals if (name, query.since) in needed]
            for copy in copies:  # streams come before their readers
                found = present.get(copy) or _copy_stream(originals[copy[0]], copy[1], names)
                queries.setdefault(found.name, found)
            queries[query.name] = query
    return spec.with_config(replace(spec.config, queries=tuple(queries.values())))


def _find_needed(spec: PipelineSpec, present: frozenset[Copy]) -> set[Copy]:
    """The copies that queries read, directly or through other copies."""
    since = {query.name: query.since for query in spec.queries if query.derived and query.copy_of is None}
    texts = {query.name: query for query in spec.queries if query.copy_of is None}

    def list_reads(query: QuerySpec, begun: int) -> Iterator[Copy]:
        for source in bind_query(query.text, spec.catalog).body.inputs:
            name = source.relation.name
            if name in since and ((name, begun) in present or since[name] != begun):
                yield name, begun

    needed: set[Copy] = set()
    waiting = [copy for query in texts.values() for copy in list_reads(query, query.since)]
    while waiting:
        copy = waiting.pop()
        if copy not in needed:
            needed.add(copy)
            waiting += list_reads(texts[copy[0]], copy[1])
    return needed


def _copy_stream(stream: QuerySpec, since: int, taken: set[str]) -> QuerySpec:
    """A copy of a derived stream under a free name."""
    names = (f"{stream.name}@{since}" + "'" * more for more in count())
    name = next(name for name in names if name.casefold() not in taken)
    return replace(stream, name=name, since=since, inlets=(), copy_of=stream.name)
