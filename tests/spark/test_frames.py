"""`ps.sql` and `ps.queries`: streaming DataFrames with Spark's own operators and sinks behind them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frame_support import explain_frame, write_results
from inspect_spark import count_sources_by_session
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import window
from spark_support import write_file

import penstock as ps
from penstock.cql import describe_stream
from penstock.spark.frames.frame_record import check_record, encode_record
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec

START = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("room", pa.int32()), ("value", pa.int64())])
DDL = "ts timestamp, room int, value bigint"
PAIRS = "SELECT t.room, t.value, h.value AS other FROM t [RANGE 20 SECONDS], h [RANGE 20 SECONDS] WHERE t.room = h.room"
SIZE = 60


def make_rows(number: int, shift: int) -> pa.Table:
    """A row a second for a minute, of three rooms."""
    seconds = range(SIZE * number, SIZE * (number + 1))
    columns = {
        "ts": [START + timedelta(seconds=at, milliseconds=shift) for at in seconds],
        "room": [at % 3 for at in seconds],
        "value": list(seconds),
    }
    return pa.table(columns, SCHEMA)


def write_minutes(folder: Path, numbers: range) -> None:
    for number in numbers:
        write_file(folder / "t" / f"{number}.parquet", make_rows(number, 0), number)
        write_file(folder / "h" / f"{number}.parquet", make_rows(number, 500), number)


def read_streams(spark: Any, folder: Path) -> dict[str, Any]:
    def read(name: str) -> Any:
        (folder / name).mkdir(exist_ok=True)
        source = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return ps.timed(source.parquet(str(folder / name)), "ts")

    return {"t": read("t"), "h": read("h")}


def read_batches(spark: Any, folder: Path) -> dict[str, Any]:
    return {name: ps.timed(spark.read.schema(DDL).parquet(str(folder / name)), "ts") for name in ("t", "h")}


def test_join_and_watermark_behind_frame(spark: Any, tmp_path: Path) -> None:
    """A stream-static join, a watermark on `_ts` and a window count: the counts are those of the batch answer."""
    before = dict(spark.conf.getAll)
    write_minutes(tmp_path, range(4))
    hot = ps.sql(spark, PAIRS, cells=2, **read_streams(spark, tmp_path))
    assert dict(spark.conf.getAll) == before
    assert [kind for _, kind in hot.dtypes] == ["int", "bigint", "bigint", "timestamp"]
    names = spark.createDataFrame([(0, "dock"), (1, "store")], "room int, name string")
    minutes = hot.join(names, "room").withWatermark("_ts", "0 seconds").groupBy(window("_ts", "1 minute"), "name")
    write_results(minutes.count().select("window.start", "name", "count"), tmp_path)
    found = {(row["start"], row["name"]): row["count"] for row in spark.read.parquet(str(tmp_path / "q-out")).collect()}
    answer = ps.sql(spark, PAIRS, cells=3, **read_batches(spark, tmp_path)).join(names, "room")
    rows = answer.groupBy(window("_ts", "1 minute").alias("w"), "name").count().collect()
    wanted = {(row["w"]["start"], row["name"]): row["count"] for row in rows}
    assert len({start for start, _ in found}) == 3  # the last minute is open: its watermark has not passed
    assert found == {key: wanted[key] for key in found}


def test_changes_are_merged_by_foreach_batch(spark: Any, tmp_path: Path) -> None:
    """EMIT CHANGES: adding '+' and removing '-' gives the answer at the last certain instant."""
    write_minutes(tmp_path, range(3))
    text = "SELECT room, COUNT(*) AS n FROM t [RANGE 20 SECONDS] GROUP BY room EMIT CHANGES"
    merged: Counter[tuple[int, int]] = Counter()

    def merge(frame: Any, batch: int) -> None:
        del batch
        for row in frame.collect():
            merged[row["room"], row["n"]] += 1 if row["_op"] == "+" else -1

    changes = ps.sql(spark, text, cells=2, t=read_streams(spark, tmp_path)["t"])
    assert changes.columns == ["room", "n", "_op", "_ts"]
    query = changes.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "ck")).start()
    query.processAllAvailable()
    query.stop()
    last = START + timedelta(seconds=3 * SIZE - 1)  # the rows of this instant may have company
    living = [at % 3 for at in range(3 * SIZE) if START + timedelta(seconds=at) > last - timedelta(seconds=21)]
    certain = Counter(living[:-1])
    assert +merged == Counter(dict.fromkeys(certain.items(), 1))


@pytest.mark.faults
def test_other_query_on_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    """The refusal loses nothing: the query that made the checkpoint continues with its windows."""
    write_minutes(tmp_path, range(1))
    write_results(ps.sql(spark, PAIRS, cells=2, **read_streams(spark, tmp_path)), tmp_path)
    write_minutes(tmp_path, range(1, 2))
    other = ps.sql(spark, PAIRS.replace("20 SECONDS", "30 SECONDS"), cells=2, **read_streams(spark, tmp_path))
    with pytest.raises(StreamingQueryException, match="QUERY_DIFFERS"):
        write_results(other, tmp_path)
    write_results(ps.sql(spark, PAIRS, cells=2, **read_streams(spark, tmp_path)), tmp_path)
    answer = ps.sql(spark, PAIRS, **read_batches(spark, tmp_path))
    written = spark.read.parquet(str(tmp_path / "q-out"))
    certain = f"_ts < timestamp'{(START + timedelta(seconds=2 * SIZE - 1)).replace(tzinfo=None)}'"
    assert written.exceptAll(answer).isEmpty()
    assert answer.filter(certain).exceptAll(written).isEmpty()


def build_layout(text: str, cells: int, **columns: str) -> Layout:
    stream = describe_stream("t", {"ts": "bigint", "a": "int", **columns}, "ts")
    return Layout(PipelineSpec((stream,), {}, (QuerySpec("query", text),), cells))


def test_record_of_another_frame_is_refused() -> None:
    text = "SELECT a FROM t [RANGE 5]"
    saved = encode_record(build_layout(text, 2))
    check_record(saved, build_layout("-- spaces\nselect  a FROM t [RANGE 5]", 2))
    for condition, record, layout in (
        ("CELLS_DIFFER.*cells=2", saved, build_layout(text, 3)),
        ("QUERY_DIFFERS", saved, build_layout("SELECT a FROM t [RANGE 6]", 2)),
        ("CHECKPOINT_DIFFERS.*'a': 'int'.*'a': 'bigint'", saved, build_layout(text, 2, a="bigint")),
        ("CHECKPOINT_DIFFERS.*another streaming query", None, build_layout(text, 2)),
        ("BAD_CHECKPOINT.*another version", saved.replace(b'"format": 1', b'"format": 2'), build_layout(text, 2)),
    ):
        with pytest.raises(ps.QueryError, match=condition):
            check_record(record, layout)


def test_queries_share_one_run(spark: Any, tmp_path: Path) -> None:
    write_minutes(tmp_path, range(2))
    late = "SELECT room, value FROM t [NOW] WHERE value > 100"
    many = ps.queries(spark, {"pairs": PAIRS, "late": late}, cells=2, **read_streams(spark, tmp_path))
    assert many.names == ("pairs", "late")
    assert many.frame("PAIRS").columns == ["room", "value", "other", "_ts"]
    answers = {name: ps.sinks.memory() for name in many.names}
    with many.start(tmp_path / "ck", answers) as run:
        run.processAllAvailable()
        run.finish()
        run.processAllAvailable()
    batch = ps.queries(spark, {"pairs": PAIRS, "late": late}, **read_batches(spark, tmp_path))
    for name, sink in answers.items():
        assert batch.frame(name).count() == sink.table().num_rows
    with pytest.raises(ps.DataError, match="NOT_STREAMING"):
        batch.start(tmp_path / "other", answers)
    with pytest.raises(ps.QueryError, match=r"NO_SINK.*late"):
        many.start(tmp_path / "other", {"pairs": answers["pairs"]})
    with pytest.raises(ps.QueryError, match=r"UNKNOWN_QUERY.*pairs, late"):
        many.frame("pears")


def test_frame_reads_frame(spark: Any, tmp_path: Path) -> None:
    """The results of one query are the stream of another, in one streaming query of Spark."""
    write_minutes(tmp_path, range(2))
    first = ps.sql(
        spark, "SELECT room, value FROM t [NOW] WHERE room < 2", cells=2, t=read_streams(spark, tmp_path)["t"]
    )
    text = "SELECT a.value, b.value AS next FROM s [NOW] AS a, s [RANGE 4 SECONDS] AS b WHERE a.room = b.room"
    write_results(ps.sql(spark, text, s=ps.timed(first, "_ts")), tmp_path)
    rows = {(row["value"], row["next"]) for row in spark.read.parquet(str(tmp_path / "q-out")).collect()}
    kept = [at for at in range(2 * SIZE - 3) if at % 3 < 2]
    assert rows >= {(at, at) for at in kept[:-3]} | {(at, at - 3) for at in kept[2:-3]}
    with pytest.raises(ps.QueryError, match="CELLS_DIFFER"):
        ps.sql(spark, text, cells=3, s=ps.timed(first, "_ts"))


def test_bad_frames_are_named(spark: Any, tmp_path: Path) -> None:
    stream, batch = read_streams(spark, tmp_path), spark.createDataFrame([], DDL)
    timed = ps.timed(batch, "ts")
    aged = batch.selectExpr("ts", "room", "value", "INTERVAL '1' YEAR AS age")
    for condition, frames, text in (
        ("NOT_TIMED.*ps.timed", {"t": stream["t"].frame, "h": stream["h"]}, PAIRS),
        ("MIXED_FRAMES.*t: streaming, h: batch", {"t": stream["t"], "h": timed}, PAIRS),
        ("UNKNOWN_RELATION(.|\n)*t, u", {"t": timed, "u": timed}, PAIRS),
        ("OTHER_SESSION.*h is", {"t": timed, "h": ps.timed(spark.newSession().createDataFrame([], DDL), "ts")}, PAIRS),
        ("NOT_A_FRAME.*h is a list", {"t": timed, "h": [1]}, PAIRS),
        ("BAD_CELLS.*another name", {"cells": timed, "t": timed}, PAIRS),
        ("DUPLICATE_NAME", {"t": timed, "T": timed}, PAIRS),
        ("NO_STREAM.*ps.timed", {}, PAIRS),
        ("NO_STREAM(.|\n)*ps.timed", {"t": batch}, "SELECT room FROM t"),
        ("UNKNOWN_COLUMN(.|\n)*age is interval year", {"t": ps.timed(aged, "ts")}, "SELECT age FROM t [NOW]"),
    ):
        with pytest.raises(ps.PenstockError, match=condition):
            ps.sql(spark, text, **frames)
    for condition, arguments in (
        ("UNKNOWN_COLUMN.*ts, room, value", (batch, "time")),
        ("UNKNOWN_COLUMN", (batch, 3)),
        ("NOT_A_FRAME", ([], "ts")),
    ):
        with pytest.raises(ps.PenstockError, match=condition):
            ps.timed(*arguments)
    with pytest.raises(ps.QueryError, match="t: "):
        ps.sql(spark, PAIRS, t=ps.timed(batch.selectExpr("string(ts) AS ts", "room", "value"), "ts"), h=timed)
    with pytest.raises(ps.QueryError, match="NOT_A_SESSION"):
        ps.sql(None, PAIRS, t=timed, h=timed)


def test_speculation_is_refused(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(ps.ResourceError, match="SPECULATION"):
        ps.sql(spark, PAIRS, **read_streams(spark, tmp_path))


def test_session_with_settings_is_used(spark: Any, tmp_path: Path) -> None:
    """A session that has the settings of a frame is its session; otherwise the frame has one of its own."""
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    frames = read_streams(spark, tmp_path)
    assert ps.sql(spark, PAIRS, cells=3, **frames).sparkSession is not spark
    suited = spark.newSession()
    suited.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    suited.conf.set("spark.sql.shuffle.partitions", "3")
    assert ps.sql(suited, PAIRS, **read_streams(suited, tmp_path)).sparkSession is suited
    assert ps.sql(suited, PAIRS, cells=2, **read_streams(suited, tmp_path)).sparkSession is not suited


def test_file_sources_move_to_session_of_frame(spark: Any, tmp_path: Path) -> None:
    """Sources below other operators too; the user's DataFrame keeps its own, and so may be started beside the frame."""
    frames = read_streams(spark, tmp_path)
    both = frames["t"].frame.where("value > 0").union(frames["h"].frame)
    found = ps.sql(spark, PAIRS, cells=2, t=ps.timed(both, "ts"), h=frames["h"])
    assert count_sources_by_session(found, [found.sparkSession, spark]) == [3, 0]
    assert count_sources_by_session(both, [found.sparkSession, spark]) == [0, 2]


def test_frame_session_has_all_settings(spark: Any, tmp_path: Path) -> None:
    """Also those that Spark does not declare, such as keys of a storage."""
    spark.conf.set("fs.s3a.access.key", "mine")
    try:
        found = ps.sql(spark, PAIRS, cells=2, **read_streams(spark, tmp_path))
        assert found.sparkSession.conf.get("fs.s3a.access.key") == "mine"
    finally:
        spark.conf.unset("fs.s3a.access.key")


@pytest.mark.parametrize("chosen", [None, "true"])
def test_code_generation_of_frames(spark: Any, tmp_path: Path, chosen: str | None) -> None:
    """A frame runs without whole-stage code generation unless the user's session asks for it."""
    key = "spark.sql.codegen.wholeStage"
    if chosen is not None:
        spark.conf.set(key, chosen)
    try:
        found = ps.sql(spark, PAIRS, cells=2, **read_streams(spark, tmp_path)).sparkSession
        assert found is not spark
        assert found.conf.get(key) == (chosen or "false")
        assert spark.conf.get(key) == "true"
    finally:
        spark.conf.unset(key)


def test_unread_columns_are_not_read(spark: Any) -> None:
    """A column that the query does not read is not read from the source, and its type does not matter."""
    frame = spark.createDataFrame([], DDL).selectExpr("*", "map('a', 1) AS tags", "value AS unread")
    plan = explain_frame(ps.sql(spark, "SELECT room FROM t [NOW]", t=ps.timed(frame, "ts")))
    assert "unread" not in plan
