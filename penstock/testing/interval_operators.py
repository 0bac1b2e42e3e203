"""DISTINCT, EXCEPT and GROUP BY as the answer at every instant, by brute force.

Between two instants at which an input row comes or goes nothing changes, so the answer is computed afresh at each
of them and equal answers of consecutive instants are joined to one interval. A group's row changes when one of its
values does; two groups never stand in for each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.cql.bound import Select
from penstock.errors import UnsupportedError
from penstock.expr.nodes import Aggregate, Column, Expr, rewrite, walk
from penstock.testing.row_evaluator import WIDE, Env, Evaluator, Row, fit, key, naive

FOREVER = math.inf
ALWAYS = -math.inf


class Valid(NamedTuple):
    """A row of an answer, in it during [born, dies)."""

    values: tuple[Any, ...]
    born: float
    dies: float


def changes(rows: Iterable[Valid]) -> list[float]:
    """The instants at which a row comes or goes, in order."""
    return sorted({at for row in rows for at in (row.born, row.dies) if math.isfinite(at)})


def distinct(rows: list[Valid]) -> list[Valid]:
    """Every value once, while at least one row has it."""
    return _over_time(rows, lambda valid: {identity(row.values): row.values for row in valid})


def except_(left: list[Valid], right: list[Valid]) -> list[Valid]:
    """Every value of the left once, while a row there has it and none on the right."""
    sides = [Valid((0, row.values), row.born, row.dies) for row in left]
    sides += [Valid((1, row.values), row.born, row.dies) for row in right]

    def at_an_instant(valid: list[Valid]) -> dict[Hashable, tuple[Any, ...]]:
        gone = {identity(row.values[1]) for row in valid if row.values[0] == 1}
        here = {identity(row.values[1]): row.values[1] for row in valid if row.values[0] == 0}
        return {name: row for name, row in here.items() if name not in gone}

    return _over_time(sides, at_an_instant)


def grouped(
    select: Select, rows: list[tuple[Mapping[str, Row], float, float]], classes: Mapping[str, type] | None = None
) -> list[Valid]:
    """GROUP BY: one row for every group that has rows; without keys all rows are one group.

    With SLIDE the answer changes only at its multiples: a row counts from the first one at which it is valid.
    """
    keys = [naive(term) for term in select.group_by or ()]
    outputs = [_GroupExpr(item.expr, classes or {}) for item in select.items]
    having = _GroupExpr(select.having, classes or {}) if select.having is not None else None
    slides = {s.window.slide for s in select.sources if s.window is not None and s.window.slide is not None}
    if slides:
        (slide,) = slides
        slid = [(env, _next(born, slide), _next(dies, slide)) for env, born, dies in rows]
        rows = [(env, born, dies) for env, born, dies in slid if born < dies]
    rows = sorted(rows, key=lambda row: row[1])

    def at_an_instant(valid: list[Valid]) -> dict[Hashable, tuple[Any, ...]]:
        groups: dict[Hashable, list[Env]] = {}
        for row in valid:
            env = row.values[0]
            groups.setdefault(identity([term(env) for term in keys]), []).append(env)
        return {
            name: tuple(output(members) for output in outputs)
            for name, members in groups.items()
            if having is None or having(members) is True
        }

    return _over_time([Valid((env,), born, dies) for env, born, dies in rows], at_an_instant)


def _next(at: float, slide: int) -> float:
    """The first multiple of the slide that is not before an instant."""
    return at if math.isinf(at) else -(-int(at) // slide) * slide


def identity(row: Iterable[Any]) -> Hashable:
    """What makes two rows the same: NULL is NULL and NaN is NaN."""
    return tuple(None if value is None else key(value) for value in row)


def _over_time(rows: list[Valid], answer: Callable[[list[Valid]], dict[Hashable, tuple[Any, ...]]]) -> list[Valid]:
    """The answers of all instants, as rows with the longest intervals during which each stays."""
    done: list[Valid] = []
    current: dict[Hashable, tuple[tuple[Any, ...], float]] = {}
    for at in [ALWAYS, *changes(rows)]:
        new = answer([row for row in rows if row.born <= at < row.dies])
        for name, (row, born) in list(current.items()):
            if name not in new or identity(new[name]) != identity(row):
                done.append(Valid(row, born, at))
                del current[name]
        for name, row in new.items():
            current.setdefault(name, (row, at))
    return done + [Valid(row, born, FOREVER) for row, born in current.values()]


class _GroupExpr:
    """An expression over a group: aggregates of its members, and columns every member agrees on."""

    def __init__(self, expr: Expr, classes: Mapping[str, type]) -> None:
        self.classes = classes
        self.aggregates = {node: f"{i}" for i, node in enumerate(walk(expr)) if isinstance(node, Aggregate)}

        def as_column(node: Expr) -> Expr:
            return Column("", self.aggregates[node], node.type) if isinstance(node, Aggregate) else node

        self.evaluate: Evaluator = naive(rewrite(expr, as_column))

    def __call__(self, members: list[Env]) -> Any:
        results = {name: _aggregate(node, members, self.classes) for node, name in self.aggregates.items()}
        return self.evaluate({**members[0], "": results})


def _aggregate(node: Aggregate, members: list[Env], classes: Mapping[str, type]) -> Any:
    if not node.args:
        return len(members)
    if node.function in classes:
        return _user_defined(node, members, classes[node.function])
    argument = naive(node.args[0])
    inputs = [value for env in members if (value := argument(env)) is not None]
    if node.distinct:
        inputs = list({key(value): value for value in inputs}.values())
    function = node.function.lower()
    if function == "count":
        return len(inputs)
    if not inputs:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(inputs, key=key)
    if function == "sum":
        return fit(exact_sum(inputs), node.type)
    if function == "avg":
        total = exact_sum(inputs)
        if isinstance(total, Decimal):
            total = fit(total, pa.decimal128(38, node.args[0].type.scale))
        return None if total is None else float(total) / len(inputs)
    raise UnsupportedError("ORACLE_AGGREGATE", f"the oracle does not know the aggregate {node.function}")


def exact_sum(inputs: list[Any]) -> Any:
    """The sum in any order: doubles are added exactly and rounded once."""
    if isinstance(inputs[0], Decimal):
        return functools.reduce(WIDE.add, inputs)
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


def _user_defined(node: Aggregate, members: list[Env], cls: type) -> Any:
    arguments = [naive(arg) for arg in node.args]
    rows = [tuple(argument(env) for argument in arguments) for env in members]
    rows = [row for row in rows if None not in row]
    if node.distinct:
        rows = list({identity(row): row for row in rows}.values())
    if not rows:
        return None
    made: Any = cls()
    if hasattr(made, "initialise"):
        made.initialise()
    for row in rows:
        made.iterate(*row)
    return made.terminate()
