"""The plan of a whole query as explained nodes: groups, set operations and sequences, with the joins below them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cql import Source, Stream, format_duration
from penstock.expr import Expr, to_sql
from penstock.plan.explain import ExplainNode, Properties, format_source
from penstock.plan.query import (
    DifferencePart,
    DistinctPart,
    GroupPart,
    JoinPart,
    PlanPart,
    SequencePart,
    SequenceStep,
    UnionPart,
)


def describe_query(part: PlanPart, joins: Mapping[int, ExplainNode]) -> ExplainNode:
    """The explained plan. `joins` has the running joins, by the identity of their parts."""

    def below(other: PlanPart) -> ExplainNode:
        return describe_query(other, joins)

    match part:
        case JoinPart():
            return joins[id(part)]
        case SequencePart():
            return _describe_sequence(part)
        case GroupPart():
            return ExplainNode("aggregate", _describe_group(part), (below(part.input),))
        case DistinctPart():
            return ExplainNode("distinct", (), (below(part.input),))
        case UnionPart():
            return ExplainNode("union all", (), tuple(below(each) for each in part.inputs))
        case DifferencePart():
            return ExplainNode("except", (), tuple(below(each) for each in (part.inputs[0], *part.subtrahends)))


def _describe_group(part: GroupPart) -> Properties:
    plan = part.plan
    keys = ", ".join(to_sql(key) for key in plan.keys) or "nothing (one group)"
    shown = ", ".join(to_sql(aggregate) for aggregate in plan.aggregates)
    having = () if plan.having is None else (("having", to_sql(plan.having)),)
    slide = () if plan.slide is None else (("slide", format_duration(plan.slide, _find_time_type(part.input.sources))),)
    return (("by", keys), *((("computes", shown),) if shown else ()), *having, *slide)


def _find_time_type(sources: tuple[Source, ...]) -> object:
    return next(source.relation.time_type for source in sources if isinstance(source.relation, Stream))


def _describe_sequence(part: SequencePart) -> ExplainNode:
    node = _describe_source(part.sources[0], part.filters[0])
    for step, source, filters in zip(part.steps, part.sources[1:], part.filters[1:], strict=True):
        node = ExplainNode(
            f"sequence {part.mode.upper()}", _describe_step(step), (node, _describe_source(source, filters))
        )
    return node


def _describe_step(step: SequenceStep) -> Properties:
    equal = " and ".join(f"{to_sql(left)} = {to_sql(right)}" for left, right in step.keys)
    where = " AND ".join(to_sql(term) for term in step.residuals)
    return (*((("on", equal),) if equal else ()), *((("where", where),) if where else ()))


def _describe_source(source: Source, filters: tuple[Expr, ...]) -> ExplainNode:
    where = (("filter", " AND ".join(to_sql(term) for term in filters)),) if filters else ()
    return ExplainNode(format_source(source), where)
