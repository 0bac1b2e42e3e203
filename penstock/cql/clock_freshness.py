"""FRESHNESS ... BY CLOCK: where it is allowed.

Such a bound leaves results out by the time at which they leave. What stands above them in the query would be wrong, not
partial, if rows were missing: an aggregate, a set operation, an end of a row, a relation that another query reads. So
only a SELECT of streams and tables may have one, or a UNION ALL of such SELECTs, as an ISTREAM.
"""

from __future__ import annotations

from penstock.cql.bound import Query, QueryBody, Select, SetOperation, Source, Subquery
from penstock.cql.errors import Origin, Span
from penstock.errors import UnsupportedError

CLOCK_WOULD_DISTORT = "CLOCK_WOULD_DISTORT"


def reads_clock(query: Query) -> bool:
    """Whether results depend on the clock, because a bound of freshness does."""
    return any(source.clock_freshness for source in query.body.inputs)


def check_clock_freshness(query: Query, origin: Origin, span: Span) -> None:
    """Refuse a bound by the clock below something that missing rows would distort."""
    bounded = sum(source.clock_freshness for source in query.body.inputs)
    allowed = [source for source in _list_plain_sources(query.body) if source.clock_freshness]
    if bounded and (query.emit != "istream" or len(allowed) < bounded):
        raise origin.error(CLOCK_WOULD_DISTORT, _MESSAGE, span)


def refuse_clock_reader(name: str, query: Query) -> None:
    """Refuse a query whose results other queries read if they depend on the clock."""
    if reads_clock(query):
        raise UnsupportedError(CLOCK_WOULD_DISTORT, f"{name}: {_MESSAGE}", query=name)


_MESSAGE = (
    "FRESHNESS BY CLOCK leaves results out, so it is for the results of a SELECT of streams, as ISTREAM: aggregates, "
    "DISTINCT, set operations, subqueries, DSTREAM, RSTREAM, EMIT CHANGES, views and derived streams would be wrong. "
    "Write FRESHNESS without BY CLOCK, or filter the results where they are read"
)


def _list_plain_sources(body: QueryBody) -> list[Source]:
    if isinstance(body, SetOperation) and body.kind == "union all":
        return [*_list_plain_sources(body.left), *_list_plain_sources(body.right)]
    plain = isinstance(body, Select) and body.group_by is None and not body.distinct and body.sequence is None
    if not isinstance(body, Select) or not plain:
        return []
    return [] if any(isinstance(each.relation, Subquery) for each in body.sources) else list(body.sources)
