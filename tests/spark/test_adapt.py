"""Adaptation on Spark: cells sample, the driver decides and sends commands, and results do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cell_support import Cluster
from drift import CHAIN, PLAN, SCHEMA, make_rows, run_embedded
from spark_support import wait_until

import penstock as ps
from penstock.adapt import (
    ACTIONS,
    AdaptCommand,
    JoinSample,
    Migrate,
    PushStats,
    Rules,
    SampleMerger,
    decode_samples,
)
from penstock.adapt.sample_merger import merge_samples
from penstock.cql import Stream
from penstock.plan import JoinGraph, parse_tree
from penstock.spark import sinks
from penstock.spark.driver.adaptive import AdaptiveRun, BatchTiming
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.generated import generate_stream
from penstock.spark.layout import Layout
from penstock.spark.pipeline import Pipeline
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.run import Run
from penstock.spark.spec import PipelineSpec, SamplingSettings
from penstock.spark.storage import Folder
from penstock.spark.worker.cell_state import SAMPLES, OutputRow
from penstock.testing import Push, difference

EAGER = Rules(wait=True, effort=1.0, least=100.0, full=1e9)
"""Decides as soon as possible; `full` prevents shedding on a slow machine."""


def make_sample(cell: int, **changes: Any) -> JoinSample:
    names = {alias: alias for alias in "AB"}
    return replace(
        JoinSample(
            join="j",
            query="q",
            names=names,
            shapes=("(A B)",),
            join_index=0,
            time=10.0 + cell,
            horizon=10.0,
            graph=JoinGraph(("A", "B"), (), (), ()),
            tree=parse_tree("(A B)", ("A", "B")),
            state="auto",
            codes={},
            rates={"A": 2.0 * cell, "B": 4.0},
            rows={"A": 10.0 * cell, "B": 40.0},
            state_rows=cell,
            push_stats=PushStats(5, float(cell), 2.5),
            join_count=1,
            sheddable=True,
            has_own_budget=False,
            demand_ratio=None,
            pairs={frozenset("AB"): (float(cell), 100.0)},
        ),
        **changes,
    )


def test_merged_samples_average_over_cells() -> None:
    empty = make_sample(3, rows={"A": 0.0, "B": 0.0}, sheddable=False)
    found = merge_samples([make_sample(1), make_sample(3, demand_ratio=0.7), empty])
    assert found is not None
    assert found.rates == {"A": 4.0, "B": 4.0}
    assert found.rows == {"A": 20.0, "B": 40.0}
    assert found.pairs == {frozenset("AB"): (4.0, 200.0)}
    assert found.push_stats == PushStats(5, 3.0, 2.5)
    assert (found.state_rows, found.sheddable, found.demand_ratio, found.time) == (4, True, 0.7, 13.0)
    assert merge_samples([empty]) is None


def test_gather_samples_of_all_cells() -> None:
    """Samples are collected from all cells, or until one cell reports again."""
    gathering = SampleMerger(2)
    assert gathering.add({0: [make_sample(1)]}, {"q"}) == []
    (both,) = gathering.add({1: [make_sample(3)]}, {"q"})
    assert both.state_rows == 4
    assert gathering.add({0: [make_sample(1)]}, {"q"}) == []
    (alone,) = gathering.add({0: [make_sample(2)]}, {"q"})  # cell 1 was rebuilt and has no sample yet
    assert alone.state_rows == 1
    assert gathering.add({}, set()) == []
    assert gathering.add({1: [make_sample(3)]}, {"q"}) == []  # samples from before the drop are discarded


def test_time_left_to_engines_by_spark() -> None:
    effort, pace = PushStats(pushes=10, seconds=4.0, event_seconds=60.0), BatchTiming(1.0, 2)
    assert pace.limit_effort(effort, 1.0).allowed_seconds == 4.0  # Spark's overhead is not known yet
    for batch in range(3):
        pace.record_engine_time(batch, 0.1)
        pace.record_batch_time(batch, 0.6)
    assert pace.limit_effort(effort, 1.0).allowed_seconds == pytest.approx((10 * 1.0 - 10 * 0.4) / 2)
    live = BatchTiming(None, 1)
    live.record_engine_time(0, 0.1)
    live.record_batch_time(0, 0.6)
    assert live.limit_effort(effort, 2.0).allowed_seconds == pytest.approx(60 / 2 - 10 * 0.5)
    slow = BatchTiming(1.0, 1)
    slow.record_engine_time(0, 0.0)
    slow.record_batch_time(0, 30.0)
    assert slow.limit_effort(effort, 1.0).allowed_seconds == pytest.approx(0.2 * 10)
    slow.record_batch_time(7, 1.0)  # of an unknown micro-batch


# ── cells without Spark ──────────────────────────────────────────────────────────────────────────────────────────


class AdaptiveCluster(Cluster):
    """Cells whose samples go to an AdaptiveRun, and whose plan follows its commands with the next micro-batch."""

    def __init__(self, text: str, cells: int, rules: Rules, seconds: Callable[[int], float] = lambda _: 0.0) -> None:
        streams = tuple(Stream(name, SCHEMA, "ts") for name in "ABC")
        super().__init__(
            PipelineSpec(
                streams, {}, (QuerySpec("q", text, PLAN),), cells, sampling=SamplingSettings(rules.effort, False)
            )
        )
        self.batch = -1
        self._seconds = seconds
        self.steering = AdaptiveRun(rules, ACTIONS, cells, BatchTiming(1.0, 1), self._progress, self.give)

    def _progress(self) -> dict[str, Any]:
        return {"batchId": self.batch, "durationMs": {"triggerExecution": 500}}

    def give(self, command: AdaptCommand, done: Callable[[int], None]) -> None:
        spec = self.layout.spec
        self.layout = Layout(spec.with_config(command.configure(spec.config, 0)))
        done(self.batch + 1)

    def next(self) -> list[OutputRow]:
        self.batch += 1
        out = self.push(Push({name: make_rows(name, self.batch) for name in "ABC"}))
        samples = {cell: decode_samples(data) for cell, kind, _, _, data in out if kind == SAMPLES}
        took = self._seconds(self.batch)
        slow = {
            cell: [replace(each, push_stats=replace(each.push_stats, seconds=took)) for each in seen]
            for cell, seen in samples.items()
        }
        self.steering.add_batch(self.batch, [took], slow, {"q"})
        return out


def test_adapt_migrates_all_cells_and_keeps_results() -> None:
    cluster = AdaptiveCluster(CHAIN, 3, EAGER)
    out = [row for _ in range(14) for row in cluster.next()]
    cluster.steering.close()
    (decision,) = cluster.steering.decisions()
    assert decision.command == Migrate("q", "(A (B C))")
    assert decision.push is not None
    assert decision.push > 6
    assert cluster.layout.spec.queries[0].plan == "(A (B C))"
    assert set(cluster.cache_outcomes) == {"new", "hit"}  # the engines changed in place
    wanted = run_embedded(CHAIN, 14)
    found = pa.concat_tables(cluster.decode_tables(out, "result", "q"))
    last = pa.compute.max(found["_ts"]).as_py()
    assert last >= 14 * 5 - 1
    assert difference(found, wanted.filter(pa.compute.field("_ts") <= last)) is None


def test_catch_up_not_counted_as_effort() -> None:
    """An engine that catches up advances event time in a push that it does not time."""
    streams = tuple(Stream(name, SCHEMA, "ts") for name in "ABC")
    cluster = Cluster(
        PipelineSpec(streams, {}, (QuerySpec("q", CHAIN, PLAN),), 1, sampling=SamplingSettings(1.0, False)), workers=2
    )
    workers = iter([0, 0, 1, 1, 0, 1, 0, 0, 0, 1])
    efforts = []
    for number in range(10):
        out = cluster.push(Push({name: make_rows(name, number) for name in "ABC"}), lambda: next(workers))
        efforts += [each.push_stats for _, kind, _, _, data in out if kind == SAMPLES for each in decode_samples(data)]
    assert cluster.cache_outcomes.count("catch-up") == 4
    assert len(efforts) > 4
    assert all(4 <= effort.event_seconds / effort.pushes <= 6 for effort in efforts)


def test_adapt_sheds_overload_with_freshness() -> None:
    """Overload is shed for a query with FRESHNESS, and the budget is lifted afterwards."""
    cluster = AdaptiveCluster(
        f"{CHAIN} FRESHNESS A 20", 2, replace(EAGER, full=1.0), lambda b: 3.0 if 6 <= b < 10 else 0.001
    )
    kept, out = [], []
    for _ in range(24):
        out += cluster.next()
        kept.append(cluster.layout.spec.queries[0].shed)
    cluster.steering.close()
    budgets = [each for each in cluster.steering.decisions() if each.command.do == "budget"]
    assert [each.error for each in budgets] == [None, None]
    assert budgets[0].command.value is not None
    assert budgets[1].command.value is None
    assert kept[5] is None
    assert kept[-1] is None
    assert any(kept)
    found = Counter(map(str, pa.concat_tables(cluster.decode_tables(out, "result", "q")).to_pylist()))
    assert found
    assert found <= Counter(map(str, run_embedded(CHAIN, 24).to_pylist()))


def test_refused_command_is_failed_decision() -> None:
    class RefusingCluster(AdaptiveCluster):
        def give(self, command: AdaptCommand, done: Callable[[int], None]) -> None:
            del command, done
            raise ps.QueryError("UNKNOWN_QUERY", "gone")

    cluster = RefusingCluster(CHAIN, 2, EAGER)
    out = [row for _ in range(12) for row in cluster.next()]
    cluster.steering.close()
    assert out
    assert [each.error for each in cluster.steering.decisions()][:1] == ["QueryError: [UNKNOWN_QUERY] gone"]


# ── on Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────


MANY = 1000
"""More batches than a decision needs: when cells sample depends on the workers that Spark assigns."""


def declare_pipeline(spark: Any, answer: Any, stretches: int = MANY, text: str = CHAIN) -> Pipeline:
    pipe = Pipeline(spark)
    for name in "ABC":
        frame = generate_stream(spark, partial(make_rows, name), stretches)
        pipe.stream(name, frame, "ts", schema=SCHEMA, packed=True)
    pipe.query("q", text, sink=answer, plan=PLAN)
    return pipe


def has_decision(run: Run) -> bool:
    """Whether a decision is in effect."""
    return any(each.push is not None for each in run.decisions())


def test_pipeline_adapts_across_restart(spark: Any, tmp_path: Path) -> None:
    answer = sinks.memory()
    run = declare_pipeline(spark, answer).start(tmp_path, cells=2, adapt=EAGER)
    try:
        wait_until(lambda: has_decision(run))
        decisions = run.decisions()
    finally:
        run.stop()
    assert [each.command for each in decisions] == [Migrate("q", "(A (B C))")]
    assert decisions[0].error is None
    ledger = CheckpointMetadata.read(Folder(str(tmp_path)))
    assert ledger is not None
    assert ledger.schedule.last.find_query("q").plan == "(A (B C))"
    stretches = run.metrics()["batch"] + 4
    run = declare_pipeline(spark, answer, stretches).start(tmp_path, cells=2)
    try:
        run.processAllAvailable()
        run.finish()
        run.processAllAvailable()
        assert run.decisions() == []
    finally:
        run.stop()
    assert difference(answer.table(), run_embedded(CHAIN, stretches)) is None


def test_pipeline_behind_trigger_sheds_load(spark: Any, tmp_path: Path) -> None:
    """No engine keeps up with a trigger of one millisecond, so the controller sets a budget and reports it.

    The size and the time of that budget depend on the machine; a budget in probes sheds on every machine.
    """
    text, answer = f"{CHAIN} FRESHNESS A 20", sinks.memory()
    pipe = declare_pipeline(spark, answer, text=text)
    run = pipe.start(tmp_path, {"processingTime": "1 millisecond"}, cells=2)
    try:
        wait_until(lambda: has_decision(run))
        decisions, status, figures = run.decisions(), run.status, run.metrics()["queries"]["q"]
        run.budget(4)
    finally:
        run.stop()
    assert [(each.command.do, each.command.value) for each in decisions] == [("budget", "1 ms")]
    assert status["budgets"] == {"q": "1 ms"}
    assert status["isTriggerActive"] in (True, False)
    assert 0 <= figures["completeness"] <= 1  # 0: no row of the first micro-batch probed in the millisecond
    stretches = run.metrics()["batch"] + 7
    run = declare_pipeline(spark, answer, stretches, text).start(tmp_path, cells=2)
    try:
        run.processAllAvailable()
        figures, explicit = run.metrics()["queries"]["q"], run.status["budgets"]
        run.budget(None)
        lifted = run.status["budgets"]
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    assert explicit == {"q": "2 probes per second and cell"}
    assert figures["budget"] == explicit["q"]
    assert lifted == {}
    assert 0 < figures["completeness"] < 1
    assert figures["unprobed"] > 0
    found = Counter(map(str, answer.table().to_pylist()))
    assert found
    assert found < Counter(map(str, run_embedded(CHAIN, stretches).to_pylist()))
    with pytest.raises(ps.QueryError, match="BAD_TRIGGER"):
        pipe.start(tmp_path, {"processingTime": "soon"}, cells=2)
