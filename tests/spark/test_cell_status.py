"""The descriptions of cells for the page, and how the page adds them up."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from cell_support import Cluster
from page_runs import build_engine, push

from penstock.cql import Stream
from penstock.display import format_rows
from penstock.spark.driver.cell_reports import CellReports
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import METRICS
from penstock.testing import Push
from penstock.web.run_source import merge_cells, merge_latest, merge_slices


class Described:
    """A configuration whose queries have names only."""

    def __init__(self, *names: str) -> None:
        self.queries = [type("Query", (), {"name": name}) for name in names]


def describe(pushes: int, names: tuple[str, ...] = ("pairs",)) -> dict[str, Any]:
    """The description of a cell whose engine got some pushes; all of `names` read a node of the join of triples."""
    engine = build_engine()
    for name in names[1:]:
        engine.query(name, engine.queries["pairs"].text)
    for number in range(pushes):
        push(engine, number)
    status = engine.status()
    return {
        "operators": [vars(each) for each in status.operators if each.kind != "source"],
        "arcs": [vars(each) for each in status.arcs],
        "queries": [
            {key: getattr(each, key) for key in ("name", "plan", "state", "operator", "derived")}
            for each in status.queries
        ],
        "slices": {"pairs": format_rows(engine.slices("pairs"), numbers=True)},
        "latest": {},
    }


def test_figures_of_cells_are_added_up() -> None:
    one, other = describe(1), describe(3)
    merged = merge_cells(Described("pairs", "triples", "large", "counts"), [one, other], {"A": 80, "B": 7, "C": 0})
    by_id = {each.id: each for each in merged.operators}
    for first, second in zip(one["operators"], other["operators"], strict=True):
        assert by_id[first["id"]].rows_out == first["rows_out"] + second["rows_out"]
        assert by_id[first["id"]].state_rows == first["state_rows"] + second["state_rows"]
    assert by_id["source A"].rows_out == 80
    assert {arc.source for arc in merged.arcs} | {arc.target for arc in merged.arcs} <= set(by_id) | {"source large"}


def test_state_is_as_complete_as_in_the_worst_cell() -> None:
    one, other = describe(1), describe(1)
    node = next(each for each in other["operators"] if each["title"] == "(a b)" and each["complete"] is not None)
    node |= {"complete": 0.25, "demanded": 0.5, "rows_out": 10, "suppressed": 10}
    merged = merge_cells(Described("pairs"), [one, other], {})
    found = next(each for each in merged.operators if each.id == node["id"])
    assert found.complete == 0.25
    assert found.demanded == found.rows_out / (found.rows_out + 10)


def test_cell_with_other_queries_does_not_count() -> None:
    """A cell that has not described itself since a query was added."""
    old, new = describe(1), describe(1, ("pairs", "more"))
    merged = merge_cells(Described("pairs", "triples", "large", "counts", "more"), [old, new], {})
    assert "more" in [query.name for query in merged.queries]
    join = next(each for each in merged.operators if each.id == "triples: join (a b)")
    assert join.rows_out == next(each["rows_out"] for each in new["operators"] if each["id"] == join.id)


def test_slices_of_cells_are_added_up() -> None:
    one, other = describe(2, ("pairs", "more")), describe(3, ("pairs", "more"))
    found = merge_slices([one, other], "more")
    assert found is not None
    place = found["columns"].index("results")
    both = zip(one["slices"]["pairs"]["rows"], other["slices"]["pairs"]["rows"], strict=True)
    expected = [first[place] + second[place] for first, second in both]
    assert [int(row[place]) for row in found["rows"]] == expected
    assert merge_slices([one, other], "counts") is None


def test_latest_rows_of_cells_stand_together() -> None:
    assert merge_latest([]) is None
    rows = {"columns": ["k"], "rows": [["1"]]}
    assert merge_latest([rows, {"columns": ["k"], "rows": [["2"]]}]) == {"columns": ["k"], "rows": [["1"], ["2"]]}


def test_long_lists_are_cut() -> None:
    table = pa.table({"names": pa.array([[f"q{number}" for number in range(1000)]])})
    assert format_rows(table)["rows"] == [["q0, q1, q2, q3, q4 and 995 more"]]


def make_report(rows: dict[str, Any]) -> dict[str, Any]:
    """The part of a cell's report that has the newest rows of queries."""
    return {"failures": {}, "heard": [], "rows": {}, "tops": {}, "status": {"latest": rows}}


def test_latest_rows_of_a_replaced_query_are_forgotten() -> None:
    """Rows of an earlier query of the same name have other columns."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    streams = (Stream("A", schema, "ts"),)

    def make_layout(text: str, since: int) -> Layout:
        return Layout(PipelineSpec(streams, {}, (QuerySpec("q", text, since=since),), 2))

    reports = CellReports(["A"])
    old, new = make_layout("SELECT k FROM A", 0), make_layout("SELECT ts, k FROM A", 1)
    known, other = {"columns": ["k"], "rows": [["7"]]}, {"columns": ["ts", "k"], "rows": [["1", "2"]]}
    reports.add(old, 0, {0: make_report({"q": known}), 1: make_report({"q": known})}, {})
    assert reports.get_latest("q") == [known, known]
    reports.add(new, 1, {0: make_report({}), 1: make_report({"q": other})}, {})
    assert reports.get_latest("q") == [other]


def test_cell_forgets_latest_rows_of_a_replaced_query() -> None:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    cluster = Cluster(
        PipelineSpec((Stream("A", schema, "ts"),), {}, tuple(QuerySpec(name, "SELECT k FROM A") for name in "qp"), 1)
    )

    def report(at: int) -> Any:
        out = cluster.push(Push({"A": pa.table({"ts": [at], "k": [at]}, schema=schema)}))
        (found,) = (json.loads(data)["status"] for _, kind, _, _, data in out if kind == METRICS)
        return found and found["latest"]

    assert report(1) is not None
    report(2)
    report(3)  # its rows are kept for the next description
    spec = cluster.layout.spec
    config = spec.config.drop_query("q").add_query(
        "q", "SELECT ts, k FROM A WHERE k > 100", None, None, since=1, derived=False
    )
    cluster.layout = Layout(spec.with_config(config))
    found = report(4)
    assert list(found) == ["p"]
    assert cluster.cache_outcomes[-1] == "hit"
