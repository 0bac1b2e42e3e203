"""Plan strings for a whole query: one shape for each join, in the order of the text, divided by semicolons."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.errors import QueryError
from penstock.plan.query import (
    DifferencePart,
    DistinctPart,
    GroupPart,
    JoinPart,
    PlanPart,
    SequencePart,
    UnionPart,
    list_join_parts,
    list_planned_joins,
)


def replan(part: PlanPart, text: str) -> PlanPart:
    """The same plan with joins in other shapes, and with the subtrahends of EXCEPT in another order."""
    return _replan_part(part, deque(_split_plans(text, len(list_join_parts(part)))))


def _replan_part(part: PlanPart, shapes: deque[str]) -> PlanPart:
    match part:
        case JoinPart():
            return replace(part, plan=part.replan(shapes.popleft()))
        case SequencePart():
            return part
        case GroupPart() | DistinctPart():
            below: Any = _replan_part(part.input, shapes)  # a part of the same type as before
            return replace(part, input=below)
        case UnionPart():
            return replace(part, inputs=tuple(_replan_part(each, shapes) for each in part.inputs))
        case DifferencePart():
            return _replan_difference(part, shapes)


def _replan_difference(part: DifferencePart, shapes: deque[str]) -> DifferencePart:
    """A shape names the streams that it joins, so the order of the shapes gives the order of the subtrahends."""
    inputs, order = [_replan_part(part.inputs[0], shapes), *part.inputs[1:]], []
    left = list(range(1, len(inputs)))
    while left:
        place = next((place for place in left if _matches_shapes(inputs[place], shapes)), left[0])
        inputs[place] = _replan_part(inputs[place], shapes)
        order.append(place)
        left.remove(place)
    return replace(part, inputs=tuple(inputs), order=tuple(order))


def _matches_shapes(part: PlanPart, shapes: Iterable[str]) -> bool:
    """Whether the next shapes are over the streams of this part."""
    pairs = zip(list_planned_joins(part), shapes, strict=False)
    return all({name.casefold() for name in join.graph.aliases} == _parse_aliases(shape) for join, shape in pairs)


def _parse_aliases(shape: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[^\s(),{}]+", shape)}


def _split_plans(text: str, count: int) -> list[str]:
    """One plan string for each join."""
    given = [each.strip() for each in text.split(";")]
    if not count:
        raise QueryError("PLAN_WITHOUT_JOIN", "a sequence is matched from left to right and takes no plan")
    if len(given) != count:
        message = f"the query has {count} joins, but {len(given)} plans were given; write one for each, divided by ;"
        raise QueryError("PLAN_COUNT", message)
    return given
