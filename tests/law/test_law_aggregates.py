"""The law for all aggregates, against both oracles: windows, joins, FILTER, HAVING, policies, batches and restarts.

More seeds: PENSTOCK_SEEDS=300 pytest tests/law/test_law_aggregates.py
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from aggregate_queries import ROWS, SCHEMA, make_rows, write_query
from law_support import BATCHES, STATES, make_engine

import penstock as ps
from penstock.errors import UnsupportedError
from penstock.testing import expected, expected_by_duckdb

FIRST, SEEDS = int(os.environ.get("PENSTOCK_FIRST_SEED", "0")), int(os.environ.get("PENSTOCK_SEEDS", "10"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_aggregates_equal_oracles(seed: int) -> None:
    chance = random.Random(seed)
    streams = {"A": make_rows(chance, ROWS), "B": make_rows(chance, ROWS // 2)}
    text = write_query(chance)
    engine = make_engine(state=chance.choice(STATES), batch=chance.choice(BATCHES), warn=False)
    for name in streams:
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", text)
    found, step = [], chance.choice([3, 10, ROWS])
    for start in range(0, ROWS, step):
        found += engine.push({name: table.slice(start, step) for name, table in streams.items()})["q"].to_pylist()
        if chance.random() < 0.4:
            engine = ps.Engine.restore(engine.snapshot())
    found += engine.flush()["q"].to_pylist()
    wanted = Counter(map(str, expected(text, streams).to_pylist()))
    assert Counter(map(str, found)) == wanted, text
    try:
        answer = expected_by_duckdb(text, streams)
    except UnsupportedError:  # variances and percentiles of distinct values
        return
    assert Counter(map(str, answer.to_pylist())) == wanted, text
