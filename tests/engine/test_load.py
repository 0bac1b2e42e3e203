"""`Engine.load`: tuples whose results are known are stored, and joins build nothing until it is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps
from penstock.testing import Case, Push, another_query, difference, random_case
from penstock.testing.runner import declare

STREAMS = "ABCDE"
FIVE_WAY = (
    "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d, E.v AS e FROM "
    + ", ".join(f"{name} [RANGE 1000]" for name in STREAMS)
    + " WHERE A.x = B.x AND B.x = C.x AND C.x = D.x AND D.x = E.x"
)


def make_engine(queries: dict[str, str], state: str = "auto") -> ps.Engine:
    engine = ps.Engine(state=state)
    for name in STREAMS:
        engine.stream(name, {"ts": "bigint", "x": "bigint", "v": "bigint"}, time="ts")
    for name, text in queries.items():
        engine.query(name, text)
    return engine


def make_rows(count: int, first: int = 0, keys: int = 1) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"ts": numbers, "x": [number % keys for number in numbers], "v": numbers})


@pytest.mark.parametrize("state", ["auto", "lazy", "jit", "none"])
def test_five_way_join_builds_no_row(state: str) -> None:
    """Joining the tuples would give 777 million results: 60 of each stream have the same key."""
    engine = make_engine({"q": FIVE_WAY}, state)
    rows = {name: make_rows(60) for name in STREAMS}
    engine.load(rows, dict.fromkeys(STREAMS, 60))
    metrics = engine.metrics("q")
    assert sum(metrics["built"].values()) == 0  # type: ignore[attr-defined]
    assert sum(metrics["probes"].values()) == 0  # type: ignore[attr-defined]
    assert sum(metrics["window_rows"].values()) == 300  # type: ignore[attr-defined]


def test_later_results_use_loaded_tuples() -> None:
    engine, other = make_engine({"q": FIVE_WAY}), make_engine({"q": FIVE_WAY})
    rows = {name: make_rows(40, keys=20) for name in STREAMS}
    engine.load(rows, dict.fromkeys(STREAMS, 40))
    other.push(rows, dict.fromkeys(STREAMS, 40))
    later = {name: make_rows(7, first=40, keys=20) for name in STREAMS}
    found, wanted = engine.push(later)["q"], other.push(later)["q"]
    assert wanted.num_rows
    assert difference(found, wanted) is None
    assert difference(engine.flush()["q"], other.flush()["q"]) is None


def test_state_of_other_operators_is_built() -> None:
    """Aggregates and derived streams need the rows of their joins at once."""
    queries = {"count": "SELECT A.x, COUNT(*) AS n FROM A [RANGE 50], B [RANGE 50] WHERE A.x = B.x GROUP BY A.x"}
    engine, other = make_engine(queries), make_engine(queries)
    rows = {name: make_rows(40, keys=4) for name in "AB"}
    engine.load(rows, dict.fromkeys("AB", 40))
    other.push(rows, dict.fromkeys("AB", 40))
    later = {name: make_rows(9, first=40, keys=4) for name in "AB"}
    found, wanted = engine.push(later)["count"], other.push(later)["count"]
    assert wanted.num_rows
    assert difference(found, wanted) is None


def test_bad_load_changes_nothing() -> None:
    engine = make_engine({"q": FIVE_WAY})
    with pytest.raises(ps.DataError):
        engine.load({"A": make_rows(3), "nowhere": make_rows(3)})
    assert sum(engine.metrics("q")["window_rows"].values()) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunk", range(0, 60, 20))
def test_law_of_loaded_engines(chunk: int) -> None:
    """Random queries: an engine that loaded the first pushes gives the results of one that processed them."""
    for seed in range(chunk, chunk + 20):
        case = random_case(seed, limit=1000, full=True, late=False)
        queries = {"q": case.query, "other": another_query(case, seed)}
        pushes = [step for step in case.steps if isinstance(step, Push)]
        cut = len(pushes) // 2
        loaded, pushed = _declare(case, queries), _declare(case, queries)
        for push in pushes[:cut]:
            loaded.load(dict(push.batches))
            pushed.push(dict(push.batches))
        for push in pushes[cut:]:
            _compare(seed, loaded.push(dict(push.batches)), pushed.push(dict(push.batches)))
        _compare(seed, loaded.flush(), pushed.flush())


def _declare(case: Case, queries: dict[str, str]) -> ps.Engine:
    engine = ps.Engine()
    declare(engine, case)
    for name, text in queries.items():
        engine.query(name, text)
    return engine


def _compare(seed: int, found: object, wanted: object) -> None:
    for name in ("q", "other"):
        fault = difference(found[name], wanted[name])  # type: ignore[index]
        assert fault is None, f"seed {seed}, {name}: {fault}"
