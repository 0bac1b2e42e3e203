"""Generated cases, run on an engine that computes all results with the oracle at the end."""

from __future__ import annotations

import types
from typing import Any

import pyarrow as pa
import pytest

from penstock.cql import Stream
from penstock.testing import Advance, Case, Push, another_query, difference, expected, random_case, run, shrink
from penstock.testing.oracle import bind_text
from penstock.testing.query_text import SHAPES, WINDOWS

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])


class OracleEngine:
    """An engine that stores its pushes and computes all results at the flush."""

    def __init__(self, lose: int | None = None) -> None:
        self.lose = lose  # drops tuples with this id: a fault to detect
        self.case = Case(0, (), {}, "", "", ())
        self.streams: list[Stream] = []
        self.tables: dict[str, pa.Table] = {}
        self.steps: list[Any] = []
        self.text = ""

    def stream(self, name: str, schema: pa.Schema, *, time: str, lateness: Any = 0) -> None:
        ticks = lateness if isinstance(lateness, int) else int(lateness.total_seconds() * 1_000_000)
        self.streams.append(Stream(name, schema, time, ticks))

    def table(self, name: str, table: pa.Table) -> None:
        self.tables[name] = table

    def query(self, name: str, text: str, plan: str | None = None) -> None:
        assert name == "q"
        assert plan is None or plan.count("(") == plan.count(")")
        self.text = text

    def push(self, batches: dict[str, pa.Table]) -> dict[str, pa.Table]:
        if self.lose is not None:
            batches = {n: t.filter(pa.compute.field("id") != self.lose) for n, t in batches.items()}
        self.steps.append(Push(batches))
        empty = {stream.name: stream.schema.empty_table() for stream in self.streams}
        times = {stream.name: stream.time for stream in self.streams}
        return {"q": bind_text(self.text, empty, self.tables, times).schema.empty_table()}

    def advance(self, stream: str, value: Any) -> None:
        self.steps.append(Advance(stream, value))

    def flush(self) -> dict[str, pa.Table]:
        return {"q": self._case().expected}

    def _case(self) -> Case:
        return Case(0, tuple(self.streams), self.tables, self.text, "", tuple(self.steps))


def push(*rows: tuple[int | None, int]) -> Push:
    return Push({"s": pa.table({"ts": [t for t, _ in rows], "x": [x for _, x in rows]}, schema=SCHEMA)})


def test_lateness_judged_per_push() -> None:
    steps = (push((10, 1), (4, 2)), push((7, 3), (8, 4), (None, 5)), Advance("s", 20), push((19, 6), (20, 7)))
    case = Case(0, (Stream("s", SCHEMA, "ts", 2),), {}, "", "s", steps)
    assert case.accepted["s"].column("x").to_pylist() == [1, 2, 4, 7]
    assert case.late["s"].column("x").to_pylist() == [3, 6]
    assert case.accepted_since(1)["s"].column("x").to_pylist() == [4, 7]
    assert case.streams["s"].num_rows == 7


@pytest.mark.parametrize("seed", range(40))
def test_cases_are_reproducible_and_bounded(seed: int) -> None:
    case, again = random_case(seed, limit=500), random_case(seed, limit=500)
    assert case.script() == again.script()
    assert case.expected.num_rows <= 500
    assert another_query(case, seed) == another_query(again, seed)


def test_most_cases_have_answers_and_few_late_rows() -> None:
    cases = [random_case(seed) for seed in range(60)]
    assert sum(case.expected.num_rows > 0 for case in cases) > 45
    late = sum(any(table.num_rows for table in case.late.values()) for case in cases)
    assert 0 < late < 20


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_case_options(shape: str, window: str) -> None:
    case = random_case(5, shape=shape, windows=[window], sources=3, rows=10, tables=False, timestamps=False, late=False)
    assert not any(table.num_rows for table in case.late.values())
    assert not case.tables
    assert len(case.declarations) <= 3
    assert all(table.num_rows <= 10 for table in case.streams.values())


def test_unknown_option_refused() -> None:
    with pytest.raises(TypeError, match="shapes"):
        random_case(1, shapes="chain")


@pytest.mark.parametrize("seed", range(5))
def test_run_collects_engine_results(seed: int) -> None:
    case = random_case(seed, rows=15)
    assert difference(run(OracleEngine, case, plan=case.plan), case.expected) is None


def test_run_requires_temporal_order() -> None:
    class Backwards(OracleEngine):
        def flush(self) -> dict[str, pa.Table]:
            return {"q": super().flush()["q"].sort_by([("_ts", "descending")])}

    case = next(c for c in map(random_case, range(50)) if len(set(c.expected.column("_ts").to_pylist())) > 1)
    with pytest.raises(AssertionError, match="came after one of"):
        run(Backwards, case)


def test_events_may_replace_engine() -> None:
    case, seen = random_case(3, rows=10), []

    def event(engine: OracleEngine, step: int) -> OracleEngine | None:
        seen.append(step)
        if step != 1:
            return None
        other = OracleEngine()
        other.__dict__.update(engine.__dict__)
        return other

    assert difference(run(OracleEngine, case, events=event), case.expected) is None
    assert seen == list(range(len(case.steps) + 1))


def test_shrink_keeps_failure() -> None:
    def fails(case: Case) -> bool:
        return difference(run(lambda: OracleEngine(lose=3), case), case.expected) is not None

    case = random_case(0, sources=2, shape="shared", windows=["unbounded"], domain=1, nulls=0.0, rows=12, full=True,
                       emit="", tables=False)  # fmt: skip
    small = shrink(case, fails)
    assert fails(small)
    assert sum(table.num_rows for table in small.streams.values()) <= 2
    with pytest.raises(ValueError, match="this one does not"):
        shrink(case, lambda _: False)


def test_case_script_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("penstock")
    package.Engine = lambda **_: OracleEngine()  # type: ignore[attr-defined]
    package.__path__ = []
    for seed in range(10):
        program = compile(random_case(seed, rows=10).script(), f"seed {seed}", "exec")
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, "penstock", package)
            exec(program, {})


def test_expected_takes_text() -> None:
    a, b = pa.table({"ts": [1, 5], "x": [7, 7]}), pa.table({"at": [3], "x": [7]})
    text = "SELECT A.ts AS a, B.at AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x"
    assert expected(text, {"A": a, "B": b}).to_pylist() == [{"a": 1, "b": 3, "_ts": 3}, {"a": 5, "b": 3, "_ts": 5}]
    assert expected(text, {"A": a, "B": b}, time={"B": "at"}).num_rows == 2
