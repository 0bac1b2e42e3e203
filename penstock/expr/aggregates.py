"""The registry of aggregates: their names and type rules.

A new aggregate is one entry here, its accumulator under the same name in `ops.aggregate.accumulators.ACCUMULATORS`, and
a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expr.type_rules import TypeRule, type_average, type_count, type_extreme, type_sum


@dataclass(frozen=True)
class AggregateFunction:
    """A built-in aggregate of one argument."""

    name: str
    type_rule: TypeRule
    mismatch: str = ""
    """The start of the message for an argument that does not fit; the argument follows."""
    takes_star: bool = False
    """Whether `name(*)` aggregates whole rows."""


_ENTRIES = (
    AggregateFunction("count", type_count, takes_star=True),
    AggregateFunction("sum", type_sum, "SUM needs a number, not"),
    AggregateFunction("avg", type_average, "AVG needs a number, not"),
    AggregateFunction("min", type_extreme),
    AggregateFunction("max", type_extreme),
)

AGGREGATE_SYNONYMS = {
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "any_value": "min",
    "count_if": "count",
    "approx_count_distinct": "count",
}
"""Aggregates that others compute: of booleans, FALSE is the smallest; a count of distinct values is always exact."""
BOOLEAN_AGGREGATES = frozenset({"bool_and", "every", "bool_or", "count_if"})
"""The synonyms whose argument is a boolean."""

AGGREGATES: dict[str, AggregateFunction] = {entry.name: entry for entry in _ENTRIES}
