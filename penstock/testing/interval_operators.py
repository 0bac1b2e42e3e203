"""DISTINCT, EXCEPT and GROUP BY by brute force, as the answer at every instant.

The answer changes only at instants at which an input row enters or leaves. It is computed anew at each of them, and
equal answers of consecutive instants are merged into one interval. The row of a group changes when one of its values
changes; rows of different groups are never merged.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.cql import Select
from penstock.expr import Aggregate, Column, Expr, rewrite, walk
from penstock.testing.row_aggregates import compute_aggregate
from penstock.testing.row_evaluator import (
    Env,
    Evaluator,
    Row,
    compile_expr,
    to_identity,
)

FOREVER = math.inf
ALWAYS = -math.inf
AFTER_END = 2**63 - 17
"""The instant behind the end of all streams; `_ts` is NULL there."""


class ValidRow(NamedTuple):
    """A row that is in an answer during [born, dies)."""

    values: tuple[Any, ...]
    born: float
    dies: float


def list_change_times(rows: Iterable[ValidRow]) -> list[float]:
    """The instants at which a row enters or leaves, in order."""
    return sorted({at for row in rows for at in (row.born, row.dies) if math.isfinite(at)})


def compute_distinct(rows: list[ValidRow]) -> list[ValidRow]:
    """Every value once, while at least one row has it."""
    return evaluate_over_time(rows, lambda valid: {to_identity(row.values): row.values for row in valid})


def compute_by_value(rows: list[ValidRow]) -> list[ValidRow]:
    """The same rows, where equal rows that follow one another are one row."""
    return compute_set_operation("except all", rows, [])


def compute_set_operation(kind: str, left: list[ValidRow], right: list[ValidRow]) -> list[ValidRow]:
    """EXCEPT, INTERSECT and their ALL forms: each value as often as SQL says, with its copies numbered."""
    sides = [ValidRow((0, row.values), row.born, row.dies) for row in left]
    sides += [ValidRow((1, row.values), row.born, row.dies) for row in right]

    def at_an_instant(valid: list[ValidRow]) -> dict[Hashable, tuple[Any, ...]]:
        counts = [Counter(to_identity(row.values[1]) for row in valid if row.values[0] == side) for side in (0, 1)]
        values = {to_identity(row.values[1]): row.values[1] for row in valid}
        return {
            (name, copy): row
            for name, row in values.items()
            for copy in range(count_copies(kind, counts[0][name], counts[1][name]))
        }

    return evaluate_over_time(sides, at_an_instant)


def count_copies(kind: str, left: int, right: int) -> int:
    """How often a value is in the answer of a set operation."""
    match kind:
        case "except":
            return int(left > 0 and not right)
        case "except all":
            return max(left - right, 0)
        case "intersect":
            return int(left > 0 and right > 0)
    return min(left, right)


def compute_groups(
    select: Select,
    rows: list[tuple[Mapping[str, Row], float, float]],
    classes: Mapping[str, type] | None = None,
    arrivals: Mapping[str, Sequence[int]] | None = None,
) -> list[ValidRow]:
    """GROUP BY: one row for every group that has rows; without keys all rows are one group.

    With SLIDE there is an answer at each report, which lasts until the next one; see `_compute_reports`. `arrivals` are
    the times of the tuples of each FROM item whose window slides by a number of rows, in order.
    """
    keys = [compile_expr(term) for term in select.group_by or ()]
    outputs = [_GroupExpr(item.expr, classes or {}) for item in select.items]
    having = _GroupExpr(select.having, classes or {}) if select.having is not None else None
    rows = sorted(rows, key=lambda row: row[1])

    def at_an_instant(valid: list[ValidRow]) -> dict[Hashable, tuple[Any, ...]]:
        groups: dict[Hashable, list[Env]] = {}
        for row in valid:
            env = row.values[0]
            groups.setdefault(to_identity([term(env) for term in keys]), []).append(env)
        return {
            name: tuple(output(members) for output in outputs)
            for name, members in groups.items()
            if having is None or having(members) is True
        }

    slides = {s.window.slide for s in select.sources if s.window.slide is not None}
    valid = [ValidRow((env,), born, dies) for env, born, dies in rows]
    for source in select.sources:
        if source.window.row_slide is not None:
            times = (arrivals or {})[source.alias]
            instants = sorted(set(times[source.window.row_slide - 1 :: source.window.row_slide]))
            return _compute_row_reports(valid, instants, at_an_instant)
    if not slides:
        return evaluate_over_time(valid, at_an_instant)

    (slide,) = slides
    return _compute_reports(valid, slide, at_an_instant)


def _compute_row_reports(
    rows: list[ValidRow],
    instants: Sequence[int],
    answer: Callable[[list[ValidRow]], Mapping[Hashable, tuple[Any, ...]]],
) -> list[ValidRow]:
    """A report at each instant, which lasts until the next."""
    return [
        ValidRow(values, at, until)
        for at, until in itertools.pairwise([*instants, FOREVER])
        for values in answer([row for row in rows if row.born <= at < row.dies]).values()
    ]


def _compute_reports(
    rows: list[ValidRow], slide: int, answer: Callable[[list[ValidRow]], Mapping[Hashable, tuple[Any, ...]]]
) -> list[ValidRow]:
    """A report at each multiple of the slide at which there are rows."""
    at_report: dict[int, list[ValidRow]] = {}
    for row in rows:
        for number in range(-(-int(row.born) // slide), -(-int(row.dies) // slide)):
            at_report.setdefault(number, []).append(row)
    return [
        ValidRow(values, number * slide, (number + 1) * slide)
        for number in sorted(at_report)
        for values in answer(at_report[number]).values()
    ]


def evaluate_over_time(
    rows: list[ValidRow], answer: Callable[[list[ValidRow]], dict[Hashable, tuple[Any, ...]]]
) -> list[ValidRow]:
    """The answers of all instants as rows, each with the longest interval during which it is in the answer."""
    done: list[ValidRow] = []
    current: dict[Hashable, tuple[tuple[Any, ...], float]] = {}
    for at in [ALWAYS, *list_change_times(rows)]:
        new = answer([row for row in rows if row.born <= at < row.dies])
        for name, (row, born) in list(current.items()):
            if name not in new or to_identity(new[name]) != to_identity(row):
                done.append(ValidRow(row, born, at))
                del current[name]
        for name, row in new.items():
            current.setdefault(name, (row, at))
    return done + [ValidRow(row, born, FOREVER) for row, born in current.values()]


class _GroupExpr:
    """An expression over a group: aggregates of its members, and columns that are equal in all members."""

    def __init__(self, expr: Expr, classes: Mapping[str, type]) -> None:
        self.classes = classes
        self.aggregates = {node: f"{i}" for i, node in enumerate(walk(expr)) if isinstance(node, Aggregate)}

        def as_column(node: Expr) -> Expr:
            return Column("", self.aggregates[node], node.type) if isinstance(node, Aggregate) else node

        self.evaluate: Evaluator = compile_expr(rewrite(expr, as_column))

    def __call__(self, members: list[Env]) -> Any:
        results = {name: compute_aggregate(node, members, self.classes) for node, name in self.aggregates.items()}
        return self.evaluate({**members[0], "": results})
