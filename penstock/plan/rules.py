"""Bound query → plan: the plain translation of the text, then an ordered tuple of rules, each a pure function.

`Translation` makes a part of every clause and joins FROM items from left to right. Each rule takes a plan and returns a
plan with the same result. The rules for WHERE are `join_graph.WHERE_RULES`, those for sharing a running join are
`join_sharing.SHARING_CONDITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from penstock.cql import Query, QueryBody, is_by_value
from penstock.errors import QueryError
from penstock.plan.cost import assume_statistics
from penstock.plan.join_order import choose_tree
from penstock.plan.merged_subqueries import merge_subqueries
from penstock.plan.part import PlanPart, map_parts
from penstock.plan.query import DifferencePart, JoinPart, SetOperationPart, UnionPart
from penstock.plan.shapes import replan
from penstock.plan.translate import Translation


@dataclass(frozen=True)
class PlanningContext:
    """The inputs of planning besides the query."""

    plan: str | None
    """The shapes that the caller gives; None leaves them to the cost model."""
    table_rows: Mapping[str, int]
    """The sizes of the tables."""
    stream_ranks: Mapping[str, int]
    """The order in which streams were declared."""


def plan_query(query: Query, context: PlanningContext) -> PlanPart:
    """The plan of a query: of its body, and by value if its rows are ranked."""
    part = plan_body(query.body, context, merge=query.emit != "close")
    if query.emit == "close" or not is_by_value(query.body):
        return part
    return SetOperationPart("by value", (part,), tuple((item.name, item.expr.type) for item in query.body.items))


def plan_body(body: QueryBody, context: PlanningContext, *, merge: bool = True) -> PlanPart:
    """The plan of a body. `merge`: plain subqueries are merged; of rows that are final, each is told apart.

    A given plan that has the subqueries as items keeps them apart.
    """
    if not merge:
        return _apply_rules(body, context)
    try:
        return _apply_rules(merge_subqueries(body), context)
    except QueryError as error:
        if context.plan is None or error.condition not in ("PLAN_COUNT", "PLAN_MISFIT"):
            raise
        try:
            return _apply_rules(body, context)
        except QueryError:
            raise error from None


def _apply_rules(body: QueryBody, context: PlanningContext) -> PlanPart:
    part = Translation(context.stream_ranks).translate(body)
    return reduce(lambda part, rule: rule(part, context), PLAN_RULES, part)


def flatten_unions(part: PlanPart, _context: PlanningContext) -> PlanPart:
    """UNION ALL of UNION ALL is one part with all inputs."""

    def flatten(part: PlanPart) -> PlanPart:
        if not isinstance(part, UnionPart):
            return part
        sides = (each.inputs if isinstance(each, UnionPart) else (each,) for each in part.inputs)
        return part.with_inputs([each for side in sides for each in side])

    return map_parts(part, flatten)


def flatten_differences(part: PlanPart, _context: PlanningContext) -> PlanPart:
    """(a EXCEPT b) EXCEPT c subtracts b and c from a, in any order; a EXCEPT (b EXCEPT c) does not change."""

    def flatten(part: PlanPart) -> PlanPart:
        if not isinstance(part, DifferencePart) or not isinstance(part.inputs[0], DifferencePart):
            return part
        inputs = (*part.inputs[0].inputs, *part.inputs[1:])
        return replace(part, sides=inputs, order=tuple(range(1, len(inputs))))

    return map_parts(part, flatten)


def order_joins(part: PlanPart, context: PlanningContext) -> PlanPart:
    """Joins take the shapes that the caller gives, else the cheapest ones by the cost model."""
    if context.plan is not None:
        return replan(part, context.plan)

    def order(part: PlanPart) -> PlanPart:
        if not isinstance(part, JoinPart):
            return part
        rows = {source.alias: context.table_rows[source.relation.name] for source in part.sources if source.is_table}
        tree = choose_tree(part.graph, assume_statistics(part.graph, part.sources, rows))
        return part if tree == part.plan.tree else replace(part, plan=part.plan_shape(tree))

    return map_parts(part, order)


PLAN_RULES: tuple[Callable[[PlanPart, PlanningContext], PlanPart], ...] = (
    flatten_unions,
    flatten_differences,
    order_joins,
)
