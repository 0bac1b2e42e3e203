"""The forecast of results: exact where it is made, and a push that would not fit changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ResourceError
from tests.support.inspect_engine import forecast_results

COLUMNS = {"ts": "bigint", "k": "string", "x": "bigint"}
STAR = """
    SELECT A.x AS a, B.x AS b, C.x AS c FROM A [RANGE 20], B [RANGE 30], C [RANGE 10]
    WHERE A.k = B.k AND B.k = C.k AND B.x < 80
"""

COUNTED_FROM = pa.default_memory_pool()
COUNTED = pa.proxy_memory_pool(COUNTED_FROM)


def make_engine(text: str, **options: Any) -> ps.Engine:
    engine = ps.Engine(warn=False, **options)
    for name in "ABC":
        engine.stream(name, COLUMNS, time="ts", lateness=3 if name == "C" else 0)
    engine.query("q", text)
    return engine


def make_push(rng: np.random.Generator, begin: int, rows: int = 30) -> dict[str, pa.Table]:
    """Tables of random sizes; rows of a push may be late, or may have to wait for other streams."""
    data = {}
    for name in "ABC":
        count = int(rng.integers(0, rows))
        times = begin + np.sort(rng.integers(-4, 12, count))
        keys = [None if key == 4 else f"k{key}" for key in rng.integers(0, 5, count)]
        data[name] = pa.table({"ts": times, "k": pa.array(keys, pa.string()), "x": rng.integers(0, 100, count)})
    return data


@pytest.mark.parametrize("seed", range(12))
def test_forecast_is_number_of_results(seed: int) -> None:
    engine, rng = make_engine(STAR, state="none"), np.random.default_rng(seed)
    results = 0
    for push in range(8):
        data = make_push(rng, 8 * push)
        expected = forecast_results(engine, data, width=3, room=-1)
        found = engine.push(data)["q"].num_rows
        assert found == expected
        results += found
    assert results > 0


@pytest.mark.parametrize("seed", range(4))
def test_bound_is_not_below_results(seed: int) -> None:
    """While the bound by the largest numbers of rows with one key fits, no row is counted."""
    engine, rng = make_engine(STAR, state="none"), np.random.default_rng(seed)
    for push in range(12):
        data = make_push(rng, 3 * push, rows=8)
        bound = forecast_results(engine, data, width=3, room=1e12)
        assert engine.push(data)["q"].num_rows <= bound


def test_streams_without_new_rows_are_counted() -> None:
    """Rows that wait for another stream count in the push that lets the join read them."""
    engine = make_engine(STAR, state="none")
    row = {"ts": [4, 9], "k": ["a", "a"], "x": [1, 2]}
    for data, results in (({"A": row, "B": row}, 0), ({"C": {**row, "ts": [4, 12]}}, 4), ({}, 0)):
        forecast = forecast_results(engine, data, width=3, room=-1)
        assert engine.push(data)["q"].num_rows == results == forecast


def test_only_keys_and_filters_are_copied() -> None:
    """The forecast copied every column of a push, in order of time."""
    engine = ps.Engine(memory="1 GB", warn=False)
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "k": "bigint", "note": "string"}, time="ts")
    engine.query("q", "SELECT A.note FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    rows = pa.table({"ts": range(1000), "k": range(1000), "note": ["x" * 1000] * 1000})
    pa.set_memory_pool(COUNTED)
    try:
        assert forecast_results(engine, dict.fromkeys("AB", rows), width=2, room=-1) > 0
    finally:
        pa.set_memory_pool(COUNTED_FROM)
    assert 2 * rows.nbytes < COUNTED.max_memory() < 3 * rows.nbytes  # before the forecast, pushed rows are copied once


def test_hot_key_is_refused_before_anything_changes() -> None:
    """The engine goes on as if the push had not been tried, with or without states."""
    for state in ("eager", "none"):
        limited, free = make_engine(STAR, memory="4 MB", state=state), make_engine(STAR, state=state)
        hot = {name: {"ts": [8] * 80 + [12], "k": ["hot"] * 81, "x": [1] * 81} for name in "ABC"}
        for step in range(3):
            small = {name: {"ts": [step], "k": ["hot"], "x": [step]} for name in "ABC"}
            assert limited.push(small)["q"].equals(free.push(small)["q"])
        with pytest.raises(ResourceError, match=r"MEMORY_LIMIT.*most of it for results.*subscribe"):
            limited.push(hot)
        after = {name: {"ts": [20], "k": ["hot"], "x": [4]} for name in "ABC"}
        assert limited.push(after)["q"].equals(free.push(after)["q"])
        assert limited.flush()["q"].equals(free.flush()["q"])


def test_hot_key_with_function_is_not_refused() -> None:
    engine = make_engine(STAR, memory="4 MB")
    found: list[int] = []
    hot = {name: {"ts": [5] * 80, "k": ["hot"] * 80, "x": [1] * 80} for name in "ABC"}
    with engine.subscribe("q", lambda rows: found.append(rows.num_rows)):
        engine.push(hot)
        engine.flush()
    assert sum(found) == 80**3
