"""Derived streams in cells: which queries are partitioned, which are pinned, and the law with faults and restarts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cell_runs import push_until_committed
from cell_support import Cluster
from spark_support import read_stream, write_file

import penstock as ps
from penstock.adapt import AddQuery, AlterQuery, DropQuery
from penstock.cql import Stream
from penstock.spark import sinks
from penstock.spark.driver.query_comparison import alter_query
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import HEADER_KEY, OutputRow, StateHeader
from penstock.testing import Push, difference

SCHEMA = pa.schema([("ts", pa.int64()), ("id", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
STREAMS = tuple(Stream(name, SCHEMA, "ts") for name in "ABC")
PAIRS = "SELECT A.id AS a, B.id AS b, A.y AS y, B.x AS x FROM A [RANGE 6], B [RANGE 6] WHERE A.x = B.x"
READERS = {
    "rows": "SELECT a, b FROM pairs WHERE y > 1",
    "ends": "DSTREAM (SELECT a, b FROM pairs [RANGE 4])",
    "joined": "SELECT p.a, p.b, C.id AS c FROM pairs [RANGE 5] AS p, C [RANGE 5] WHERE p.y = C.y",
    "matched": "SELECT p.a, p.b, C.id AS c FROM pairs [RANGE 5] AS p, C [PARTITION BY x ROWS 2] WHERE p.x = C.x",
    "filtered": "SELECT s.id, C.id AS c FROM some [RANGE 5] AS s, C [RANGE 5] WHERE s.x = C.x",
    "grouped": "SELECT x, COUNT(*) AS n FROM pairs [RANGE 7] GROUP BY x",
    "counted": "SELECT y, COUNT(*) AS n FROM pairs [RANGE 7] GROUP BY y",
    "newest": "SELECT t.n, C.id AS c FROM tallies [ROWS 3] AS t, C [NOW] WHERE t.n > 10 * C.y",  # no ties in time
    "again": "SELECT a FROM warm [RANGE 9] WHERE y < 4",
    "alone": "SELECT A.id FROM A [RANGE 5], C [RANGE 5] WHERE A.x = C.x",
}
RELATIONS = {
    "session": "SELECT a, window_start, COUNT(*) AS n FROM SESSION(pairs PARTITION BY a, _ts, 3) "
    "GROUP BY a, window_start, window_end",
    "tumble": "SELECT x, window_end, COUNT(*) AS n FROM TUMBLE(pairs, _ts, 8) GROUP BY x, window_start, window_end",
    "hop": "SELECT window_end, SUM(y) AS n FROM HOP(pairs, _ts, 3, 9) GROUP BY window_start, window_end",
    "closed": "SELECT x, COUNT(*) AS n FROM TUMBLE(pairs, _ts, 8) GROUP BY x, window_start, window_end "
    "EMIT ON WINDOW CLOSE",
    "running": "SELECT a, SUM(y) OVER (PARTITION BY x ORDER BY _ts RANGE 5 PRECEDING) AS s FROM pairs",
    "before": "SELECT a, SUM(y) OVER (PARTITION BY x ORDER BY _ts ROWS 3 PRECEDING) AS s FROM pairs",
    "lagged": "SELECT LAG(y, 2) OVER (PARTITION BY x ORDER BY _ts) AS p FROM pairs",
    "top": "SELECT x, a, b FROM pairs [RANGE 7] QUALIFY ROW_NUMBER() OVER (PARTITION BY x ORDER BY y, a, b) <= 2",
    "left": "SELECT p.a, p.b, C.id AS c FROM pairs [RANGE 4] AS p LEFT JOIN C [RANGE 3] ON p.a % 7 = C.id % 7",
    "final": "SELECT p.a, p.b, C.id AS c FROM pairs [RANGE 4] AS p LEFT JOIN C [RANGE 3] ON p.a % 7 = C.id % 7 "
    "EMIT ON WINDOW CLOSE",
    "exists": "SELECT id FROM C [RANGE 3] WHERE EXISTS (SELECT 1 FROM pairs [RANGE 4] AS p WHERE p.a % 9 = C.id % 9)",
    "nested": "SELECT MAX(n) AS m FROM (SELECT x, COUNT(*) AS n FROM pairs [RANGE 7] GROUP BY x) AS g",
    "except": "SELECT x FROM pairs [RANGE 7] EXCEPT SELECT y FROM pairs [RANGE 3]",
    "slides": "SELECT COUNT(*) AS n FROM pairs [RANGE 9 SLIDE 4]",
}
TEXTS = READERS | RELATIONS


def build_spec(readers: list[str], cells: int) -> PipelineSpec:
    derived = [QuerySpec("pairs", PAIRS, derived=True)]
    if "filtered" in readers:
        derived.append(QuerySpec("some", "SELECT id, x FROM A [NOW] WHERE y > 1", derived=True))
    if "newest" in readers:
        derived.append(QuerySpec("tallies", "SELECT COUNT(*) AS n FROM pairs [RANGE 5]", derived=True))
    if "again" in readers:
        derived.append(QuerySpec("warm", "SELECT a, y FROM pairs [NOW] WHERE y > 0", derived=True))
    return PipelineSpec(STREAMS, {}, (*derived, *(QuerySpec(name, TEXTS[name]) for name in readers)), cells)


def draw_pushes(seed: int, steps: int = 14) -> list[Push]:
    rng = np.random.default_rng(seed)
    return [
        Push({
            name: pa.table([np.sort(rng.integers(2 * at, 2 * at + 2, 12)), rng.integers(0, 1 << 40, 12),
                            rng.integers(0, 5, 12), rng.integers(0, 5, 12)], schema=SCHEMA)
            for name in "ABC"
        })
        for at in range(steps)
    ]  # fmt: skip


def run_embedded(made: PipelineSpec, given: list[Push]) -> dict[str, pa.Table]:
    engine = ps.Engine()
    for stream in STREAMS:
        engine.stream(stream.name, SCHEMA, time="ts")
    for query in made.queries:
        (engine.derive if query.derived else engine.query)(query.name, query.text)
    found = [engine.push(dict(step.batches)) for step in given]
    return {query.name: pa.concat_tables([each[query.name] for each in found])
            for query in made.queries if not query.derived}  # fmt: skip


@pytest.mark.parametrize("seed", range(16))
def test_derived_streams_exact_under_faults(seed: int) -> None:
    rng = random.Random(seed)
    readers = rng.sample(list(READERS), rng.choice((1, 2, 3)))
    made, given = build_spec(readers, rng.choice((1, 2, 3, 4))), draw_pushes(seed)
    cluster = Cluster(made, workers=2)
    outputs = [row for step in given for row in push_until_committed(cluster, step, rng)]
    for name, wanted in run_embedded(made, given).items():
        found = pa.concat_tables([wanted.schema.empty_table(), *cluster.decode_tables(outputs, "result", name)])
        fault = difference(found, wanted)
        assert fault is None, f"seed {seed}, {made.cells} cells, {name} of {readers}\n{fault}"
    assert {"hit", "rebuild"} <= set(cluster.cache_outcomes)


@pytest.mark.parametrize("reader", RELATIONS)
def test_relations_over_derived_streams_exact_under_faults(reader: str) -> None:
    for seed in range(2):
        rng = random.Random(seed)
        made, given = build_spec([reader], rng.choice((1, 3))), draw_pushes(seed)
        cluster = Cluster(made, workers=2)
        outputs = [row for step in given for row in push_until_committed(cluster, step, rng)]
        wanted = run_embedded(made, given)[reader]
        found = pa.concat_tables([wanted.schema.empty_table(), *cluster.decode_tables(outputs, "result", reader)])
        fault = difference(found, wanted)
        assert fault is None, f"seed {seed}, {made.cells} cells\n{fault}"
        assert wanted.num_rows


@pytest.mark.parametrize("seed", range(4))
def test_added_readers_see_what_is_derived_later(seed: int) -> None:
    """A query added while running reads what is derived from rows that come later, also in rebuilt cells."""
    rng = random.Random(seed)
    first, late, altered = rng.sample(sorted(set(READERS) - {"alone"}), 3)
    made, given = build_spec([first, late, altered], rng.choice((1, 2, 3, 4))), draw_pushes(seed)
    text = made.config.find_query(altered).text
    old = made.config.drop_query(late).drop_query(altered).add_query(altered, text, None, None, since=0, derived=False)
    cluster = Cluster(made.with_config(old), workers=2)
    parts: list[list[OutputRow]] = []
    for at, step in enumerate(given):
        config = cluster.layout.spec.config
        if at == 4:
            config = AddQuery(late, READERS[late]).configure(config, 1)
        if at == 6:
            config, note = alter_query(cluster.layout, AlterQuery(altered, READERS[altered]), 2)
            assert "starts with empty windows: it reads a derived stream" in note
        if at == 11:
            config = DropQuery(late).configure(config, 3)
        cluster.layout = Layout(cluster.layout.spec.with_config(config))
        parts.append(push_until_committed(cluster, step, rng))
    wanted = {first: [given], late: [given[4:11]], altered: [given[:6], given[6:]]}
    for name, runs in wanted.items():
        tables = [run_embedded(made, run)[name] for run in runs]
        found = [tables[0].slice(0, 0), *cluster.decode_tables([row for part in parts for row in part], "result", name)]
        fault = difference(pa.concat_tables(found), pa.concat_tables(tables))
        assert fault is None, f"seed {seed}, {made.cells} cells, {name}\n{fault}"
    copies = {(query.copy_of, query.since) for query in cluster.layout.spec.queries if query.copy_of}
    assert {since for _, since in copies} == {2}


def describe_placement(*readers: str) -> dict[str, str]:
    return {name: str(placement) for name, placement in Layout(build_spec(list(readers), 4)).placements.items()}


def test_query_needing_all_rows_pins_derived_stream() -> None:
    apart = describe_placement("rows", "ends", "alone")
    assert apart["pairs"] == apart["alone"] == "4 cells, each row in 1 of them on average"
    assert apart["rows"] == apart["ends"] == "in the cells of pairs"
    together = describe_placement("rows", "joined", "alone")
    assert together["pairs"].endswith("joined needs all rows of the derived stream pairs")
    assert together["joined"].split(":")[0] == together["pairs"].split(":")[0]
    assert together["alone"].startswith("4 cells")
    keyed = describe_placement("rows", "matched", "filtered")
    assert keyed["matched"] == keyed["pairs"] == keyed["some"] == "4 cells, each row in 1 of them on average"
    assert keyed["rows"] == "in the cells of pairs"
    chained = describe_placement("again", "counted")
    assert chained["warm"] == "in the cells of pairs"
    assert chained["again"] == "in the cells of warm"
    assert "counted needs all rows" in chained["pairs"]
    assert describe_placement("grouped")["pairs"].startswith("4 cells")


@pytest.mark.parametrize(("readers", "most"), [(["rows"], 150), (["joined"], 400)])
def test_inputs_of_derived_stream_are_freed(readers: list[str], most: int) -> None:
    """Rows of A and B are kept for their own windows and those of the readers, and no longer."""
    cluster = Cluster(build_spec(readers, 1))
    for step in draw_pushes(1, 60):
        cluster.push(step)
    head = StateHeader.decode(*cluster.states[0].map[HEADER_KEY])
    assert sum(segment.rows for segment in head.segments) < most


def test_pipeline_with_derived_stream(spark: Any, tmp_path: Path) -> None:
    given = draw_pushes(5, 5)
    pipe = ps.Pipeline(spark)
    for stream in STREAMS:
        pipe.stream(stream.name, read_stream(spark, SCHEMA, tmp_path / stream.name), "ts")

    def write_step(step: Push, number: int) -> None:
        for name, table in step.batches.items():
            write_file(tmp_path / name / f"{number}.parquet", table, number)

    for number in range(2):
        write_step(given[number], number)
    pipe.derive("pairs", PAIRS)
    with pytest.raises(ps.QueryError, match="DUPLICATE_NAME"):
        pipe.table("Pairs", pa.table({"x": [1]}))
    with pytest.raises(ps.QueryError, match="NO_QUERY"):
        pipe.start(tmp_path / "ck")
    answers = {name: sinks.memory() for name in ("rows", "joined")}
    for name, sink in answers.items():
        pipe.query(name, READERS[name], sink=sink)
    assert "joined needs all rows" in pipe.explain(2)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        run.processAllAvailable()
        run.add("ends", READERS["ends"], sink=sinks.parquet(str(tmp_path / "ends")))
        write_step(given[2], 2)
        run.processAllAvailable()
        with pytest.raises(ps.QueryError, match="DERIVED_STREAM"):
            run.drop("pairs")
        metrics = run.metrics()["queries"]
    finally:
        run.stop()
    for number in (3, 4):  # the stream that the added query reads continues after a restart
        write_step(given[number], number)
    run = pipe.start(tmp_path / "ck")
    try:
        run.processAllAvailable()
        assert not run.status["evolved"]
    finally:
        run.stop()
    wanted = run_embedded(build_spec(["rows", "joined"], 2), given)
    later = run_embedded(build_spec(["ends"], 2), given[2:])["ends"]
    assert difference(pq.read_table(tmp_path / "ends"), later) is None
    for name, sink in answers.items():
        assert difference(sink.table(), wanted[name]) is None
    assert metrics["pairs"]["emitted"] >= metrics["rows"]["emitted"] > 0
