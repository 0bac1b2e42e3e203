"""Queries of Nexmark by one pipeline on Spark: answers equal to DuckDB's. All of them are in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.lab.nexmark.answers import ask_duckdb
from penstock.lab.nexmark.events import NexmarkEvents
from penstock.lab.nexmark.queries import QUERIES
from penstock.lab.nexmark.spark_runs import run_on_spark, write_events

EVENTS = NexmarkEvents(2_000, rate=100, seed=7)
SAMPLE = {"q6", "q11"}


@pytest.mark.parametrize(
    "names", [SAMPLE, pytest.param({query.name for query in QUERIES} - SAMPLE, marks=pytest.mark.soak)], ids=len
)
def test_answers_on_spark_equal_duckdb(spark: SparkSession, tmp_path: Path, names: set[str]) -> None:
    queries = [query for query in QUERIES if query.name in names]
    write_events(EVENTS, tmp_path, 2)
    answers, _ = run_on_spark(spark, queries, tmp_path, 2)
    tables = EVENTS.make_tables()
    for query in queries:
        assert answers[query.name] == ask_duckdb(query, tables), query.name
