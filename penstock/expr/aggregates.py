"""The registry of aggregates: their names and type rules.

A new aggregate is one entry here, its accumulator under the same name in `ops.aggregate.accumulators.ACCUMULATORS`, its
naive meaning in `penstock.testing.row_aggregates`, and a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.expr.type_rules import (
    TypeRule,
    type_array,
    type_average,
    type_choice,
    type_count,
    type_deviation,
    type_extreme,
    type_sum,
    type_text_list,
)

AggregateForm = Literal["plain", "percentile", "by_time", "list", "array"]


@dataclass(frozen=True)
class AggregateFunction:
    """A built-in aggregate. Rows with a NULL in one of the first `required` arguments are ignored."""

    name: str
    type_rule: TypeRule
    mismatch: str = ""
    """The start of the message for an argument that does not fit; the argument follows."""
    takes_star: bool = False
    """Whether `name(*)` aggregates whole rows."""
    arity: int = 1
    """How many columns it takes."""
    form: AggregateForm = "plain"
    """How it is written: `percentile` has a fraction and WITHIN GROUP, `list` a separator and ORDER BY, `array`
    ORDER BY alone, `by_time` compares the times of rows."""
    aliases: tuple[str, ...] = ()
    required: int = 1


_ENTRIES = (
    AggregateFunction("count", type_count, takes_star=True),
    AggregateFunction("sum", type_sum, "SUM needs a number, not"),
    AggregateFunction("avg", type_average, "AVG needs a number, not", aliases=("mean",)),
    AggregateFunction("min", type_extreme),
    AggregateFunction("max", type_extreme),
    AggregateFunction("var_samp", type_deviation, "VARIANCE needs a number, not", aliases=("variance",)),
    AggregateFunction("var_pop", type_deviation, "VAR_POP needs a number, not"),
    AggregateFunction("stddev_samp", type_deviation, "STDDEV needs a number, not", aliases=("stddev", "std")),
    AggregateFunction("stddev_pop", type_deviation, "STDDEV_POP needs a number, not"),
    AggregateFunction(
        "percentile_cont",
        type_deviation,
        "a continuous percentile needs a number, not",
        form="percentile",
        aliases=("percentile", "quantile_cont", "median"),
    ),
    AggregateFunction(
        "percentile_disc",
        type_extreme,
        form="percentile",
        aliases=("quantile_disc", "percentile_approx", "approx_percentile"),
    ),
    AggregateFunction("arg_min", type_choice, arity=2, required=2, aliases=("min_by", "argmin")),
    AggregateFunction("arg_max", type_choice, arity=2, required=2, aliases=("max_by", "argmax")),
    AggregateFunction("first", type_choice, form="by_time", required=2),
    AggregateFunction("last", type_choice, form="by_time", required=2),
    AggregateFunction(
        "string_agg", type_text_list, "STRING_AGG needs a text, not", form="list", aliases=("listagg", "group_concat")
    ),
    AggregateFunction(
        "array_agg",
        type_array,
        "ARRAY_AGG needs a value that has an order, not",
        form="array",
        aliases=("collect_list", "collect_set"),
    ),
)

AGGREGATE_SYNONYMS = {
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any_value": "min",
    "count_if": "count",
    "approx_count_distinct": "count",
}
"""Aggregates that others compute: of booleans, FALSE is the smallest; a count of distinct values is always exact."""
BOOLEAN_AGGREGATES = frozenset({"bool_and", "every", "bool_or", "some", "count_if"})
"""The synonyms whose argument is a boolean."""

AGGREGATES: dict[str, AggregateFunction] = {entry.name: entry for entry in _ENTRIES}
NAMED_AGGREGATES: dict[str, AggregateFunction] = {
    name: entry for entry in _ENTRIES for name in (entry.name, *entry.aliases)
}
"""By every name that CQL knows."""
