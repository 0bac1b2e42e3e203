"""The queries of TPC-H on small data: answers equal to DuckDB's at the end and at instants in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cql import bind_script_text
from penstock.lab.tpch.experiments import ask_duckdb, choose_instants, read_answer, run_query
from penstock.lab.tpch.queries import QUERIES, TpchQuery, write_script
from penstock.lab.tpch.rows import SCHEMAS, TpchRows

ROWS = TpchRows(600)
TABLES = ROWS.make_tables()
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "tpch.cql"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_answer_equals_duckdb(query: TpchQuery) -> None:
    changes, _ = run_query(query, ROWS, pushes=7)
    for instant in choose_instants(ROWS):
        expected = ask_duckdb(query, TABLES, instant, changes.schema)
        assert read_answer(changes, instant) == expected
    assert expected


def test_size_of_pushes_does_not_matter() -> None:
    query, rows = next(each for each in QUERIES if each.name == "q21"), TpchRows(100, seed=3)
    whole, parts = run_query(query, rows, pushes=1)[0], run_query(query, rows, pushes=50)[0]
    assert all(read_answer(whole, each) == read_answer(parts, each) for each in choose_instants(rows))


def test_rows_depend_on_the_seed_alone() -> None:
    assert TpchRows(600).make_tables() == TABLES
    assert TpchRows(600, seed=2).make_tables() != TABLES
    pushed = sum(table.num_rows for push in ROWS.make_pushes(7) for table in push.values())
    assert pushed == sum(table.num_rows for table in TABLES.values())


def test_all_queries_are_there() -> None:
    assert [query.name for query in QUERIES] == [f"q{number}" for number in range(1, 23)]


def test_example_has_the_queries_of_the_lab() -> None:
    text = EXAMPLE.read_text()
    assert text == write_script(SCHEMAS)
    assert set(bind_script_text(text, EXAMPLE.name).queries) == {"revenue", *(query.name for query in QUERIES)}
