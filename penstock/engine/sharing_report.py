"""How a query shares its joins, for people: lines of `explain`, and the table of slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.cql import format_duration
from penstock.engine.parts import JoinQueryPart
from penstock.expr import find_aliases, to_sql
from penstock.join import Slice, list_slices
from penstock.ops import OperatorId
from penstock.plan import rename_aliases, rename_leaves

_MAX_LISTED = 10


def format_sharing(parts: Sequence[JoinQueryPart], time_type: pa.DataType) -> list[str]:
    """The queries and slices of the joins that a query shares, as lines."""
    lines: list[str] = []
    for part in parts:
        shared = part.join.shared_join
        lines += _format_readers(part)
        if len(shared.members) > 1:
            groups = len(shared.needs.filter_groups)
            filters = "the same filters" if groups == 1 else f"{groups} different sets of filters"
            lines.append(f"shared: one join for {len(shared.members)} queries with {filters}")
            interest = shared.interest
            if interest is not None and interest.uses_bits:
                sets = f"{len(interest.sets):,} combinations of these occur"
                lines.append(f"  {sets}, too many to number those of results: each result has one bit for each set")
            found = (
                *_format_waiting(part),
                *_format_counts(part),
                *_format_tests(part),
                *_format_slices(part, time_type),
            )
            lines += [f"  {line}" for line in found]
    return lines


def build_slice_table(part: JoinQueryPart, time_type: pa.DataType) -> pa.Table:
    """The slices of a join, youngest first: their queries, the rows they hold by alias, and their results."""
    found = _list_slices(part)
    span = pa.duration("us") if pa.types.is_timestamp(time_type) else pa.int64()
    ages = {
        "from": pa.array([each.low for each in found], pa.int64()).cast(span),
        "to": pa.array([each.high for each in found], pa.int64()).cast(span),
        "queries": pa.array([[str(reader) for reader in each.readers] for each in found], pa.list_(pa.string())),
    }
    aliases = found[0].rows if found else {}
    rows = {f"rows of {alias}": pa.array([each.rows[alias] for each in found], pa.int64()) for alias in aliases}
    return pa.table({**ages, **rows, "results": pa.array([each.results for each in found], pa.int64())})


def _list_slices(part: JoinQueryPart) -> list[Slice]:
    """The slices of a join, in the query's aliases."""
    own = part.own_aliases
    return [
        replace(each, rows={own[alias]: rows for alias, rows in each.rows.items() if alias in own})
        for each in list_slices(part.join.shared_join, part.join.done)
    ]


def _format_readers(part: JoinQueryPart) -> Iterator[str]:
    """The queries that read one node of the join."""
    early, members = part.join.tree.early_node, part.join.shared_join.members
    if early is None:
        return
    readers = _format_queries([member.id for member in members if member.need.scope is not None])
    if part.is_nested:
        whole = _format_queries([member.id for member in members if member.need.scope is None])
        yield f"reads a node of the join of {whole}; it is read by {readers}"
    else:
        yield f"{rename_leaves(early.plan.tree, part.own_aliases)} is read by {readers}"


def _format_waiting(part: JoinQueryPart) -> Iterator[str]:
    """Which queries get the rows of an instant later than others."""
    shared = part.join.shared_join
    if shared.has_waiting and not shared.strict:
        waiting = _format_queries([member.id for member in shared.members if member.waits])
        yield f"rows are given to {waiting} when their instant is complete, to the others at once"


def _format_counts(part: JoinQueryPart) -> Iterator[str]:
    """The row-counted windows of the join that are larger than those of the query."""
    largest, own = part.join.shared_join.needs.find_largest_counts(), dict(part.member.need.row_counts)
    larger = [f"{count} of {part.own_aliases[alias]}" for alias, count in largest.items() if count > own[alias]]
    if larger:
        yield f"keeps more tuples for other queries: the last {', '.join(sorted(larger))}"


def _format_tests(part: JoinQueryPart) -> list[str]:
    """The predicates of the join that are wider than those of the query."""
    wider = part.join.tree.plan.residuals - part.member.need.residuals
    found = (rename_aliases(expr, part.own_aliases) for expr in wider if find_aliases(expr) <= set(part.own_aliases))
    return [f"finds the pairs for all of them by {text}" for text in sorted(map(to_sql, found))]


def _format_slices(part: JoinQueryPart, time_type: pa.DataType) -> Iterator[str]:
    """The first slices, and how many more there are."""
    found = _list_slices(part)
    for each in found[:_MAX_LISTED]:
        ages = f"{format_duration(each.low, time_type)} to {format_duration(each.high, time_type)}"
        held = ", ".join(f"{alias} {rows}" for alias, rows in each.rows.items())
        yield f"age {ages}: tuples {held}; results {each.results}; up to here read {_format_queries(each.readers)}"
    if len(found) > _MAX_LISTED:
        yield f"and {len(found) - _MAX_LISTED} slices more"


def _format_queries(members: Sequence[OperatorId]) -> str:
    """The queries of some members, the first of them by name."""
    more = f" and {len(members) - _MAX_LISTED} more" if len(members) > _MAX_LISTED else ""
    return ", ".join(member.query for member in members[:_MAX_LISTED]) + more
