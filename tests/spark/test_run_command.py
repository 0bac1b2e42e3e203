"""`penstock run` in this process: what a second run does with the results of the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_support import drain, read_stream, wait_until, write_file
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.spark import sinks
from penstock.spark.requests import (
    Add,
    AddOne,
    ChangeBudget,
    Drop,
    MigratePlan,
    Policy,
    Request,
    RequestClient,
    Schedule,
    Status,
)

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
SCRIPT = """
CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM parquet OPTIONS (path '{0}/in');
CREATE SINK copies TO parquet OPTIONS (path '{0}/out');
INSERT INTO copies SELECT k FROM a [NOW];
SELECT k FROM a [NOW] WHERE k = 2;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    write_file(tmp_path / "in" / "0.parquet", pa.table([[1, 2, None], [1, 2, 3]], schema=SCHEMA), 0)
    path = tmp_path / "copy.cql"
    path.write_text(SCRIPT.format(tmp_path))
    return path


def run_script(script: Path, *options: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["run", str(script), "--once", "--cells", "1", "--json", *options])
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_second_run_does_not_double_results(spark: Any, script: Path, tmp_path: Path) -> None:
    out, place = tmp_path / "out", str(tmp_path / "ck")
    first = run_script(script, "--checkpoint", place)
    assert first["queries"]["copies"] == {"rows": 2, "sink": f"parquet files in {out}", "error": None}
    assert first["queries"]["query"] == {"rows": 1, "sink": "console", "error": None}
    assert first["streams"]["a"]["dead"] == 1
    assert pq.read_table(first["streams"]["a"]["deadRows"]).num_rows == 1
    assert first["continue"] == f"penstock run {script} --checkpoint {place} --once --cells 1"
    assert run_script(script, "--checkpoint", place)["queries"]["copies"]["rows"] == 0
    assert run_script(script, code=2)["error"]["class"] == "FOLDER_IN_USE"
    for _ in range(2):  # a refused start leaves no checkpoint that would be continued
        assert run_script(script, "--checkpoint", f"{place}-2", code=2)["error"]["class"] == "FOLDER_IN_USE"
    pipe = ps.Pipeline(spark)
    pipe.stream("a", read_stream(spark, SCHEMA, tmp_path / "in"), "ts")
    pipe.query("q", "SELECT k FROM a [NOW]", sink=sinks.parquet(str(out)))
    with pytest.raises(ps.DataError, match="FOLDER_IN_USE"):
        pipe.start(tmp_path / "ck-3", cells=1)
    assert pq.read_table(out).num_rows == 2
    run_script(script, "--checkpoint", f"{place}-4", "--append")
    assert pq.read_table(out).num_rows == 4
    (out / "note.txt").write_text("mine")
    run_script(script, "--checkpoint", f"{place}-5", "--overwrite")
    assert pq.read_table(list(out.glob("*.parquet"))).num_rows == 2
    assert (out / "note.txt").exists()


def test_added_query_needs_unused_folder(spark: Any, script: Path, tmp_path: Path) -> None:
    """Files of other runs count, files of the same run do not: two queries may write to one folder."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "part-0.parquet").write_bytes(b"")
    run = ps.Pipeline.from_script(script, spark).start(tmp_path / "ck", cells=1)
    try:
        run.processAllAvailable()
        with pytest.raises(ps.DataError, match="FOLDER_IN_USE"):
            run.add("more", "SELECT k FROM a [NOW]", sinks.parquet(str(tmp_path / "used")))
        run.add("more", "SELECT k FROM a [NOW]", sinks.parquet(str(tmp_path / "out")))
        run.alter("more", "SELECT k FROM a [NOW] WHERE k > 10")
        with pytest.raises(ps.QueryError, match="COLUMNS_DIFFER"):
            run.alter("MORE", "SELECT k AS other FROM a [NOW]")
        write_file(tmp_path / "in" / "1.parquet", pa.table([[3, 4], [9, 11]], schema=SCHEMA), 1)
    finally:
        drain(run)
    assert sorted(pq.read_table(tmp_path / "out").column("k").to_pylist()) == [1, 2, 9, 11, 11]


def test_requests_to_a_python_run(spark: Any, script: Path, tmp_path: Path) -> None:
    """Every request reaches its method, wrong ones change nothing, and `stop` ends the run."""
    run = ps.Pipeline.from_script(script, spark).start(tmp_path / "ck", cells=1)
    client = RequestClient(str(tmp_path / "ck"))

    def refuse(request: Request) -> str:
        with pytest.raises(ps.PenstockError) as caught:
            client.send(request, 300)
        return caught.value.condition

    try:
        assert refuse(Status()) == "NO_ACTIVE_RUN"
        run.serve_requests()
        path = str(tmp_path / "more")
        text = "SELECT x.k FROM a [RANGE 5] AS x, a [RANGE 5] AS y WHERE x.k = y.k"
        assert client.send(AddOne("more", text, "parquet", path), 300) == {"added": ["more"]}
        assert client.send(MigratePlan("more", "(y x)"), 300) == {"migrated": "more", "plan": "(y x)"}
        assert client.send(Policy("more", "eager"), 300) == {"query": "more", "policy": "eager"}
        assert client.send(Schedule("bfs"), 300) == {"schedule": "bfs"}
        assert client.send(ChangeBudget("500 ms", query="more"), 300)["budgets"] == {"more": "500 ms"}
        for request, condition in (
            (AddOne("x", "SELECT nothing FROM a [NOW]", "console"), "UNKNOWN_COLUMN"),
            (AddOne("x", "SELECT k FROM a [NOW]", "paper", path), "UNKNOWN_SINK_FORMAT"),
            (Add("CREATE STREAM b (ts BIGINT) TIMESTAMP BY ts;"), "STATEMENT_NOT_ALLOWED"),
            (Add("SELECT k FROM a [NOW]; INSERT INTO nowhere SELECT k FROM a [NOW];"), "UNKNOWN_SINK"),
            (Policy("more", "warm"), "UNKNOWN_OPTION"),
            (Drop("nothing"), "UNKNOWN_QUERY"),
        ):
            assert refuse(request) == condition
        assert list(client.send(Status(), 300)["queries"]) == ["copies", "query", "more"]
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["ctl", str(tmp_path / "ck"), "status"])
        assert all(part in shown.stdout for part in ("copies", "500 ms", f"parquet files in {tmp_path}/more"))
        stopped = CliRunner().invoke(app, ["ctl", str(tmp_path / "ck"), "stop"])
        assert stopped.stdout == f"stopped: {tmp_path}/ck\n"
        wait_until(lambda: not run.isActive)
        assert refuse(Status()) == "NO_ACTIVE_RUN"
    finally:
        run.stop()
