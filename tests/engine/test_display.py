"""Descriptions of queries, streams and tables, and how engines, results and plans look."""

from __future__ import annotations

import base64
import copy
import pickle
import re
from dataclasses import FrozenInstanceError
from datetime import datetime
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from notebook import show_html

import penstock as ps

SCRIPT_TAG = "<script>alert(1)</script>"
PAIRS = "SELECT A.x FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.x = B.x"


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    for name in "AB":
        engine.stream(name, {"ts": "timestamp", "x": "bigint"}, time="ts", lateness="5 seconds")
    engine.table("rooms", {"x": [1, 2], "name": ["hall", SCRIPT_TAG]})
    engine.derive("large", "SELECT x FROM A WHERE x > 10")
    engine.query("pairs", PAIRS)
    return engine


def check_html(html: str) -> None:
    """It is well-formed, has no script and no outside resource, and sets no colour."""
    ET.fromstring(f"<div>{html}</div>")
    assert "<script" not in html
    assert not re.search(r"(?:src|href)=\"(?!data:)", html)
    assert not re.search(r"(?:color|background|fill)\s*:", html)


# ── descriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queries_describes_queries() -> None:
    engine = make_engine()
    assert list(engine.queries) == ["pairs"]
    found = engine.queries["PAIRS"]
    assert (found.name, found.text, found.plan, found.state) == ("pairs", PAIRS, "(A B)", "auto")
    assert found.columns == pa.schema([("x", pa.int64()), ("_ts", pa.timestamp("us"))])
    assert (found.reads, found.since, found.error) == (("A", "B"), None, None)
    with pytest.raises(FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        engine.queries["other"] = found  # type: ignore[index]


def test_queries_follow_changes() -> None:
    engine = make_engine()
    queries = engine.queries
    before = queries["pairs"]
    engine.migrate("pairs", "(B A)")
    engine.policy("pairs", "eager")
    engine.query("more", "SELECT x FROM large")
    assert (queries["pairs"].plan, queries["pairs"].state, list(queries)) == ("(B A)", "eager", ["pairs", "more"])
    assert queries["more"].reads == ("large",)
    assert before.plan == "(A B)"
    engine.drop("pairs")
    assert "pairs" not in queries
    assert queries.get("pairs") is None
    with pytest.raises(KeyError, match="known: more"):
        queries["pairs"]


def test_since_of_query_with_history() -> None:
    engine = make_engine()
    rows = [{"ts": datetime(2026, 1, 1, 0, 0, second), "x": 1} for second in range(0, 50, 5)]
    engine.push({"A": rows, "B": rows})
    engine.query("wide", PAIRS.replace("10 SECONDS", "30 SECONDS"), history=True)
    since = engine.metrics("wide")["complete_since"]
    assert isinstance(since, int)
    assert engine.queries["wide"].since == pa.scalar(since, pa.timestamp("us")).as_py()


def test_failed_query_shows_its_error() -> None:
    class Failing:
        def iterate(self, _value: int) -> None:
            raise ValueError("no")

        def terminate(self) -> float:
            return 0.0

    engine = make_engine()
    engine.aggregate("failing", Failing)
    engine.query("bad", "SELECT failing(x) AS n FROM A")
    with pytest.warns(RuntimeWarning):
        engine.push({"A": [{"ts": datetime(2026, 1, 1), "x": 1}, {"ts": datetime(2026, 1, 2), "x": 1}]})
    assert engine.queries["bad"].error is engine.failures()["bad"]


def test_streams_and_tables() -> None:
    engine = make_engine()
    assert list(engine.streams) == ["A", "B", "large"]
    engine.push({"A": [{"ts": datetime(2026, 1, 1, 0, 0, 10), "x": 50}]})
    found = engine.streams["a"]
    assert (found.time, found.lateness, found.arrived, found.query) == ("ts", 5_000_000, 1, None)
    assert found.frontier == datetime(2026, 1, 1, 0, 0, 5)
    assert (engine.streams["B"].arrived, engine.streams["B"].frontier) == (0, None)
    assert (engine.streams["large"].time, engine.streams["large"].query) == ("_ts", "SELECT x FROM A WHERE x > 10")
    assert (engine.tables["rooms"].rows, engine.tables["rooms"].columns.names) == (2, ["x", "name"])
    engine.flush()
    assert engine.streams["A"].frontier is None


def test_descriptions_inside_a_callback() -> None:
    seen: list[Any] = []
    engine = make_engine()
    engine.subscribe("pairs", lambda _rows: seen.append((engine.queries["pairs"].plan, repr(engine))))
    row = [{"ts": datetime(2026, 1, 1), "x": 1}]
    engine.push({"A": row, "B": row})
    engine.flush()
    assert seen[0][0] == "(A B)"


# ── text and HTML ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_repr_of_engine() -> None:
    assert repr(ps.Engine()) == "<penstock.Engine: no streams>"
    engine = make_engine()
    assert repr(engine) == "<penstock.Engine: 3 streams (A, B, large), 1 table (rooms), 1 query (pairs)>"
    for number in range(9):
        engine.query(f"q{number}", PAIRS)
    assert repr(engine).endswith("10 queries (pairs, q0, q1, q2, q3, …)>")
    assert repr(engine.queries).startswith("queries(pairs, q0")
    assert "columns='x bigint, _ts timestamp'" in repr(engine.queries["pairs"])


def test_repr_of_broken_engine() -> None:
    times = iter([5, 5])
    engine = ps.Engine(clock=lambda: next(times))
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", timestamps="internal")
    with pytest.raises(StopIteration):
        engine.push({"A": [{"x": 1}]})
    with pytest.raises(ps.InternalError):
        engine.push({})
    assert "1 stream (A)" in repr(engine)
    check_html(show_html(engine))


def test_html_escapes_all_texts() -> None:
    engine = ps.Engine()
    engine.stream(SCRIPT_TAG, {"ts": "bigint", SCRIPT_TAG: "string"}, time="ts")
    engine.table(f"{SCRIPT_TAG} t", {SCRIPT_TAG: [SCRIPT_TAG]})
    text = f"SELECT `{SCRIPT_TAG}`, '{SCRIPT_TAG}' AS c FROM `{SCRIPT_TAG}`"
    engine.query(f"{SCRIPT_TAG} q", text)
    out = engine.push({SCRIPT_TAG: [{"ts": 1, SCRIPT_TAG: SCRIPT_TAG}]})
    shown = [
        engine, engine.queries, engine.streams, engine.tables, out, engine.explain(f"{SCRIPT_TAG} q"),
        *engine.queries.values(), *engine.streams.values(), *engine.tables.values(),
    ]  # fmt: skip
    for each in shown:
        html = show_html(each)
        check_html(html)
        if each is not shown[5]:
            assert "&lt;script&gt;" in html


def test_html_is_compact() -> None:
    engine = make_engine()
    for number in range(50):
        engine.query(f"q{number}", f"SELECT x FROM A WHERE x >= {number}")
    times = [datetime(2026, 1, 1, 0, 0, second) for second in range(50)]
    out = engine.push({"A": {"ts": times, "x": list(range(50))}})
    html = show_html(out)
    check_html(html)
    assert html.count("<table") == 19  # pairs has no row, and 20 queries are shown
    assert html.count("<tr>") <= 20 * 21
    assert "31 more queries" in html
    assert "25 more rows" in html
    assert "31 more rows" in show_html(engine)


def test_repr_of_results() -> None:
    engine = make_engine()
    engine.query("all", "SELECT x, x / 0 AS none FROM A")
    times = [datetime(2026, 1, 1, 0, 0, second) for second in range(12)]
    out = engine.push({"A": {"ts": times, "x": list(range(12))}})
    lines = repr(out).splitlines()
    assert lines[:4] == [
        "pairs: 0 rows",
        "all: 7 rows",
        "  x  none  _ts",
        "  0  NULL  2026-01-01 00:00:00",
    ]
    assert repr(engine.flush()).splitlines()[1] == "all: 5 rows"
    assert repr(ps.Engine().push({})) == "no queries"


def test_explain_is_text_with_picture() -> None:
    engine = make_engine()
    plan = engine.explain("pairs")
    assert isinstance(plan, str)
    assert repr(plan) == plan
    assert plan.startswith("pairs: ISTREAM, plan (A B)")
    html = show_html(plan)
    check_html(html)
    encoded = re.search(r"base64,([^\"]+)", html)
    assert encoded is not None
    assert b"join (A B)" in base64.b64decode(encoded[1])
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert show_html(copy.copy(plan)) == html
    assert engine.explain("pairs", "mermaid").startswith("flowchart")
