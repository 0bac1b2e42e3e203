"""The status of an engine, its picture, its time lines and its metrics."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from page_runs import TRIPLES, build_engine, push

import penstock as ps
from penstock.engine import EngineStatus
from penstock.errors import QueryError
from penstock.web import draw_graph
from penstock.web.graph import FILE, MOST_SINKS, build_graph, shorten_end
from penstock.web.prometheus import format_metrics
from penstock.web.series import list_changes, measure_point
from penstock.web.status_codec import decode_status, encode_figures, encode_status, is_same_structure


def read_after(pushes: int, queries: int = 0) -> EngineStatus:
    engine = build_engine(queries)
    for number in range(pushes):
        push(engine, number)
    return engine.status()


def test_status_counts_what_metrics_count() -> None:
    engine = build_engine()
    for number in range(4):
        push(engine, number)
    status = engine.status()
    assert {each.name: each.emitted for each in status.queries if not each.derived} == {
        name: engine.metrics(name)["emitted"] for name in engine.queries
    }
    assert {each.name: each.arrived for each in status.streams} == {
        name: stream.arrived for name, stream in engine.streams.items()
    }
    assert status.pushes == 4
    assert status.busy > 0


def test_status_does_not_change_results() -> None:
    read, unread = build_engine(20), build_engine(20)
    for number in range(4):
        ticks = {"ts": [number * 3, number * 3 + 1], "k": [1, 2], "v": [7, 8]}
        expected = unread.push({"A": ticks, "B": ticks, "C": ticks})
        found = read.push({"A": ticks, "B": ticks, "C": ticks})
        read.status()
        assert found == expected
    assert read.flush() == unread.flush()


def test_arcs_connect_sources_joins_and_queries() -> None:
    status = read_after(2)
    ids = {each.id for each in status.operators}
    assert all({arc.source, arc.target} <= ids for arc in status.arcs)
    assert all(query.operator in ids for query in status.queries)
    assert any(arc.ets for arc in status.arcs)
    titles = {each.title for each in status.operators if each.kind == "join"}
    assert {"(a b)", "((a b) c)"} <= titles


def test_incomplete_state_after_migration() -> None:
    engine = ps.Engine(state="lazy", warn=False)
    for name in ("A", "B", "C"):
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.query("triples", TRIPLES, plan="((a b) c)")
    rows = {"ts": list(range(40)), "k": [tick % 5 for tick in range(40)]}
    engine.push({"A": rows, "B": rows, "C": rows})
    before = engine.status()
    engine.migrate("triples", "(a (b c))")
    after = engine.status()
    node = next(each for each in after.operators if each.title == "(b c)")
    assert node.complete is not None
    assert node.complete < 1
    [event] = list_changes(before, after, 1.0)
    assert (event.kind, event.before, event.after) == ("plan", "((a b) c)", "(a (b c))")
    assert not is_same_structure(before, after)


def test_picture_is_one_graph_with_all_queries() -> None:
    picture = ET.fromstring(draw_graph(read_after(1), {"pairs": "parquet"}))
    texts = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"A", "B", "C", "large", "pairs", "→ parquet", "triples", "counts"} <= texts
    assert {path.get("class") for path in picture.iter("{http://www.w3.org/2000/svg}path")} >= {"ets"}


def test_sources_say_where_rows_come_from() -> None:
    script = """
        CREATE STREAM A (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM csv OPTIONS (path 'folders/of/readings/A');
        CREATE STREAM B (ts BIGINT, k BIGINT) TIMESTAMP BY ts;
        CREATE SINK found TO csv OPTIONS (path 'x');
        INSERT INTO found SELECT a.k FROM A [RANGE 5] AS a, B [RANGE 5] AS b WHERE a.k = b.k;"""
    status = ps.Engine.from_script(script).status()
    boxes = {box.title: box.notes for box in build_graph(status, limits=FILE).boxes if box.kind == "source"}
    assert boxes == {"A": ("← csv folders/of/readings/A",), "B": ()}
    assert decode_status(encode_status(status)) == status


def test_many_sinks_are_one_box() -> None:
    graph = build_graph(read_after(1, queries=300))
    assert len(graph.boxes) < 60
    [box] = [box for box in graph.boxes if box.count > MOST_SINKS and box.kind == "query"]
    assert box.count >= 300


def test_file_has_every_operator_of_many() -> None:
    engine = build_engine()
    for number in range(30):
        engine.query(f"more{number}", f"SELECT DISTINCT v FROM A [ROWS {number + 2}] WHERE v > {number}")
    status = engine.status()
    assert len(status.operators) > 60
    assert "over the same streams" not in draw_graph(status)
    assert len(build_graph(status, limits=FILE).boxes) > len(status.operators) > len(build_graph(status).boxes)


def test_views_and_derived_streams_are_no_queries() -> None:
    engine = ps.Engine()
    engine.stream("a", {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.derive("warm", "SELECT k FROM a [NOW] WHERE k > 3")
    engine.view("totals", "SELECT k, COUNT(*) AS n FROM warm [RANGE 9] GROUP BY k")
    engine.query("most", "SELECT MAX(n) AS n FROM totals")
    assert [box.title for box in build_graph(engine.status()).boxes if box.kind == "query"] == ["most"]
    svg = draw_graph(engine.status())
    assert "derived stream" in svg
    assert ">view</text>" in svg


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("parquet out/alarms", "parquet out/alarms"),
        ("parquet files in out/cold_chain/warm_goods", "parquet files in …/warm_goods"),
        ("/a/folder/with/a/very/long/path/alarms/", "…/alarms"),
    ],
)
def test_long_paths_of_sinks_are_short(text: str, shown: str) -> None:
    assert shorten_end(text) == shown


def test_many_joins_are_collapsed_by_streams() -> None:
    engine = ps.Engine(share=False, warn=False)
    for name in ("A", "B", "C"):
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    for number in range(100):
        other = "B" if number % 2 else "C"
        engine.query(f"q{number}", f"SELECT A.k FROM A [RANGE 5], {other} [RANGE 5] WHERE A.k = {other}.k")
    graph = build_graph(engine.status())
    assert sorted(box.title for box in graph.boxes if box.kind == "group") == ["50 operators", "50 operators"]
    assert len(graph.boxes) == 3 + 2 + 2
    alone = build_graph(engine.status(), "q1")
    assert sorted(box.title for box in alone.boxes) == ["(A B)", "A", "B", "q1"]
    with pytest.raises(QueryError, match="UNKNOWN_QUERY"):
        build_graph(engine.status(), "q100")


def test_point_between_two_statuses() -> None:
    engine = build_engine()
    before = engine.status()
    push(engine, 0)
    push(engine, 1)
    point = measure_point(before, engine.status(), 2.0, 100.0)
    assert point.rows_in == 60.0
    assert point.results > 0
    assert point.lags == {"A": 0.0, "B": 0.0, "C": 20.0}
    assert point.completeness == point.freshness == 1.0
    assert measure_point(before, before, 0.0, 100.0).latency is None


def test_status_as_plain_values() -> None:
    status = read_after(2, queries=5)
    assert decode_status(encode_status(status)) == status
    figures = encode_figures(status)
    assert len(figures["operators"]) == len(status.operators)
    assert list(figures["queries"]) == [each.emitted for each in status.queries]


def test_metrics_are_prometheus_text() -> None:
    engine = build_engine()
    engine.query('odd "name"\\', "SELECT k FROM A")
    push(engine, 0)
    lines = format_metrics(engine.status()).splitlines()
    assert 'penstock_stream_rows_total{stream="A"} 20' in lines
    assert 'penstock_query_results_total{query="odd \\"name\\"\\\\"} 20' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert all(line.startswith("#") or line.split("{")[0].split()[0] in families for line in lines)
