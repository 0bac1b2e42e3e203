"""Variances, percentiles, ARG_MIN, FIRST, lists, and aggregates that see NULLs."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Catalog, CqlError, bind_query, bind_script
from penstock.expr import Aggregate, to_sql
from penstock.ops.aggregate.exact_sum import ExactSum
from penstock.ops.row_groups import equals_previous, find_change_points

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("s", pa.string())])


def run(items: str, rows: list[tuple[Any, ...]], window: str = "[RANGE 100]", aggregates: Any = None) -> Any:
    """The last row of an aggregate over all rows."""
    engine = ps.Engine(warn=False)
    engine.stream("A", SCHEMA, time="ts")
    for name, cls in (aggregates or {}).items():
        engine.aggregate(name, cls)
    engine.query("q", f"SELECT {items} FROM A {window}")
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    out = engine.push({"A": table}, {"A": rows[-1][0] + 1})["q"]
    return out.drop_columns("_ts").slice(out.num_rows - 1).to_pylist()[0]


def test_variance_of_large_close_values() -> None:
    """The difference of sums would lose all digits in doubles."""
    values = [1e9 + each for each in (4.0, 7.0, 13.0, 16.0)]
    rows = [(1, 0, 1e15, "left"), *((50 + i, 0, value, "") for i, value in enumerate(values))]
    found = run("VARIANCE(v) AS a, VAR_POP(v) AS b, STDDEV(v) AS c, STDDEV_POP(v) AS d", rows, "[RANGE 20]")
    assert found == {"a": 30.0, "b": 22.5, "c": math.sqrt(30), "d": math.sqrt(22.5)}
    tiny = [0.1 + 1e-9 * i for i in range(50)]
    found = run("VAR_POP(v) AS b", [(i, 0, value, "") for i, value in enumerate(tiny)])
    assert found["b"] == pytest.approx(statistics.pvariance(map(Fraction, tiny)), rel=1e-14)


def test_variance_of_one_value_and_of_special_values() -> None:
    assert run("STDDEV(v) AS a, STDDEV_POP(v) AS b", [(1, 0, 7.5, "")]) == {"a": None, "b": 0.0}
    for special in (math.nan, math.inf, 1e200):
        found = run("STDDEV(v) AS a, VAR_POP(v) AS b", [(1, 0, special, ""), (2, 0, 1.0, "")])
        assert all(map(math.isnan, found.values()))
    left = run("STDDEV(v) AS a", [(1, 0, math.nan, ""), (50, 0, 1.0, ""), (51, 0, 3.0, "")], "[RANGE 9]")
    assert left == {"a": math.sqrt(2)}


def test_pairs_of_doubles_have_the_rest_of_a_sum() -> None:
    values = [1e16, 1.0, 1e-3, -1e16, 3e-300, -1.001]
    at = find_change_points(np.zeros(len(values), np.int32), np.arange(len(values)))
    weights = np.ones(len(values), np.int8)
    high, low, _ = ExactSum(pa.float64()).apply_as_pairs(at, weights, pa.array(values), 1)
    for place, pair in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        exact = sum(map(Fraction, values[:place]))
        assert pair[0] == float(exact)
        assert pair[1] == float(exact - Fraction(pair[0]))


def test_percentiles() -> None:
    rows = [(i, 0, value, "") for i, value in enumerate([3.0, 1.0, 2.0, 10.0])]
    names = ("MEDIAN(v)", "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY v)", "PERCENTILE(v, 1)",
             "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY v DESC)", "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY v)",
             "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY v DESC)", "QUANTILE_DISC(v, 0)",
             "MEDIAN(DISTINCT v) FILTER (WHERE v < 10)")  # fmt: skip
    found = run(", ".join(f"{name} AS c{i}" for i, name in enumerate(names)), rows)
    assert list(found.values()) == [2.5, 1.75, 10.0, 4.75, 2.0, 3.0, 1.0, 2.0]


def test_first_last_and_choices() -> None:
    rows = [(1, 0, None, "b"), (1, 0, 5.0, "a"), (2, 0, 5.0, None), (3, 0, 1.0, "z"), (3, 0, 2.0, "y")]
    found = run("FIRST(s) AS a, LAST(s) AS b, FIRST(v) AS c, ARG_MAX(s, v) AS d, MIN_BY(s, v) AS e", rows)
    assert found == {"a": "a", "b": "z", "c": 5.0, "d": "a", "e": "z"}


def test_lists_have_an_order() -> None:
    rows = [(2, 0, 1.0, "c"), (1, 0, None, "b"), (1, 0, 3.0, "a"), (3, 0, 2.0, "a"), (3, 0, 2.0, None)]
    names = ("STRING_AGG(s, ',')", "LISTAGG(s, '-') WITHIN GROUP (ORDER BY v DESC)", "LISTAGG(s)",
             "STRING_AGG(DISTINCT s, ',')", "GROUP_CONCAT(s)", "STRING_AGG(s, ',' ORDER BY v NULLS LAST, s DESC)",
             "STRING_AGG(s, ',') FILTER (WHERE v > 9)")  # fmt: skip
    found = run(", ".join(f"{name} AS c{i}" for i, name in enumerate(names)), rows)
    assert list(found.values()) == ["a,b,c,a", "a-a-c-b", "abca", "a,b,c", "a,b,c,a", "c,a,a,b", None]


def test_arrays_have_an_order() -> None:
    """As in Spark NULLs are left out, and the array of no values is empty."""
    rows = [(2, 0, 1.0, "c"), (1, 0, None, "b"), (1, 0, 3.0, "a"), (3, 0, 2.0, "a"), (3, 0, 2.0, None)]
    names = ("ARRAY_AGG(s)", "COLLECT_LIST(s ORDER BY v DESC NULLS LAST)", "COLLECT_SET(s)", "ARRAY_AGG(DISTINCT v)",
             "ARRAY_AGG(s) FILTER (WHERE v > 9)", "ARRAY_AGG(s)[1]", "CARDINALITY(ARRAY_AGG(v))")  # fmt: skip
    found = run(", ".join(f"{name} AS c{i}" for i, name in enumerate(names)), rows)
    assert list(found.values()) == [
        ["a", "b", "c", "a"], ["a", "a", "c", "b"], ["a", "b", "c"], [1.0, 2.0, 3.0], [], "b", 4
    ]  # fmt: skip


def test_equal_arrays_are_not_written_again() -> None:
    """Arrays are compared by their values: NaN is NaN, and another order or length is another array."""
    nan = math.nan
    values = [[1.0, nan], [1.0, nan], [nan, 1.0], [], [], None, None, [1.0], [1.0, 2.0], [1.0, None], [1.0, None]]
    same = equals_previous(pa.array([[0.0], *values], pa.list_(pa.float64())).slice(1))
    assert same.tolist() == [True, False, False, True, False, True, False, False, False, True]


def test_user_aggregate_that_sees_nulls() -> None:
    class CountRows:
        type, nulls = "bigint", True

        def __init__(self) -> None:
            self.rows: list[Any] = []

        def iterate(self, value: Any) -> None:
            self.rows.append(value)

        def remove(self, value: Any) -> None:
            self.rows.remove(value)

        def terminate(self) -> int:
            return 100 * len(self.rows) + self.rows.count(None)

    rows = [(1, 0, None, ""), (50, 0, None, ""), (51, 0, 2.0, "")]
    assert run("seen(v) AS n", rows, "[RANGE 9]", {"seen": CountRows}) == {"n": 201}


@pytest.mark.parametrize(
    ("item", "condition"),
    [
        ("MEDIAN(s)", "TYPE_MISMATCH"),
        ("STRING_AGG(v, ',')", "TYPE_MISMATCH"),
        ("STRING_AGG(s, s)", "TYPE_MISMATCH"),
        ("PERCENTILE_CONT(1.5) WITHIN GROUP (ORDER BY v)", "BAD_FRACTION"),
        ("PERCENTILE_CONT(v) WITHIN GROUP (ORDER BY v)", "BAD_FRACTION"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v, k)", "ARGUMENT_COUNT"),
        ("PERCENTILE_CONT(v)", "ARGUMENT_COUNT"),
        ("ARG_MIN(v)", "ARGUMENT_COUNT"),
        ("SUM(v ORDER BY k)", "UNSUPPORTED_ORDER_BY_IN_SUM"),
        ("STRING_AGG(DISTINCT s, ',' ORDER BY v)", "ORDER_BY_NOT_SHOWN"),
        ("UPPER(s) WITHIN GROUP (ORDER BY v)", "SYNTAX_ERROR"),
        ("MEDIAN(MAX(v))", "AGGREGATE_NOT_ALLOWED"),
        ("ARRAY_AGG(ARRAY[v])", "TYPE_MISMATCH"),
        ("ARRAY_AGG(v, s)", "ARGUMENT_COUNT"),
        ("COLLECT_SET(s ORDER BY v)", "ORDER_BY_NOT_SHOWN"),
    ],
)
def test_bad_calls_are_refused(item: str, condition: str) -> None:
    with pytest.raises(CqlError) as error:
        bind_query(f"SELECT {item} AS x FROM A", build_catalog())
    assert error.value.condition == condition


def test_rows_without_time_have_no_first() -> None:
    with pytest.raises(CqlError, match="write ARG_MIN"):
        bind_query("SELECT FIRST(n) AS x FROM (SELECT COUNT(*) AS n FROM A GROUP BY k) AS t", build_catalog())


def test_texts_of_aggregates_are_read_again() -> None:
    for item in (
        "percentile_cont(DISTINCT 0.5) WITHIN GROUP (ORDER BY A.v DESC)",
        "string_agg(A.s, '\\'' ORDER BY A.v DESC NULLS LAST, A.k NULLS FIRST)",
        "string_agg(DISTINCT A.s, ',')", "arg_min(A.s, A.v)", "last(A.v)", "array_agg(DISTINCT A.v)",
        "array_agg(A.s ORDER BY A.v DESC NULLS LAST)",
    ):  # fmt: skip
        (shown,) = bind_query(f"SELECT {item} AS x FROM A", build_catalog()).body.items
        assert isinstance(shown.expr, Aggregate)
        assert to_sql(shown.expr) == item


def build_catalog() -> Catalog:
    catalog = Catalog()
    bind_script("CREATE STREAM A (ts BIGINT, k BIGINT, v DOUBLE, s STRING) TIMESTAMP BY ts", catalog)
    return catalog
