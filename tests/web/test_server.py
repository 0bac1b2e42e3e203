"""The server of the page: who may read and change, what a page gets, and bad input."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from page_runs import PAIRS, build_engine, control, fetch, keep_pushing, push, read_events
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError, QueryError, ResourceError
from penstock.web import serve_folder
from penstock.web.app import describe_error
from penstock.web.monitor import PageMonitor
from penstock.web.sources import RECORD_FILE, EngineSource


def test_page_and_headers() -> None:
    with build_engine().serve() as server:
        status, text, headers = fetch(server.address)
        assert status == 200
        assert "<title>Penstock</title>" in text
        assert "default-src 'none'" in headers["content-security-policy"]
        for name in ("main.js", "graph.js", "charts.js", "controls.js", "queries.js", "format.js", "page.css"):
            assert fetch(f"{server.address}static/{name}")[0] == 200
        assert fetch(f"{server.address}static/vendor/uPlot.esm.js")[0] == 200
        assert fetch(f"{server.address}static/../server.py")[0] == 404
        assert "penstock_pushes_total" in fetch(f"{server.address}metrics")[1]


def test_foreign_hosts_and_origins_are_refused() -> None:
    with build_engine().serve() as server:
        assert "FOREIGN_HOST" in fetch(server.address, Host=f"example.com:{server.port}")[1]
        for path in ("", "api/events", "metrics", "api/query?name=pairs"):
            status, text, _ = fetch(f"{server.address}{path}", Origin="http://evil.example")
            assert (status, "FOREIGN_ORIGIN" in text) == (403, True)
        assert fetch(server.address, Origin=server.address.rstrip("/"))[0] == 200


def test_controls_need_the_token() -> None:
    engine = build_engine()
    with engine.serve() as server:
        answer = control(server, "drop", token="guess", name="pairs")
        assert answer["error"]["condition"] == "WRONG_TOKEN"
        assert "pairs" in engine.queries
        assert control(server, "drop", name="pairs") == {"done": "drop"}
        assert "pairs" not in engine.queries


def test_controls_change_the_engine() -> None:
    engine = build_engine()
    push(engine, 0)
    with engine.serve() as server:
        control(server, "add-one", name="more", text=PAIRS, sink="memory")
        control(server, "alter", name="more", text=PAIRS.replace("50", "60"))
        control(server, "migrate", name="triples", plan="(a (b c))")
        control(server, "policy", name="triples", state="eager")
        control(server, "schedule", strategy="bfs")
        events = [event["kind"] for _, data in read_events(server, 2) for event in data.get("events", ())]
    assert "RANGE 60" in engine.queries["more"].text
    assert engine.queries["triples"].plan == "(a (b c))"
    assert events == ["added", "altered", "plan"]


def test_cql_error_has_its_place() -> None:
    with build_engine().serve() as server:
        error = control(server, "add-one", name="wrong", text="SELECT a.k,\n a.vv FROM A AS a", sink="memory")["error"]
    assert (error["condition"], error["line"], error["column"], error["width"]) == ("UNKNOWN_COLUMN", 2, 2, 4)
    assert "^" not in error["message"]
    assert describe_error(QueryError("OTHER", "no place"))["line"] is None


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"do": "explode"}', b'{"do": "drop", "arguments": {"name": 1}}', b'{"do": "status"}']
)
def test_malformed_controls(body: bytes) -> None:
    engine = build_engine()
    with engine.serve() as server:
        entry = json.loads(body) if body != b"{" else body
        arguments = entry.get("arguments", {}) if isinstance(entry, dict) else {}
        do = entry.get("do", "") if isinstance(entry, dict) else ""
        assert "error" in control(server, do, **arguments)
    assert "pairs" in engine.queries


def test_page_of_unknown_query() -> None:
    with build_engine().serve() as server:
        for path in ("api/query?name=nothing", "api/graph?query=nothing", "api/query", "api/graph"):
            status, text, _ = fetch(f"{server.address}{path}")
            assert (status, json.loads(text)["error"]["condition"]) == (400, "UNKNOWN_QUERY")


def test_details_show_latest_results() -> None:
    engine = build_engine()
    with engine.serve() as server:
        assert json.loads(fetch(f"{server.address}api/query?name=pairs")[1])["latest"] is None
        push(engine, 0)
        push(engine, 1)
        found = json.loads(fetch(f"{server.address}api/query?name=pairs")[1])
    assert found["latest"]["columns"] == ["k", "v", "_ts"]
    assert found["text"] == PAIRS
    assert found["explain"].startswith("pairs: ISTREAM")


def test_used_port_and_bad_arguments() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ResourceError, match="PORT_IN_USE"):
            build_engine().serve(taken.getsockname()[1])
    with pytest.raises(ResourceError, match="BAD_PORT"):
        build_engine().serve(70_000)
    with pytest.raises(ResourceError, match="BAD_INTERVAL"):
        build_engine().serve(interval=0)


def test_port_is_free_after_close() -> None:
    server = build_engine().serve()
    server.close()
    with build_engine().serve(server.port) as again:
        assert again.port == server.port


def test_pushes_continue_while_a_page_reads() -> None:
    engine = build_engine()
    with engine.serve(interval=0.01) as server, keep_pushing(engine, pause=0.001):
        first = read_events(server, 4)
    counts = [data["queries"] for name, data in first if name == "sample"]
    assert counts


def test_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="NO_RUN_RECORD"):
        serve_folder(str(tmp_path))
    (tmp_path / RECORD_FILE).write_text("{}")
    with pytest.raises(QueryError, match="BAD_RUN_RECORD"):
        serve_folder(str(tmp_path))
    result = CliRunner().invoke(app, ["ui", str(tmp_path / "nothing")])
    assert result.exit_code == 2
    assert "NO_RUN_RECORD" in result.output


def test_record_is_shown_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.monitor.LEAST_SPAN", 0)
    engine = build_engine()
    monitor = PageMonitor(EngineSource(engine), 60, (tmp_path / RECORD_FILE).write_bytes)
    monitor.start()
    for number in range(3):
        push(engine, number)
        monitor.read_now()
    engine.migrate("triples", "(a (b c))")
    monitor.read_now()
    monitor.close()
    with serve_folder(str(tmp_path)) as server:
        events = dict(read_events(server, 3))
        assert [event["kind"] for event in events["history"]["events"]] == ["plan"]
        assert len(events["history"]["points"]) == 5
        assert events["structure"]["kind"] == "folder"
        described = json.loads(fetch(f"{server.address}api/query?name=triples")[1])
        results = f"{engine.metrics('triples')['emitted']:,}"
        assert described["explain"] == f"plan: (a (b c))\nstate: auto\nresults: {results}"
        error = control(server, "drop", name="pairs")["error"]
        assert error["condition"] == "NO_CHECKPOINT"


def test_reading_just_after_another_makes_no_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of one push in a millisecond would be a rate of millions."""
    monkeypatch.setattr("penstock.web.monitor.LEAST_SPAN", 100)
    engine = build_engine()
    monitor = PageMonitor(EngineSource(engine), 1000)
    monitor.read_now()
    push(engine, 0)
    monitor.read_now()
    assert json.loads(monitor.build_record())["points"][-1]["rows_in"] == 0
    monkeypatch.setattr("penstock.web.monitor.LEAST_SPAN", 0)
    monitor.read_now()
    assert json.loads(monitor.build_record())["points"][-1]["rows_in"] > 0


def test_demo_port_needs_ui() -> None:
    result = CliRunner().invoke(app, ["demo", "8080"])
    assert result.exit_code == 2
    assert "add --ui" in result.output


def test_broken_engine_is_a_problem_of_the_page() -> None:
    engine = build_engine()
    with engine.serve(interval=0.02) as server:
        with engine:
            pass
        end = time.monotonic() + 60  # on a busy machine readings are far apart
        while server.monitor.problem is None and time.monotonic() < end:
            time.sleep(0.02)
        assert "ENGINE_CLOSED" in str(server.monitor.problem)
        with pytest.raises(PenstockError):
            engine.status()
