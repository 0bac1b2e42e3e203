"""The page of a run: figures of its cells, controls in its micro-batches, and the folder after its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from notebook import show_html
from page_runs import control, fetch, read_events
from spark_support import read_stream, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.web import serve_folder

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
PAIRS = "SELECT a.k FROM a [RANGE 20] AS a, b [RANGE 20] AS b WHERE a.k = b.k"


def write_rows(folder: Path, number: int) -> None:
    """Ten ticks of both streams."""
    ticks = list(range(10 * number, 10 * number + 10))
    table = pa.table({"ts": ticks, "k": [tick % 3 for tick in ticks]}, schema=SCHEMA)
    for stream in ("a", "b"):
        write_file(folder / stream / f"{number}.parquet", table, number)


def start_run(spark: Any, folder: Path) -> Any:
    pipe = ps.Pipeline(spark)
    for stream in ("a", "b"):
        pipe.stream(stream, read_stream(spark, SCHEMA, folder / stream), "ts")
    pipe.query("pairs", PAIRS, sink=sinks.memory())
    return pipe.start(checkpointLocation=str(folder / "ck"), cells=2)


def read_sample(server: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    events = dict(read_events(server, 3))
    return events["structure"], events["sample"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    write_rows(tmp_path, 0)
    return tmp_path


def test_run_is_shown_changed_and_shown_again_after_its_end(spark: Any, folder: Path) -> None:
    with start_run(spark, folder) as run:
        run.processAllAvailable()
        with run.serve(interval=3600) as server:
            server.monitor.read_now()
            structure, sample = read_sample(server)
            assert structure["kind"] == "run"
            assert structure["title"] == f"run on {run.checkpointLocation}"
            assert [box["title"] for box in structure["graph"]["boxes"] if box["kind"] == "source"] == ["a", "b"]
            assert sample["queries"] == [run.metrics()["queries"]["pairs"]["emitted"]]
            assert sample["state"] == "running"
            assert {row[0]: row[1] for row in sample["streams"]} == {"a": 10, "b": 10}
            kinds = [kind for _, kind, _ in structure["operators"]]
            join = sample["operators"][kinds.index("join")]
            assert join[0] == sample["queries"][0]
            assert join[1] > 0
            wrong = control(server, "add-one", name="more", text=PAIRS.replace("b.k", "b.kk"), plan=None, sink="memory")
            assert (wrong["error"]["condition"], wrong["error"]["line"]) == ("UNKNOWN_COLUMN", 1)
            assert "error" not in control(server, "add-one", name="more", text=PAIRS, plan=None, sink="memory")
            assert control(server, "drop", token="guess", name="pairs")["error"]["condition"] == "WRONG_TOKEN"
            write_rows(folder, 1)
            run.processAllAvailable()
            server.monitor.read_now()
            structure, sample = read_sample(server)
            assert [query["name"] for query in structure["queries"]] == ["pairs", "more"]
            assert "added" in [event["kind"] for event in dict(read_events(server, 3))["history"]["events"]]
            assert "penstock_stream_rows_total" in fetch(f"{server.address}metrics")[1]
            found = json.loads(fetch(f"{server.address}api/query?name=pairs")[1])
            assert found["text"] == PAIRS
            assert found["explain"].startswith("pairs: ISTREAM")
            assert "placement: 2 cells" in found["explain"]
            assert found["latest"]["columns"] == ["k", "_ts"]
            assert found["latest"]["rows"]
            assert "error" not in control(server, "drop", name="more")
            write_rows(folder, 2)
            run.processAllAvailable()
            shown = run.metrics()["queries"]["pairs"]["emitted"]
        record = folder / "ck" / "observed.json"
        assert record.exists()
    with serve_folder(str(folder / "ck")) as server:
        structure, sample = read_sample(server)
        assert structure["kind"] == "folder"
        assert sample["queries"] == [shown]
        assert control(server, "drop", name="pairs")["error"]["condition"] == "NO_ACTIVE_RUN"


def test_pipeline_shows_its_graph(spark: Any, folder: Path) -> None:
    pipe = ps.Pipeline(spark)
    assert "image/svg" not in show_html(pipe)
    for stream in ("a", "b"):
        pipe.stream(stream, read_stream(spark, SCHEMA, folder / stream), "ts")
    pipe.query("pairs", PAIRS, sink=sinks.memory())
    assert "image/svg+xml" in show_html(pipe)
