"""The vectorised evaluator against the naive one and DuckDB, on random expressions over edge values."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest
from function_calls import COLUMNS, POOLS, TEMPLATES, write_call

from penstock.cql import Select
from penstock.errors import UnsupportedError
from penstock.expr import Expr, evaluate
from penstock.testing import same_rows
from penstock.testing.duckdb_sql import format_duckdb_type, qualify, to_duckdb, to_plain_table, to_typed_column
from penstock.testing.oracle import bind_text
from penstock.testing.row_evaluator import compile_expr, from_plain, to_plain

PATTERNS = ("k%", "k_", "%1", "k\\%", "", "%", "_wo%")
NUMBERS = ("int", "double", "decimal")
LITERALS = {
    "int": ("0", "1", "2", "-3", "100"),
    "double": ("0.0e0", "1.5e0", "2e0"),
    "decimal": ("1.0", "0.5", "-2.55"),
    "text": ("'k1'", "''", "'12'"),
    "date": ("DATE '2026-01-01'",),
    "time": ("TIMESTAMP '2026-01-01 00:00:00'",),
    "bool": ("TRUE", "FALSE"),
}


def scalar(rng: random.Random, kind: str, depth: int) -> str:
    """A random expression of a kind."""
    if depth <= 0 or rng.random() < 0.2:
        return rng.choice(COLUMNS[kind]) if rng.random() < 0.8 else rng.choice(LITERALS[kind])
    if rng.random() < 0.4:
        return write_call(rng, kind, lambda each: scalar(rng, each, depth - 2))
    if kind == "bool":
        return boolean(rng, depth)
    inner = [scalar(rng, kind, depth - 1) for _ in range(2)]
    general = (
        f"COALESCE({inner[0]}, {inner[1]})",
        f"CASE WHEN {boolean(rng, depth - 1)} THEN {inner[0]} ELSE {inner[1]} END",
        f"CASE WHEN {boolean(rng, depth - 1)} THEN {inner[0]} END",
    )
    if kind in ("int", "double"):
        other = scalar(rng, rng.choice(("int", "double") if kind == "double" else ("int",)), depth - 1)
        target, source = ("BIGINT", "double") if kind == "int" else ("DOUBLE", rng.choice(("int", "decimal")))
        return rng.choice(
            (
                *general,
                *(f"({inner[0]} {op} {other})" for op in "+-*/%"),
                f"(-({inner[0]}))",
                f"ABS({inner[0]})",
                f"CAST({scalar(rng, source, depth - 1)} AS {target})",
                f"CAST(s AS {target})",
            )
        )
    if kind == "decimal":
        return rng.choice((*general, *(f"({rng.choice('d')} {op} {rng.choice(('d', 'j', '2'))})" for op in "+-*")))
    if kind == "time":
        return rng.choice((*general, f"({inner[0]} + INTERVAL 5 SECONDS)", "CAST(dt AS TIMESTAMP)"))
    return rng.choice(general)


def boolean(rng: random.Random, depth: int) -> str:
    if depth <= 0:
        return rng.choice(("b", "i > 0", "f < g", "s = 'k1'"))
    kind = rng.choice((*NUMBERS, *NUMBERS, "text", "date", "time"))
    one, two = (scalar(rng, kind, depth - 1) for _ in range(2))
    mixed = scalar(rng, rng.choice(NUMBERS), depth - 1) if kind in NUMBERS else two
    p, q = boolean(rng, depth - 1), boolean(rng, depth - 1)
    return rng.choice(
        (
            *(f"{one} {op} {mixed}" for op in ("=", "<>", "<", "<=", ">", ">=")),
            f"({p} AND {q})",
            f"({p} OR {q})",
            f"NOT ({p})",
            f"{one} IS NULL",
            f"{one} IS NOT NULL",
            f"{one} IN ({two}, {rng.choice(LITERALS[kind])}, NULL)",
            f"{one} NOT IN ({two}, {rng.choice(LITERALS[kind])})",
            f"{one} BETWEEN {two} AND {mixed}",
            f"{scalar(rng, 'text', depth - 1)} LIKE '{rng.choice(PATTERNS)}'",
        )
    )


def bound(table: pa.Table, text: str) -> Expr:
    body = bind_text(f"SELECT {text} AS v FROM t", {"t": table}, {}, "ts").body
    assert isinstance(body, Select)
    return body.items[0].expr


def make_table(rng: random.Random, rows: int) -> pa.Table:
    return pa.table({name: pa.array(rng.choices(pool, k=rows), kind) for name, (kind, pool) in POOLS.items()})


def evaluate_text(table: pa.Table, expr: Expr) -> pa.Array:
    return evaluate(expr, lambda column: table.column(column.name).combine_chunks(), table.num_rows)


def require_same(table: pa.Table, text: str, fast: pa.Array, wanted: pa.Array) -> None:
    inputs = [str(row) for row in table.to_pylist()]
    try:
        same_rows(*(pa.table({"row": inputs, "value": array}) for array in (fast, wanted)))
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}") from error


@pytest.mark.parametrize("chunk", range(20))
def test_evaluators_agree(chunk: int) -> None:
    rng = random.Random(chunk)
    table = make_table(rng, 80)
    rows = [dict(zip(POOLS, row, strict=True)) for row in zip(*(to_plain(c) for c in table.columns), strict=True)]
    for i in range(60):
        text = scalar(rng, rng.choice(list(COLUMNS)), 1 + i % 4)
        expr = bound(table, text)
        slow = compile_expr(expr)
        wanted = from_plain([slow({"t": row}) for row in rows], expr.type)
        require_same(table, text, evaluate_text(table, expr), wanted)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_every_function_by_rows(kind: str) -> None:
    """Each template with columns and constants as arguments; `SMALL` has both."""
    rng = random.Random(kind)
    table = make_table(rng, 60)
    rows = [dict(zip(POOLS, row, strict=True)) for row in zip(*(to_plain(c) for c in table.columns), strict=True)]
    for template in TEMPLATES[kind]:
        for depth in (0, 0, 2):
            text = write_call(rng, kind, lambda each, depth=depth: scalar(rng, each, depth), template)
            expr = bound(table, text)
            slow = compile_expr(expr)
            wanted = from_plain([slow({"t": row}) for row in rows], expr.type)
            require_same(table, text, evaluate_text(table, expr), wanted)


def test_functions_against_duckdb() -> None:
    rng = random.Random(7)
    table, compared = make_table(rng, 60), 0
    # DuckDB raises errors for infinities, and computes some functions of integers as doubles.
    for name, other in {"f": "g", "i": "j"}.items():
        column = table.column(other).cast(POOLS[name][0])
        table = table.set_column(table.column_names.index(name), name, column)
    plain = to_plain_table(table)
    with duckdb.connect() as connection:
        connection.register("t", plain)
        for kind, templates in TEMPLATES.items():
            for template in templates:
                text = write_call(rng, kind, lambda each: rng.choice(COLUMNS[each]), template)
                expr = bound(table, text)
                try:
                    sql = to_duckdb(expr, qualify)
                except UnsupportedError:
                    continue
                answer = connection.sql(f"SELECT CAST({sql} AS {format_duckdb_type(expr.type)}) AS v FROM t")
                wanted = to_typed_column(answer.to_arrow_table().column("v"), expr.type)
                require_same(table, f"{text}\n{sql}", evaluate_text(table, expr), wanted.combine_chunks())
                compared += 1
    assert compared > 60
