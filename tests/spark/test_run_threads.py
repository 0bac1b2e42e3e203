"""Methods of a run called from several threads, during micro-batches and inside them. No Spark is started.

The micro-batches are simulated: the test calls what `foreachBatch` would call, in a thread of its choice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inspect_spark import deliver_to_waiting_batch, last_command_number

import penstock as ps
from penstock.adapt import AdaptCommand, Decision, DropQuery, Migrate, QueryCommand, Rules
from penstock.cql import Query as BoundQuery
from penstock.cql import Stream, bind_query
from penstock.spark.driver.adaptive import AdaptiveRun, BatchTiming
from penstock.spark.driver.batch_sink import BatchSink, describe_batch
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.driver.control import CommandLog
from penstock.spark.driver.started_pipeline import StartedPipeline
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.run import Run
from penstock.spark.sinks import Sink
from penstock.spark.spec import PipelineSpec
from penstock.spark.storage import Folder
from penstock.spark.worker.cell_state import METRICS, RESULT
from penstock.state import encode_table

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
OUTPUT_NAMES = ["cell", "kind", "name", "rows", "data"]
TEXT = "SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x = B.x"


class Query:
    """The part of Spark's StreamingQuery that a run uses."""

    isActive = True  # noqa: N815 - Spark's names
    lastProgress: Any = None  # noqa: N815
    status: Mapping[str, Any] = {"message": ""}
    stopped = 0

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stopped += 1
        self.isActive = False

    def processAllAvailable(self) -> None:
        return None

    def awaitTermination(self, timeout: int | None = None) -> bool:
        return timeout is None


class Declared:
    """The part of a pipeline that a run uses."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.plan = spec.config
        self.catalog = spec.catalog

    def bind(self, text: str) -> BoundQuery:
        return bind_query(text, self.catalog)

    def change(self, given: QueryCommand, sink: Sink | None = None, cells: int = 1) -> QueryCommand:
        del sink, cells
        command = self.plan.resolve_names(given)
        self.plan = command.configure(self.plan, 0)
        return command


class CallingSink:
    """A sink that makes one call when it is opened or written to, and keeps the result."""

    def __init__(self, opening: Callable[[], object] | None = None) -> None:
        self.opening = opening
        self.writing: Callable[[], object] | None = None
        self.answers: list[object] = []

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        del run, name, schema
        self._answer(self.opening)

    def write(self, batch: int, table: pa.Table) -> None:
        del batch, table
        call, self.writing = self.writing, None
        self._answer(call)

    def _answer(self, call: Callable[[], object] | None) -> None:
        if call is not None:
            try:
                self.answers.append(call())
            except ps.QueryError as error:
                self.answers.append(error.condition)


class Batches:
    """A run with simulated micro-batches."""

    def __init__(self, folder: Path) -> None:
        self.sink = CallingSink()
        self.properties: dict[str, str] = {}
        streams = tuple(Stream(name, SCHEMA, "ts") for name in "AB")
        spec = PipelineSpec(streams, {}, (QuerySpec("q", TEXT), QuerySpec("p", TEXT)), cells=2)
        place = Folder(str(folder))
        sinks: dict[tuple[str, str], Sink] = {(RESULT, "q"): self.sink, (RESULT, "p"): CallingSink()}
        metadata, _ = CheckpointMetadata.open(place, spec)
        self.outlets = BatchSink(spec, metadata, sinks, self.properties.__setitem__)
        self.desk = CommandLog(place)
        self.query = Query()
        launched = StartedPipeline(self.query, self.outlets, self.desk, str(folder), None)  # type: ignore[arg-type]
        self.run = Run(Declared(spec), launched)
        self.number = 0

    def toArrow(self) -> pa.Table:
        report = {
            "version": 1, "segments": 0, "base_rows": 0, "how": "hit", "seconds": 0.0, "rows": {}, "tops": {},
            "heard": ["A"], "frontiers": {"A": 5}, "awaits": {}, "seen": last_command_number(self.desk), "worked": 0.0,
            "failure": None, "failures": {}, "cell": {}, "status": None, "memory": None,
        }  # fmt: skip
        rows = encode_table(pa.table({"x": [1], "_ts": [1]}))
        outputs = [
            *((cell, METRICS, "", 0, json.dumps(report).encode()) for cell in range(2)),
            *((0, RESULT, name, 1, rows) for name in "qp"),
        ]
        return pa.table(list(map(list, zip(*outputs, strict=True))), OUTPUT_NAMES)

    def play(self) -> None:
        """One micro-batch, with all commands given so far."""
        self.outlets(self, self.number)  # type: ignore[arg-type]
        self.number += 1


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


@pytest.mark.parametrize("name", ["stop", "processAllAvailable", "awaitTermination"])
def test_blocking_calls_refused_in_sink(batches: Batches, name: str) -> None:
    batches.sink.writing = getattr(batches.run, name)
    batches.play()
    assert batches.sink.answers == ["REENTRANT_CALL"]
    assert batches.query.isActive
    getattr(batches.run, name)()  # after the micro-batch the same thread may call it


@pytest.mark.parametrize("name", ["stop", "processAllAvailable", "awaitTermination"])
def test_blocking_calls_refused_in_listener(batches: Batches, name: str) -> None:
    found: list[object] = []

    def listen(_batch: int, _cells: object) -> None:
        with pytest.raises(ps.QueryError, match=f"REENTRANT_CALL.*{name}"):
            getattr(batches.run, name)()
        found.append(name)

    batches.run.listen(listen)
    batches.play()
    assert found == [name]


def test_commands_in_sink_do_not_wait(batches: Batches) -> None:
    batches.sink.writing = lambda: batches.run.add("late", TEXT, CallingSink())
    batches.play()
    assert batches.sink.answers == [None]
    assert "late" not in batches.run.metrics()["queries"]
    batches.play()
    assert "late" in batches.run.metrics()["queries"]


def test_commands_while_opening_sink_refused(batches: Batches) -> None:
    calls = (lambda: batches.run.drop("q"), batches.run.stop, batches.run.processAllAvailable)
    for number, call in enumerate(calls):
        sink = CallingSink(call)
        batches.sink.writing = lambda sink=sink, number=number: batches.run.add(f"n{number}", TEXT, sink)
        batches.play()
        assert sink.answers == ["REENTRANT_CALL"]
    batches.play()
    assert {"q", "n0", "n1", "n2"} <= set(batches.run.metrics()["queries"])


def test_jobs_are_described_for_the_ui(batches: Batches) -> None:
    batches.play()
    assert batches.properties["spark.job.description"] == "Penstock micro-batch 0: q, p"
    assert describe_batch(7, list("abcdefg")) == "Penstock micro-batch 7: a, b, c, d, e and 2 more"


def test_thread_waits_again_after_its_micro_batch(batches: Batches) -> None:
    """Threads are reused: a thread is inside a micro-batch only while the micro-batch runs."""
    batches.play()
    number = batches.outlets.submit(DropQuery("q"), batches.desk)
    assert not batches.outlets.wait(number, 0)
    batches.play()
    assert batches.outlets.wait(number, 0)


def test_threads_change_and_read_during_micro_batches(batches: Batches) -> None:
    changing = threading.Barrier(3)
    running = [True]
    raised: list[BaseException] = []

    def change(part: int) -> None:
        for number in range(15):
            name = f"n{part}_{number}"
            batches.run.add(name, TEXT, CallingSink())
            batches.run.migrate(name, "(B A)")
            if number % 3:
                batches.run.drop(name)

    def read() -> None:
        while running[0]:
            assert "q" in batches.run.metrics()["queries"]
            assert "q: " in batches.run.explain()
            assert "budgets" in batches.run.status
            batches.outlets.find_due_frontiers(10)

    def work(call: Callable[[], None]) -> None:
        changing.wait()
        try:
            call()
        except BaseException as error:
            raised.append(error)

    def play() -> None:
        try:
            while running[0]:
                batches.play()
        except BaseException as error:
            raised.append(error)

    changers = [threading.Thread(target=work, args=(lambda part=part: change(part),), daemon=True) for part in range(2)]
    reader = threading.Thread(target=work, args=(read,))
    player = threading.Thread(target=play)
    for thread in (*changers, reader, player):
        thread.start()
    while any(thread.is_alive() for thread in changers) and not raised:  # without a player, changers wait for ever
        changers[0].join(0.05)
        changers[1].join(0.05)
    running[0] = False
    for thread in (reader, player):
        thread.join()
    assert raised == []
    kept = {f"n{part}_{number}" for part in range(2) for number in range(0, 15, 3)}
    assert set(batches.run.metrics()["queries"]) == {"q", "p", *kept}


def test_unwritable_command_releases_micro_batch() -> None:
    """With `wait` a micro-batch waits for decisions; an error while sending one releases it."""

    def give(_command: AdaptCommand, _done: Callable[[int], None]) -> None:
        raise OSError("no folder")

    steering = AdaptiveRun(Rules(), ("migrate",), 1, BatchTiming(None, 1), lambda: None, give)
    assert deliver_to_waiting_batch(steering, [Decision(Migrate("q", "(B A)"), 0.0, {})])
    assert [decision.error for decision in steering.decisions()] == ["OSError: no folder"]
