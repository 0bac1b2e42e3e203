"""Plan strings for a whole query: one shape for each join, in the order of the text, divided by semicolons."""

from __future__ import annotations

from penstock.errors import QueryError
from penstock.plan.part import PlanPart, ShapeQueue
from penstock.plan.query import list_join_parts


def replan(part: PlanPart, text: str) -> PlanPart:
    """The same plan with joins in other shapes, and with the subtrahends of EXCEPT in another order."""
    return part.replan(ShapeQueue(_split_plans(text, len(list_join_parts(part)))))


def _split_plans(text: str, count: int) -> list[str]:
    """One plan string for each join."""
    given = [each.strip() for each in text.split(";")]
    if not count:
        raise QueryError("PLAN_WITHOUT_JOIN", "a sequence is matched from left to right and takes no plan")
    if len(given) != count:
        message = f"the query has {count} joins, but {len(given)} plans were given; write one for each, divided by ;"
        raise QueryError("PLAN_COUNT", message)
    return given
