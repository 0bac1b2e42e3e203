"""The registries of functions and aggregates: complete, and enough for binder, evaluator and SQL writer."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.cql import Catalog, CqlError, bind_query, bind_script
from penstock.expr import (
    AGGREGATES,
    FUNCTIONS,
    INT,
    NAMED_FUNCTIONS,
    STRING,
    Aggregate,
    Column,
    Function,
    evaluate,
    to_sql,
)
from penstock.expr.type_rules import refuse_call, type_signed
from penstock.ops.aggregate.accumulators import ACCUMULATORS, make_accumulator
from penstock.state import SHIPPED
from penstock.testing.row_aggregates import AGGREGATE_MEANINGS
from penstock.testing.row_evaluator import ARITHMETIC, NULL_AWARE
from penstock.testing.row_functions import ROW_FUNCTIONS, TYPED_ROW_FUNCTIONS


def test_every_aggregate_has_an_accumulator() -> None:
    assert ACCUMULATORS.keys() == AGGREGATES.keys()
    for name in AGGREGATES:
        argument = Column("s", "x", INT)
        count = max(AGGREGATES[name].arity, AGGREGATES[name].required)
        parameters = {"percentile": (0.5, False), "list": ("",), "array": (None,)}.get(AGGREGATES[name].form, ())
        made = make_accumulator(Aggregate(name, (argument,) * count, False, INT, parameters), SHIPPED)
        assert callable(made.apply)
    assert {"count", *AGGREGATE_MEANINGS} == AGGREGATES.keys()


def test_entries_are_found_under_their_names() -> None:
    assert all(entry.name == name for name, entry in FUNCTIONS.items())
    assert all(entry.name == name for name, entry in AGGREGATES.items())
    assert all(entry.mismatch for entry in FUNCTIONS.values() if entry.type_rule is not refuse_call)


@pytest.fixture
def direction() -> Iterator[None]:
    """A function that is one entry of the registry."""
    FUNCTIONS["direction"] = Function(
        "direction",
        lambda _call, _constants: pc.sign,
        type_rule=type_signed,
        mismatch="DIRECTION needs a number, not",
        arity=(1, 1),
    )
    NAMED_FUNCTIONS["direction"] = "direction"
    yield
    del FUNCTIONS["direction"], NAMED_FUNCTIONS["direction"]


def build_catalog() -> Catalog:
    catalog = Catalog()
    bind_script("CREATE STREAM s (ts BIGINT, x BIGINT, name STRING) TIMESTAMP BY ts", catalog)
    return catalog


@pytest.mark.usefixtures("direction")
def test_one_entry_makes_a_function() -> None:
    query = bind_query("SELECT DIRECTION(x) * 2 AS twice FROM s", build_catalog())
    (item,) = query.body.items
    assert to_sql(item.expr) == "direction(s.x) * 2"
    found = evaluate(item.expr, lambda _: pa.array([-3, 0, None, 9]), 4)
    assert found.to_pylist() == [-2, 0, None, 2]


@pytest.mark.usefixtures("direction")
@pytest.mark.parametrize(
    ("call", "condition", "says"),
    [
        ("DIRECTION(name)", "TYPE_MISMATCH", "DIRECTION needs a number, not name (string)"),
        ("DIRECTION(x, x)", "ARGUMENT_COUNT", "DIRECTION takes 1 argument(s), found 2"),
        ("DIRECTIONS(x)", "UNKNOWN_FUNCTION", "unknown function DIRECTIONS"),
    ],
)
def test_errors_of_a_new_function(call: str, condition: str, says: str) -> None:
    with pytest.raises(CqlError, match=condition) as raised:
        bind_query(f"SELECT {call} AS y FROM s", build_catalog())
    assert says in str(raised.value)


def test_every_function_has_a_naive_meaning() -> None:
    known = {*NULL_AWARE, *ARITHMETIC, *ROW_FUNCTIONS, *TYPED_ROW_FUNCTIONS}
    assert set(NAMED_FUNCTIONS.values()) - known == {"hash"}  # has the values of Spark, see test_functions.py


def test_operators_cannot_be_called_by_name() -> None:
    for name in ("neg", "`+`", "is_null"):
        with pytest.raises(CqlError, match="UNKNOWN_FUNCTION"):
            bind_query(f"SELECT {name}(x) AS y FROM s", build_catalog())


def test_type_of_null_argument() -> None:
    (item,) = bind_query("SELECT COALESCE(NULL, name) AS y FROM s", build_catalog()).body.items
    assert item.expr.type == STRING
