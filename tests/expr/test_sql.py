"""SQL text of expressions: precedence, literals and type names, each with its expected text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from penstock.errors import UnsupportedError
from penstock.expr import (
    BOOL,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    Op,
    format_spark_type,
    to_sql,
)

A, B, C = (Column("t", name, INT) for name in "abc")
P, Q, R = (Column("t", name, BOOL) for name in "pqr")


def num(op: Op, *args: Expr) -> Call:
    return Call(op, args, INT)


def truth(op: Op, *args: Expr) -> Call:
    return Call(op, args, BOOL)


def lit(value: Any, kind: pa.DataType = INT) -> Literal:
    return Literal(value, kind)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (num("*", num("+", A, B), C), "(t.a + t.b) * t.c"),
        (num("+", A, num("*", B, C)), "t.a + t.b * t.c"),
        (num("-", num("-", A, B), C), "t.a - t.b - t.c"),
        (num("-", A, num("-", B, C)), "t.a - (t.b - t.c)"),
        (num("%", A, lit(3)), "t.a % 3"),
        (num("/", A, num("*", B, C)), "t.a DIV (t.b * t.c)"),
        (Call("/", (Column("t", "x", DOUBLE), lit(2.0, DOUBLE)), DOUBLE), "t.x / 2.0"),
        (num("neg", A), "-t.a"),
        (num("neg", num("neg", A)), "-(-t.a)"),
        (num("neg", lit(-5)), "-(-5)"),
        (num("neg", num("+", A, B)), "-(t.a + t.b)"),
        (num("-", A, lit(-5)), "t.a - -5"),
        (num("abs", num("-", A, B)), "abs(t.a - t.b)"),
        (truth("<", num("abs", num("-", A, B)), lit(5)), "abs(t.a - t.b) < 5"),
        (truth("=", truth("<", A, B), P), "(t.a < t.b) = t.p"),
        (truth("and", truth("or", P, Q), R), "(t.p OR t.q) AND t.r"),
        (truth("or", truth("and", P, Q), R), "t.p AND t.q OR t.r"),
        (truth("and", P, truth("and", Q, R)), "t.p AND t.q AND t.r"),
        (truth("not", truth("and", P, Q)), "NOT (t.p AND t.q)"),
        (truth("not", truth("=", A, B)), "NOT t.a = t.b"),
        (truth("and", truth("not", P), Q), "NOT t.p AND t.q"),
        (truth("=", truth("not", P), Q), "(NOT t.p) = t.q"),
        (truth("is_null", A), "t.a IS NULL"),
        (truth("not", truth("is_null", num("+", A, B))), "t.a + t.b IS NOT NULL"),
        (truth("is_null", truth("is_null", A)), "(t.a IS NULL) IS NULL"),
        (truth("in", A, lit(1), lit(None)), "t.a IN (1, NULL)"),
        (truth("not", truth("in", A, lit(1))), "t.a NOT IN (1)"),
        (truth("like", Column("t", "s", STRING), lit("a\\%'%", STRING)), "t.s LIKE 'a\\\\%\\'%'"),
        (truth("not", truth("like", Column("t", "s", STRING), lit("_", STRING))), "t.s NOT LIKE '_'"),
        (num("case", P, A, Q, B, C), "CASE WHEN t.p THEN t.a WHEN t.q THEN t.b ELSE t.c END"),
        (num("case", P, A, lit(None)), "CASE WHEN t.p THEN t.a END"),
        (num("coalesce", A, B, lit(0)), "coalesce(t.a, t.b, 0)"),
        (Call("cast", (num("+", A, B),), DOUBLE), "CAST(t.a + t.b AS double)"),
        (Aggregate("count", (), False, INT), "count(*)"),
        (Aggregate("sum", (A,), True, INT), "sum(DISTINCT t.a)"),
        (Column("my t", "a`b", INT), "`my t`.`a``b`"),
        (Column("", "9x", INT), "`9x`"),
        (Column("é", "_ok9", INT), "`é`._ok9"),
    ],
)
def test_text(expr: Expr, text: str) -> None:
    assert to_sql(expr) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, INT, "NULL"),
        (True, BOOL, "TRUE"),
        (False, BOOL, "FALSE"),
        (-(2**63), INT, "-9223372036854775808"),
        (5, pa.int8(), "5"),
        (1.5, DOUBLE, "1.5"),
        (2, DOUBLE, "2.0"),
        (1e20, DOUBLE, "1e+20"),
        (float("nan"), DOUBLE, "CAST('NaN' AS double)"),
        (float("-inf"), DOUBLE, "CAST('-Infinity' AS double)"),
        (1.5, pa.float32(), "CAST(1.5 AS float)"),
        (Decimal("1.50"), pa.decimal128(10, 2), "1.50BD"),
        (Decimal("0.000000001"), pa.decimal128(10, 9), "0.000000001BD"),
        ("it's\n\\", STRING, "'it\\'s\\n\\\\'"),
        (b"\x01\xff", pa.binary(), "X'01FF'"),
        (date(2024, 2, 29), pa.date32(), "DATE '2024-02-29'"),
        (datetime(2024, 2, 29, 12), TIMESTAMP, "TIMESTAMP '2024-02-29 12:00:00'"),
        (datetime(2024, 2, 29, 12, 0, 0, 5), TIMESTAMP, "TIMESTAMP '2024-02-29 12:00:00.000005'"),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), pa.timestamp("us", "UTC"), "TIMESTAMP '2024-02-29 12:00:00 UTC'"),
        (timedelta(seconds=90), INTERVAL, "INTERVAL '90' SECOND"),
        (timedelta(hours=-2), INTERVAL, "INTERVAL '-2' HOUR"),
        (timedelta(0), INTERVAL, "INTERVAL '0' SECOND"),
        (1500, INTERVAL, "INTERVAL '1500' MICROSECOND"),
        (2, pa.duration("s"), "INTERVAL '2' SECOND"),
    ],
)
def test_literals(value: Any, kind: pa.DataType, text: str) -> None:
    assert to_sql(Literal(value, kind)) == text


def test_type_names() -> None:
    names = {
        BOOL: "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        INT: "bigint",
        pa.float32(): "float",
        DOUBLE: "double",
        STRING: "string",
        pa.binary(): "binary",
        pa.date32(): "date",
        TIMESTAMP: "timestamp",
        pa.timestamp("us", "UTC"): "timestamp",
        INTERVAL: "interval day to second",
        pa.decimal128(10, 2): "decimal(10,2)",
        pa.list_(INT): "array<bigint>",
    }
    assert {kind: format_spark_type(kind) for kind in names} == names
    with pytest.raises(UnsupportedError):
        format_spark_type(pa.time64("us"))
    with pytest.raises(UnsupportedError):
        to_sql(Literal([1], pa.list_(INT)))


# The text parses back to the same tree

NUMBERS: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([A, B, C]) | st.integers(-9, 9).map(lit),
    lambda inner: (
        st.builds(num, st.sampled_from(["+", "-", "*", "/", "%"]), inner, inner)
        | st.builds(num, st.sampled_from(["neg", "abs"]), inner)
    ),
    max_leaves=6,
)
TESTS: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from([P, Q, R])
    | st.builds(truth, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS, NUMBERS)
    | st.builds(lambda a: truth("is_null", a), NUMBERS)
    | st.builds(lambda a, b: truth("in", a, b), NUMBERS, NUMBERS),
    lambda inner: (
        st.builds(truth, st.sampled_from(["and", "or", "="]), inner, inner)
        | st.builds(truth, st.sampled_from(["not", "is_null"]), inner)
    ),
    max_leaves=6,
)
PARSED: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.IntDiv: "/", exp.Mod: "%", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<",
    exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "and", exp.Or: "or", exp.Not: "not", exp.Neg: "neg",
    exp.Abs: "abs",
}  # fmt: skip


def parsed(node: Any) -> Any:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Literal):
        return int(node.this)
    if isinstance(node, exp.Is):
        return ("is_null", parsed(node.this))
    if isinstance(node, exp.In):
        return ("in", parsed(node.this), *map(parsed, node.expressions))
    operands = [part for part in (node.this, node.args.get("expression")) if part is not None]
    return flat(PARSED[type(node)], *map(parsed, operands))


def tree(expr: Expr) -> Any:
    if isinstance(expr, Column):
        return expr.name
    if isinstance(expr, Literal):
        value = expr.value
        assert isinstance(value, int)
        return value if value >= 0 else ("neg", -value)
    assert isinstance(expr, Call)
    return flat(expr.op, *map(tree, expr.args))


def flat(op: str, *args: Any) -> Any:
    """AND and OR are associative: their trees differ only in their leaves."""
    if op not in ("and", "or"):
        return (op, *args)
    parts = [arg[1:] if isinstance(arg, tuple) and arg[0] == op else (arg,) for arg in args]
    return (op, *(item for part in parts for item in part))


@pytest.mark.skipif(
    isinstance(sqlglot.parse_one("a + a % a", dialect="spark"), sqlglot.exp.Mod),
    reason="this version of sqlglot reads % as + and -; Penstock's own parser does not",
)
@settings(deadline=None, max_examples=300)
@given(expr=TESTS | NUMBERS)
def test_sql_text_round_trip(expr: Expr) -> None:
    assert parsed(sqlglot.parse_one(to_sql(expr), dialect="spark")) == tree(expr)
