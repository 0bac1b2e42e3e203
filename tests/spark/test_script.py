"""Scripts on Spark through the command line, bad input with clear errors, and an idle stream."""

from __future__ import annotations

import datetime
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
from penstock.spark.cell_keys import find_cell_keys

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("location", pa.int32()), ("value", pa.float64())])
START = datetime.datetime(2026, 1, 1)
SCRIPT = """
CREATE STREAM t (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts LATENESS 5 SECONDS
    FROM parquet OPTIONS (path '{0}/t');
CREATE STREAM h (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts FROM parquet OPTIONS (path '{0}/h');
CREATE TABLE rooms (location INT, name STRING) FROM csv OPTIONS (path '{0}/rooms.csv', header true);
CREATE SINK alarms TO parquet OPTIONS (path '{0}/alarms');
CREATE SINK lines TO json OPTIONS (path '{0}/lines');
CREATE STREAM hot AS SELECT location, value FROM t [NOW] WHERE value > 40;
INSERT INTO alarms SELECT r.name, t.value, h.value AS humidity
    FROM hot [RANGE 10 SECONDS] AS t, h [RANGE 10 SECONDS] AS h, rooms AS r
    WHERE t.location = h.location AND t.location = r.location;
INSERT INTO lines SELECT location, COUNT(*) AS n FROM h [RANGE 20 SECONDS] GROUP BY location;
"""


def make_rows(count: int, start: datetime.datetime = START) -> pa.Table:
    times = [start + datetime.timedelta(seconds=i) for i in range(count)]
    columns = {"ts": times, "location": [i % 5 for i in range(count)], "value": [float(i) for i in range(count)]}
    return pa.table(columns, schema=SCHEMA)


def test_run_once(spark: Any, tmp_path: Path) -> None:
    write_file(tmp_path / "t" / "0.parquet", make_rows(100), 0)
    write_file(tmp_path / "h" / "0.parquet", make_rows(100), 0)
    (tmp_path / "rooms.csv").write_text("location,name\n1,kitchen\n2,hall\n")
    script = tmp_path / "script.cql"
    script.write_text(SCRIPT.format(tmp_path))
    result = CliRunner().invoke(app, ["run", str(script), "--once", "--cells", "2"])
    assert result.exit_code == 0, result.output
    wanted = [
        (t, h) for t in range(41, 100) for h in range(100) if t % 5 == h % 5 and t % 5 in (1, 2) and abs(t - h) < 10
    ]
    found = pq.read_table(tmp_path / "alarms").to_pylist()
    assert sorted((row["value"], row["humidity"]) for row in found) == sorted(wanted)
    assert f"alarms: {len(wanted)} results" in result.output
    assert len(list((tmp_path / "lines").glob("*.json"))) >= 1
    assert spark.sql("SELECT 1").collect()  # the session still runs


def test_special_names_and_shared_sink(spark: Any, tmp_path: Path) -> None:
    """Files of the second query replaced those of the first, and a stream named `..` wrote outside its folder."""
    schema = pa.schema([("ts", pa.int64()), ("a.b", pa.int64()), ("x`y", pa.string())])
    write_file(tmp_path / "in" / "0.parquet", pa.table([[1, 2, 3, None], [5, 6, 7, 8], list("pqrs")], schema=schema), 0)
    script = tmp_path / "script.cql"
    script.write_text(f"""
        CREATE STREAM `..` (ts BIGINT, `a.b` BIGINT, `x``y` STRING) TIMESTAMP BY ts
            FROM parquet OPTIONS (path '{tmp_path}/in');
        CREATE SINK out TO parquet OPTIONS (path '{tmp_path}/out');
        INSERT INTO out SELECT `a.b` AS n, `x``y` AS s FROM `..` [NOW] WHERE `a.b` < 7;
        INSERT INTO out SELECT `a.b` AS n, `x``y` AS s FROM `..` [NOW] WHERE `x``y` = 'r';
        INSERT INTO out SELECT `a.b` AS n, `x``y` AS s FROM `..` [NOW] WHERE `a.b` < 0;
    """)
    run = drain(ps.Pipeline.from_script(script, spark).start(tmp_path / "ck", cells=2))
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["n"], row["s"]) for row in found) == [(5, "p"), (6, "q"), (7, "r")]
    assert run.metrics()["streams"][".."]["dead"] == 1
    (dead,) = (tmp_path / "ck" / "dead").glob("*/*.parquet")
    assert pq.read_table(dead).column("x`y").to_pylist() == ["s"]
    assert not [path.name for path in (tmp_path / "ck").iterdir() if path.suffix == ".parquet"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts FROM parquet OPTIONS (path '{0}/none');", "SOURCE_UNREADABLE"),
        ("CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts;", "NO_SOURCE"),
        (
            "CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts TIMESTAMPS LATENT FROM parquet OPTIONS (path '{0}');",
            "CLOCK_NEEDED",
        ),
    ],
)
def test_unreadable_source_refused_at_start(spark: Any, tmp_path: Path, statement: str, said: str) -> None:
    script = tmp_path / "script.cql"
    script.write_text(statement.format(tmp_path) + "\nSELECT ts FROM s [NOW];")
    result = CliRunner().invoke(app, ["run", str(script), "--once"])
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert spark is not None


def test_declarations_are_checked(spark: Any, tmp_path: Path) -> None:
    pipe = ps.Pipeline(spark)
    frame = read_stream(spark, SCHEMA, tmp_path / "t")
    pipe.stream("t", frame, "ts")
    for wrong, condition in (
        (lambda: pipe.stream("T", frame, "ts"), "DUPLICATE_NAME"),
        (lambda: pipe.stream("u", frame, "value"), "TIME_COLUMN_TYPE"),
        (lambda: pipe.stream("u", spark.range(3), "id"), "NOT_STREAMING"),
        (lambda: pipe.table("u", frame), "IS_STREAMING"),
        (pipe.start, "NO_QUERY"),
        (lambda: pipe.query("q", "SELECT x FROM t [NOW]"), "UNKNOWN_COLUMN"),
        (lambda: pipe.stream("u", None, "ts"), "NOT_STREAMING"),
        (lambda: pipe.stream("u", frame, None), "UNKNOWN_COLUMN"),
        (lambda: pipe.stream("u", frame, "ts", late="folder"), "NOT_A_SINK"),
        (lambda: pipe.table("v", {"x": [1]}), "NOT_A_TABLE"),
        (lambda: pipe.query("", "SELECT ts FROM t [NOW]"), "BAD_NAME"),
        (lambda: pipe.query("q", "SELECT ts FROM t [NOW]", sink="folder"), "NOT_A_SINK"),
        (lambda: pipe.start(trigger="1 second"), "BAD_TRIGGER"),
        (lambda: pipe.start(cells=0), "BAD_CELLS"),
        (lambda: ps.sinks.foreach(3), "NOT_CALLABLE"),
    ):
        with pytest.raises(ps.PenstockError) as caught:
            wrong()
        assert caught.value.condition == condition


def test_idle_stream_does_not_block_others(spark: Any, tmp_path: Path) -> None:
    """One stream becomes idle; its idle rule releases the rows of the other stream without a further row."""
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(seconds=60)
    pipe = ps.Pipeline(spark)
    pipe.stream("t", read_stream(spark, SCHEMA, tmp_path / "t"), "ts")
    pipe.stream("h", read_stream(spark, SCHEMA, tmp_path / "h"), "ts", idle_after="1 second")
    sink = sinks.memory()
    query = "SELECT t.value FROM t [RANGE 100 SECONDS] AS t, h [RANGE 100 SECONDS] AS h WHERE t.location = h.location"
    pipe.query("q", query, sink=sink)
    write_file(tmp_path / "h" / "0.parquet", make_rows(5, now), 0)
    write_file(tmp_path / "t" / "0.parquet", make_rows(30, now), 0)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        wait_until(lambda: sink.table().num_rows == 30)
    finally:
        run.stop()


def test_cells_fill_partitions_one_to_one(spark: Any) -> None:
    for cells in (1, 3, 5, 8):
        keys = ", ".join(f"({key})" for key in find_cell_keys(cells))
        found = spark.sql(f"SELECT pmod(hash(CAST(k AS INT)), {cells}) FROM VALUES {keys} AS t(k)").collect()
        assert [row[0] for row in found] == list(range(cells))
