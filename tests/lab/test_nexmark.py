"""The queries of Nexmark on small data: answers equal to DuckDB's, whatever the size of the pushes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cql import bind_script_text
from penstock.lab.nexmark.answers import ask_duckdb
from penstock.lab.nexmark.events import SCHEMAS, NexmarkEvents
from penstock.lab.nexmark.experiments import run_query
from penstock.lab.nexmark.queries import QUERIES, NexmarkQuery, write_script

EVENTS = NexmarkEvents(3_000, rate=100, seed=7)
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "nexmark.cql"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_answer_equals_duckdb(query: NexmarkQuery) -> None:
    expected = ask_duckdb(query, EVENTS.make_tables())
    assert expected
    answer, _ = run_query(query, EVENTS, push=700)
    assert answer == expected


def test_events_depend_on_the_seed_alone() -> None:
    assert EVENTS.make_tables() == NexmarkEvents(3_000, rate=100, seed=7).make_tables()
    assert sum(table.num_rows for table in EVENTS.make_tables().values()) == EVENTS.count


def test_every_query_is_there() -> None:
    assert [query.name for query in QUERIES] == [f"q{number}" for number in range(23)]


def test_example_has_the_queries_of_the_lab() -> None:
    text = EXAMPLE.read_text()
    assert text == write_script(SCHEMAS)
    assert set(bind_script_text(text, EXAMPLE.name).queries) == {query.name for query in QUERIES}
