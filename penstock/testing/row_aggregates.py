"""The naive meaning of aggregates: computed from all rows of a group, in plain Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from penstock.expr import AGGREGATES, Aggregate
from penstock.testing.row_evaluator import Env, compile_expr, fit_to_type, to_comparison_key, to_identity
from penstock.testing.row_functions import WIDE_CONTEXT


def compute_aggregate(node: Aggregate, members: list[Env], classes: Mapping[str, type]) -> Any:
    if not node.args:
        return len(members)
    if node.function in classes:
        return _compute_user_aggregate(node, members, classes[node.function])
    rows = [tuple(argument(env) for argument in map(compile_expr, node.args)) for env in members]
    rows = [row for row in rows if None not in row[: AGGREGATES[node.function].required]]
    if node.distinct:
        rows = list({to_comparison_key(row[0]): row for row in rows}.values())
    if node.function == "count":
        return len(rows)
    if not rows:
        return [] if node.function == "array_agg" else None
    return AGGREGATE_MEANINGS[node.function](node, rows)


Row = tuple[Any, ...]


def _compute_average(node: Aggregate, rows: list[Row]) -> Any:
    total = sum_exactly([row[0] for row in rows])
    if isinstance(total, Decimal):
        given = node.args[0].type
        total = fit_to_type(total, pa.decimal128(min(given.precision + 10, 38), given.scale))
        return None if total is None else fit_to_type(WIDE_CONTEXT.divide(total, len(rows)), node.type)
    return None if total is None else float(total) / len(rows)


def _compute_variance(node: Aggregate, rows: list[Row]) -> Any:
    values, count = [row[0] for row in rows], len(rows)
    divisor = count * (count - 1) if node.function.endswith("_samp") else count * count
    if not divisor:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    variance = float(count * sum(value * value for value in exact) - sum(exact) ** 2) / divisor
    return math.sqrt(variance) if node.function.startswith("stddev") else variance


def _compute_percentile(node: Aggregate, rows: list[Row]) -> Any:
    fraction, descending = node.parameters
    values = sorted((row[0] for row in rows), key=to_comparison_key, reverse=descending)
    if node.function == "percentile_disc":
        return values[max(math.ceil(fraction * len(values)) - 1, 0)]
    place = fraction * (len(values) - 1)
    low, part = math.floor(place), place - math.floor(place)
    return values[low] * (1 - part) + values[low + 1] * part if part else values[low]


def _compute_choice(node: Aggregate, rows: list[Row]) -> Any:
    choose = min if node.function in ("arg_min", "first") else max
    return choose(rows, key=lambda row: (to_comparison_key(row[1]), to_comparison_key(row[0])))[0]


def _compute_list(node: Aggregate, rows: list[Row]) -> Any:
    separator, *orders = node.parameters
    rows = sorted(rows, key=lambda row: to_comparison_key(row[0]))
    for place, (descending, nulls_first) in reversed(list(enumerate(orders, 1))):
        known = [row for row in rows if row[place] is not None]
        nulls = [row for row in rows if row[place] is None]
        known = sorted(known, key=lambda row: to_comparison_key(row[place]), reverse=descending)
        rows = nulls + known if nulls_first else known + nulls
    values = [row[0] for row in rows]
    return values if separator is None else separator.join(values)


AGGREGATE_MEANINGS: dict[str, Callable[[Aggregate, list[Row]], Any]] = {
    "sum": lambda node, rows: fit_to_type(sum_exactly([row[0] for row in rows]), node.type),
    "avg": _compute_average,
    "min": lambda _node, rows: min((row[0] for row in rows), key=to_comparison_key),
    "max": lambda _node, rows: max((row[0] for row in rows), key=to_comparison_key),
    **dict.fromkeys(("var_samp", "var_pop", "stddev_samp", "stddev_pop"), _compute_variance),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), _compute_percentile),
    **dict.fromkeys(("arg_min", "arg_max", "first", "last"), _compute_choice),
    **dict.fromkeys(("string_agg", "array_agg"), _compute_list),
}
"""By aggregate, its value over rows of arguments, of which there is at least one."""


def sum_exactly(inputs: list[Any]) -> Any:
    """The sum, which does not depend on the order: doubles are added exactly and rounded once."""
    if isinstance(inputs[0], Decimal):
        return functools.reduce(WIDE_CONTEXT.add, inputs)
    if not isinstance(inputs[0], float):
        return sum(inputs)
    special = [value for value in inputs if not math.isfinite(value)]
    if special:
        return sum(special)
    total = sum(map(Fraction, inputs))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _compute_user_aggregate(node: Aggregate, members: list[Env], cls: type) -> Any:
    arguments = [compile_expr(arg) for arg in node.args]
    rows = [tuple(argument(env) for argument in arguments) for env in members]
    if not getattr(cls, "nulls", False):
        rows = [row for row in rows if None not in row]
    if node.distinct:
        rows = list({to_identity(row): row for row in rows}.values())
    if not rows:
        return None
    made: Any = cls()
    if hasattr(made, "initialise"):
        made.initialise()
    for row in rows:
        made.iterate(*row)
    return made.terminate()
