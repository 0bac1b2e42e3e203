"""The plan of a running query: the shapes of its joins as they are now, and how they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import is_not

from penstock.engine.compiler import CompiledQuery
from penstock.engine.parts import JoinQueryPart
from penstock.errors import QueryError
from penstock.join import JoinOperator, Migration
from penstock.plan import (
    ExplainNode,
    JoinPart,
    JoinPlan,
    PlanPart,
    Tree,
    describe_query,
    list_difference_parts,
    list_join_parts,
    list_planned_joins,
    rename_leaves,
    replan,
)


class RunningPlan:
    """The logical plan of a query, and the joins that run it."""

    def __init__(self, query: str, logical_plan: PlanPart, compiled: CompiledQuery) -> None:
        self._query = query
        self.logical_plan = logical_plan
        self.parts = compiled.joins
        self._differences = compiled.differences
        self._text: tuple[tuple[object, ...], str | None] = (), None
        """What the plan string was made of, and the plan string: a page asks for it often."""

    @property
    def _planned_joins(self) -> list[tuple[JoinQueryPart, JoinPart]]:
        return list(self._pair_joins(self.logical_plan))

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins that probe: those of two FROM items or more."""
        return [part.join for part in self.parts if len(part.plan_part.sources) > 1]

    @property
    def text(self) -> str | None:
        """The shapes of the joins as a plan string; None without joins."""
        made_of = (self.logical_plan, *(part.running_shape for part in self.parts))
        if len(made_of) != len(self._text[0]) or any(map(is_not, made_of, self._text[0])):
            shapes = {id(planned): str(part.own_tree()) for part, planned in self._planned_joins}
            text = "; ".join(shapes[id(planned)] for planned in list_planned_joins(self.logical_plan)) or None
            self._text = made_of, text
        return self._text[1]

    def list_shapes(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The shapes of all joins, in the order of the plan string, and the places of those that `join` runs."""
        parts = {id(planned): part for part, planned in self._planned_joins}
        ordered = [parts[id(planned)] for planned in list_planned_joins(self.logical_plan)]
        places = (place for place, part in enumerate(ordered) if part.join is join)
        return tuple(str(part.own_tree()) for part in ordered), tuple(places)

    def find_node(self, node: str) -> tuple[JoinOperator, frozenset[str]]:
        """The join and the aliases of one node of the plan, which must not be a root."""
        for part in self.parts:
            own = part.own_aliases
            plan = part.join.tree.plan
            for each in plan.nodes():
                if str(rename_leaves(each.tree, own)) == node and each is not plan.root:
                    return part.join, frozenset(each.aliases)
        message = f"{self._query} has no node {node} that keeps rows; its plan is {self.text}"
        raise QueryError("UNKNOWN_NODE", message, node=node)

    def explain(self, allowances: Mapping[JoinOperator, Mapping[Tree, str]]) -> ExplainNode:
        """The plan as it runs now; `allowances`: by join, how often the rows of a node may probe."""
        running = {
            id(planned): partial(part.explain, allowances.get(part.join, {})) for part, planned in self._planned_joins
        }
        return describe_query(self.logical_plan, running)

    # ── migration ────────────────────────────────────────────────────────────────────────────────────────────────

    def replan(self, text: str) -> PlanPart:
        """The logical plan in other shapes; refuses a text that does not fit."""
        return replan(self.logical_plan, text)

    def list_broken_joins(self, changed: PlanPart) -> list[JoinOperator]:
        """The joins that lack a node that other queries read if the plan is changed."""
        return [part.join for part, join in self._pair_joins(changed) if part.would_break(join.plan.tree)]

    def plan_joins(self, changed: PlanPart, how: Migration) -> list[JoinPlan]:
        """The plans of the joins if the plan is changed; refuses those that a join cannot migrate to."""
        plans = []
        for part, join in self._pair_joins(changed):
            plans.append(part.build_plan(join.plan.tree))
            part.join.check_migration(plans[-1], how)
        return plans

    def migrate(self, changed: PlanPart, joins: Sequence[JoinPlan], how: Migration) -> None:
        """Change to another plan, with the join plans of `plan_joins`."""
        for part, plan in zip(self.parts, joins, strict=True):
            part.join.migrate(plan, how)
        for operator, difference in zip(self._differences, list_difference_parts(changed), strict=True):
            operator.order = difference.order
        self.logical_plan = changed

    def _pair_joins(self, changed: PlanPart) -> Iterator[tuple[JoinQueryPart, JoinPart]]:
        return zip(self.parts, list_join_parts(changed), strict=True)
