"""Queries are added, dropped and migrated while a pipeline runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_support import build_pipeline, drain, merge_pushes, read_stream, run_embedded, write_case, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.storage import Folder
from penstock.testing import difference, random_case


def test_add_migrate_drop_and_advance(spark: Any, tmp_path: Path) -> None:
    case = merge_pushes(random_case(3, sources=3, windows=("range",), shape="chain", emit="", full=True, rows=30,
                                  timestamps=False, tables=False, nulls=0.0, domain=4, late=False), 4)  # fmt: skip
    first, last = case.declarations[0].name, case.declarations[-1].name
    other = f"SELECT P.id AS p FROM {first} [RANGE 5] AS P, {last} [ROWS 3] AS Q WHERE P.x = Q.x"
    write_case(case, tmp_path, range(0, 1))
    pipe, answers = build_pipeline(spark, case, {"q": case.query}, tmp_path)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        run.processAllAvailable()
        late = sinks.memory()
        run.add("late", other, sink=late)
        with pytest.raises(ps.QueryError, match="DUPLICATE_NAME"):
            run.add("LATE", other)
        write_case(case, tmp_path, range(1, 2))
        run.processAllAvailable()
        heard: list[int] = []
        run.listen(lambda batch, cells: heard.append(batch) if len(cells) == 2 else None)
        run.migrate("Q", case.plan)
        run.schedule("bfs")
        written = len(list((tmp_path / "ck" / "control").iterdir()))
        for wrong, condition in (
            (lambda: run.migrate("q", "(no such plan"), "PLAN"),
            (lambda: run.add("x", "SELECT nothing FROM nowhere [NOW]"), "UNKNOWN_RELATION"),
            (lambda: run.schedule("sideways"), "schedule"),
            (lambda: run.order("reboot"), "UNKNOWN_ORDER"),
            (lambda: run.order("reslice"), "BAD_ORDER"),
            (lambda: run.order("reslice", slicing="thin"), "unknown slicing"),
            (lambda: run.budget(-3), "BAD_BUDGET"),
        ):
            with pytest.raises(ps.PenstockError, match=condition):
                wrong()
        assert len(list((tmp_path / "ck" / "control").iterdir())) == written  # refused before anything was written
        assert heard
        spark_query = run.runId
        write_case(case, tmp_path, range(2, 3))
        run.processAllAvailable()
        run.drop("Late")
        write_case(case, tmp_path, range(3, 4))
        run.processAllAvailable()
        before = run.metrics()["streams"][first]["frontier"]
        run.advance(first, before + 1000)
        run.processAllAvailable()
        metrics = run.metrics()
        assert run.runId == spark_query
        assert metrics["streams"][first]["frontier"] == before + 1000
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    assert difference(answers["q"].table(), case.expected) is None
    assert metrics["queries"].keys() == {"q"}
    middle = type(case)(case.seed, case.declarations, {}, other, "", case.steps[1:3])
    assert difference(late.table(), run_embedded(middle, {"late": other})["late"]) is None
    with pytest.raises(ps.QueryError, match="RUN_ENDED"):
        run.drop("q")


def test_plan_and_commands_survive_restart(spark: Any, tmp_path: Path) -> None:
    """A start uses the declared pipeline and the commands that were in effect, not those that were only written."""
    case = merge_pushes(random_case(3, sources=3, windows=("range",), shape="chain", emit="", full=True, rows=30,
                                  timestamps=False, tables=False, nulls=0.0, domain=4, late=False), 4)  # fmt: skip
    write_case(case, tmp_path, range(0, 2))
    pipe, answers = build_pipeline(spark, case, {"q": case.query}, tmp_path)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        run.processAllAvailable()
        run.migrate("q", case.plan)
        run.schedule("rr")
        run.add("extra", case.query, sink=sinks.memory())
    finally:
        run.stop()
    write_case(case, tmp_path, range(2, 4))
    again, more = build_pipeline(spark, case, {"Q": case.query}, tmp_path)  # names are case-insensitive
    with pytest.raises(ps.QueryError, match="QUERY_NOT_DECLARED"):  # its sink was in memory
        again.start(tmp_path / "ck")
    run = again.start(tmp_path / "ck", evolve=True)
    try:
        run.processAllAvailable()
        ledger = CheckpointMetadata.read(Folder(str(tmp_path / "ck")))
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    assert ledger is not None
    assert [(query.name, query.plan) for query in ledger.schedule.last.queries] == [("Q", case.plan)]
    assert [order.key for order in ledger.schedule.last.orders] == ["schedule"]
    assert difference(pa.concat_tables([answers["q"].table(), more["Q"].table()]), case.expected) is None


def test_altered_query_looks_back(spark: Any, tmp_path: Path) -> None:
    """A shorter window keeps its rows, in engines that restart too; a longer one starts empty and says so."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    pipe, answers = ps.Pipeline(spark), sinks.memory()
    pipe.stream("s", read_stream(spark, schema, tmp_path / "s"), "ts")
    text = "SELECT a.ts AS x, b.ts AS y FROM s [RANGE {0}] AS a, s [RANGE {0}] AS b WHERE a.k = b.k AND a.ts < b.ts"
    pipe.query("q", text.format(9), sink=answers)
    pipe.view("counts", "SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k")
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        for number, (time, window) in enumerate(((0, 9), (4, 5), (8, 7))):
            if number:
                run.alter("Q", text.format(window))
            write_file(tmp_path / "s" / f"{number}.parquet", pa.table([[time], [1]], schema=schema), number)
            run.processAllAvailable()
        assert run.queries["q"].text == text.format(7)
        totals = sinks.memory()
        run.add("totals", "SELECT n FROM counts EMIT CHANGES", sink=totals)
        write_file(tmp_path / "s" / "3.parquet", pa.table([[30], [1]], schema=schema), 3)
        run.processAllAvailable()
        assert [note.partition(": ")[0] for note in run.status["evolved"]] == [
            "query q is changed and keeps its windows", "query q is changed and starts with empty windows"
        ]  # fmt: skip
    finally:
        drain(run, finish=True)
    assert [(row["x"], row["y"]) for row in answers.table().to_pylist()] == [(0, 4)]
    assert [(row["n"], row["_op"], row["_ts"]) for row in totals.table().to_pylist()] == [(1, "+", 30), (1, "-", 35)]
