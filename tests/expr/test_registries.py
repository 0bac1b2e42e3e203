"""The registries of functions and aggregates: complete, and enough for binder, evaluator and SQL writer."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.cql import Catalog, CqlError, bind_query, bind_script
from penstock.expr import AGGREGATES, FUNCTIONS, INT, STRING, Aggregate, Column, Function, evaluate, sql_formats, to_sql
from penstock.expr.type_rules import refuse_call, type_signed
from penstock.ops.aggregate.accumulators import ACCUMULATORS, make_accumulator
from penstock.state import SHIPPED


def test_every_aggregate_has_an_accumulator() -> None:
    assert ACCUMULATORS.keys() == AGGREGATES.keys()
    for name in AGGREGATES:
        made = make_accumulator(Aggregate(name, (Column("s", "x", INT),), False, INT), SHIPPED)
        assert callable(made.apply)


def test_entries_are_found_under_their_names() -> None:
    assert all(entry.name == name for name, entry in FUNCTIONS.items())
    assert all(entry.name == name for name, entry in AGGREGATES.items())
    assert all(entry.mismatch for entry in FUNCTIONS.values() if entry.type_rule is not refuse_call)


@pytest.fixture
def sign() -> Iterator[None]:
    """A function that is one entry of the registry."""
    FUNCTIONS["sign"] = Function(
        "sign",
        lambda _call, _constants: pc.sign,
        sql_formats.function("sign"),
        type_signed,
        "SIGN needs a number, not",
        (1, 1),
    )
    yield
    del FUNCTIONS["sign"]


def build_catalog() -> Catalog:
    catalog = Catalog()
    bind_script("CREATE STREAM s (ts BIGINT, x BIGINT, name STRING) TIMESTAMP BY ts", catalog)
    return catalog


@pytest.mark.usefixtures("sign")
def test_one_entry_makes_a_function() -> None:
    query = bind_query("SELECT SIGN(x) * 2 AS twice FROM s", build_catalog())
    (item,) = query.body.items
    assert to_sql(item.expr) == "sign(s.x) * 2"
    found = evaluate(item.expr, lambda _: pa.array([-3, 0, None, 9]), 4)
    assert found.to_pylist() == [-2, 0, None, 2]


@pytest.mark.usefixtures("sign")
@pytest.mark.parametrize(
    ("call", "condition", "says"),
    [
        ("SIGN(name)", "TYPE_MISMATCH", "SIGN needs a number, not name (string)"),
        ("SIGN(x, x)", "ARGUMENT_COUNT", "SIGN takes 1 argument(s), found 2"),
        ("SIGNUM(x)", "UNKNOWN_FUNCTION", "unknown function SIGNUM"),
    ],
)
def test_errors_of_a_new_function(call: str, condition: str, says: str) -> None:
    with pytest.raises(CqlError, match=condition) as raised:
        bind_query(f"SELECT {call} AS y FROM s", build_catalog())
    assert says in str(raised.value)


def test_operators_cannot_be_called_by_name() -> None:
    for name in ("neg", "`+`", "is_null"):
        with pytest.raises(CqlError, match="UNKNOWN_FUNCTION"):
            bind_query(f"SELECT {name}(x) AS y FROM s", build_catalog())


def test_type_of_null_argument() -> None:
    (item,) = bind_query("SELECT COALESCE(NULL, name) AS y FROM s", build_catalog()).body.items
    assert item.expr.type == STRING
