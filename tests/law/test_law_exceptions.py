"""The law with exceptions: after a call fails at any allocation or kernel, results are exact or the engine is broken.

A random run of calls is made once without faults, which gives its results and the number of fault points per call.
Then it is repeated, and some calls raise at one of their fault points. If the engine is not broken, the failed call is
repeated. If it is broken, every call must be refused until the last snapshot is restored; the run continues from there.
The results must be those of the first run, which are compared with the oracle.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest tests/law/test_law_exceptions.py
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import fault_points
import pyarrow as pa
import pytest
from law_support import FIRST, SEEDS, STATES, STRESS_RULES, make_engine

import penstock as ps
from penstock.testing import Advance, Case, another_query, difference, random_case, random_operators_case, random_plan

ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: MemoryError("injected"),
    lambda: pa.ArrowMemoryError("injected"),
    lambda: RuntimeError("injected"),
    lambda: KeyboardInterrupt("injected"),
)
FAULTS = 4
"""How many calls of a run fail."""
MOST = 3 if SEEDS <= 300 else 1_000_000
"""How many fault points of one call are tried; with many seeds all of them."""
SAVED = 0.25
"""How often a snapshot is taken."""


@dataclass(frozen=True)
class Call:
    """A call of an engine, by name; `restart` continues with an engine restored from a snapshot."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def make(self, engine: ps.Engine) -> Any:
        if self.name == "restart":
            return ps.Engine.restore(engine.snapshot())
        with suppress(ps.UnsupportedError):  # a parallel track with an unbounded window
            return getattr(engine, self.name)(*self.arguments, **dict(self.options))
        return None


@dataclass
class Answers:
    """The rows of every query so far, and the queries that stopped."""

    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    def add(self, name: str, table: pa.Table) -> None:
        self.rows.setdefault(name, []).append(table)

    def copy(self) -> Answers:
        return Answers({name: list(tables) for name, tables in self.rows.items()}, set(self.stopped))

    def tables(self) -> dict[str, pa.Table]:
        return {name: pa.concat_tables(tables) for name, tables in self.rows.items()}


class CallSequence:
    """The calls of a run, by seed: declarations, pushes, and queries that are added, altered and dropped."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"exceptions {seed}")
        self.case: Case = random_operators_case(seed, rows=12) if rng.random() < 0.4 else random_case(seed, rows=12)
        self.aliases = re.findall(r"\w+", self.case.plan)
        self.options: dict[str, Any] = {
            "state": rng.choice(STATES),
            "batch": rng.choice((1, 5, 4096)),
            "adapt": rng.choice((False, False, False, STRESS_RULES)),
        }
        self.running = ["q"]
        self.texts: dict[str, str] = {}
        self.coming = [f"o{number}" for number in range(rng.choice((0, 1, 3)))]
        self.calls = list(self._calls())

    def _calls(self) -> Iterator[Call]:
        for stream in self.case.declarations:
            yield Call("declare", (stream,))
        for name, table in self.case.tables.items():
            yield Call("table", (name, table))
        yield Call("query", ("q", self.case.query, self.rng.choice((None, self.case.plan or None))))
        for step in self.case.steps:
            yield from self._between()
            if isinstance(step, Advance):
                yield Call("advance", (step.stream, step.value))
            else:
                yield Call("push", (dict(step.batches),))
        yield Call("flush")

    def _between(self) -> Iterator[Call]:
        rng = self.rng
        if self.coming and rng.random() < 0.5:
            name = self.coming.pop()
            self.running.append(name)
            self.texts[name] = self._text()
            yield Call("query", (name, self.texts[name]), (("history", rng.random() < 0.3),))
        if rng.random() < 0.5:
            return
        name = rng.choice(self.running)
        what = rng.choice(
            ("restart", "migrate", "policy", "reslice", "schedule", "metrics", "explain", "drop", "alter", "budget")
        )
        match what:
            case "alter" if name != "q":
                yield Call("alter", (name, resize_windows(self.texts[name], rng.choice((1, 2, 3)))))
            case "budget":  # so large that nothing is shed; lifted at once
                yield Call("budget", (1e12,))
                yield Call("budget", (None,))
            case "policy":
                yield Call("policy", (name, rng.choice(STATES)))
            case "reslice":
                yield Call("reslice", (rng.choice(("mem-opt", "cpu-opt")),))
            case "schedule":
                yield Call("schedule", (rng.choice(("dfs", "bfs", "rr")),))
            case "drop" if name != "q":
                self.running.remove(name)
                yield Call("drop", (name,))
            case "migrate" if len(self.aliases) > 1 and ";" not in self.case.plan:
                how = rng.choice(("jisc", "jisc", "moving-state", "parallel-track"))
                yield Call("migrate", ("q", random_plan(rng, self.aliases), how))
            case "restart":
                yield Call("restart")
            case "metrics" | "explain":
                yield Call(what, (name,))

    def _text(self) -> str:
        """The query of the case with other windows, which shares its join, or another query."""
        if self.rng.random() < 0.6:
            return resize_windows(self.case.query, self.rng.choice((1, 2)))
        return another_query(self.case, self.rng.randrange(10_000))


def resize_windows(text: str, times: int) -> str:
    """A query with larger windows."""
    return re.sub(r"RANGE (\d+)", lambda found: f"RANGE {int(found[1]) * times}", text)


@dataclass(frozen=True)
class Fault:
    """Where a call, or reading its results, raises: at this fraction of its fault points."""

    place: float
    error: BaseException
    reading: bool


class FaultRun:
    """A run of calls, with faults by call number."""

    def __init__(
        self, run: CallSequence, faults: fault_points.FaultInjector, planned: dict[int, Fault], seed: int
    ) -> None:
        self.run = run
        self.faults = faults
        self.planned = dict(planned)
        self.rng = random.Random(f"snapshots {seed}")
        self.points: dict[tuple[int, bool], int] = {}
        """How many fault points a call, or reading its results, has."""
        self.outcomes: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self.engine: ps.Engine = make_engine(**self.run.options)
        self.answers = Answers()
        self.saved: tuple[bytes, int, Answers] | None = None

    def run_calls(self, points: dict[tuple[int, bool], int] | None = None) -> Answers:
        """Make all calls; `points` are those of a run without faults."""
        place = 0
        while place < len(self.run.calls):
            if self.planned and self.rng.random() < SAVED:
                self.saved = self.engine.snapshot(), place, self.answers.copy()
            place = self._make(place, points or {})
        self.engine.close()
        return self.answers

    def _make(self, place: int, points: dict[tuple[int, bool], int]) -> int:
        """Make a call; returns the number of the next call."""
        call, fault = self.run.calls[place], self.planned.get(place)
        made, failed = self._armed(lambda: call.make(self.engine), (place, False), fault, points)
        if failed:
            del self.planned[place]
            return self._recover(place, fault)
        if isinstance(made, ps.Engine):
            self.engine.close()
            self.engine = made
        elif call.name in ("push", "flush"):
            read, failed = self._armed(lambda: dict(made.items()), (place, True), fault, points)
            if failed:
                self.outcomes["read again"] += 1
                read = dict(made.items())
            for name, table in read.items():
                self.answers.add(name, table)
        return place + 1

    def _armed(
        self, make: Callable[[], Any], key: tuple[int, bool], fault: Fault | None, points: dict[tuple[int, bool], int]
    ) -> tuple[Any, bool]:
        """The result of a call, and whether it raised the planned exception."""
        due = fault if fault is not None and fault.reading is key[1] else None
        at = int(due.place * points.get(key, 0)) if due is not None else -1
        made, failed = None, False
        with self.faults.arm(at, due.error if due is not None else None):
            try:
                made = make()
            except BaseException as error:
                if due is None or self.faults.raised is None or not _is_caused_by(error, due.error):
                    raise
                failed = True
        self.points[key] = self.faults.calls
        if due is not None and self.faults.raised is not None and not failed:
            self._check_caught(due)
        return made, failed

    def _check_caught(self, fault: Fault) -> None:
        """An exception that the call does not raise has stopped a named query, or is recorded by the controller."""
        stopped = self.engine.failures()
        if self.run.options["adapt"] and not stopped:
            self.outcomes["controller"] += 1
            return
        assert isinstance(fault.error, RuntimeError), f"{fault.error!r} was lost"
        assert stopped, f"{fault.error!r} was lost"
        self.outcomes["query stopped"] += 1
        self.answers.stopped |= set(stopped)

    def _recover(self, place: int, fault: Fault | None) -> int:
        assert fault is not None
        if not is_broken(self.engine):
            self.outcomes["refused"] += 1
            return place
        self.outcomes["broken"] += 1
        check_refuses(self.engine, fault.error)
        if self.saved is None:
            self._begin()
            return 0
        blob, place, answers = self.saved
        self.engine, self.answers = ps.Engine.restore(blob), answers.copy()
        return place


def _is_caused_by(error: BaseException, by: BaseException) -> bool:
    return error is by or (error.__cause__ is not None and _is_caused_by(error.__cause__, by))


def is_broken(engine: ps.Engine) -> bool:
    try:
        engine.failures()
    except ps.InternalError as error:
        return error.condition == "ENGINE_BROKEN"
    return False


def check_refuses(engine: ps.Engine, cause: BaseException) -> None:
    """Every call of a broken engine is refused, by name and with the cause; it can be closed."""
    calls: tuple[Callable[[], Any], ...] = (
        lambda: engine.push({}), engine.flush, engine.snapshot, lambda: engine.metrics("q"), lambda: engine.drop("q"),
        lambda: engine.query("p", "SELECT 1"), lambda: engine.policy("q", "eager"), lambda: engine.explain("q"),
        lambda: engine.migrate("q", "(A B)"), lambda: engine.schedule("dfs"), lambda: engine.late("A"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ps.InternalError) as caught:
            call()
        assert caught.value.condition == "ENGINE_BROKEN"
        assert caught.value.__cause__ is cause
    engine.close()


def plan_faults(rng: random.Random, calls: int) -> dict[int, Fault]:
    places = rng.sample(range(calls), min(FAULTS, calls))
    return {place: Fault(rng.random(), rng.choice(ERRORS)(), rng.random() < 0.2) for place in places}


def check(seed: int, faults: fault_points.FaultInjector) -> Counter[str]:
    """Make a run without and with faults; returns the outcomes of the faults."""
    run = CallSequence(seed)
    plain = FaultRun(run, faults, {}, seed)
    exact = plain.run_calls().tables()
    fault = difference(exact["q"], run.case.expected)
    assert fault is None, f"without faults: {run.case}\n{fault}"
    planned = plan_faults(random.Random(f"faults {seed}"), len(run.calls))
    broken = FaultRun(run, faults, planned, seed)
    context = f"{run.case}\n{run.options}\n{ {place: (run.calls[place], planned[place]) for place in planned} }"
    try:
        answers = broken.run_calls(plain.points)
        for name, table in answers.tables().items():
            if name not in answers.stopped:
                found = difference(table, exact[name])
                assert found is None, f"{name}: {found}"
    except (Exception, KeyboardInterrupt) as error:
        raise AssertionError(f"{context}\n{broken.outcomes}\n{type(error).__name__}: {error}") from error
    return broken.outcomes


CHUNK = 10


@pytest.fixture(scope="module")
def faults() -> Iterator[fault_points.FaultInjector]:
    with pytest.MonkeyPatch.context() as patch:
        yield fault_points.install_fault_points(patch)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("chunk", range(FIRST, FIRST + max(1, SEEDS // 15), CHUNK))
def test_results_are_exact_or_refused(chunk: int, faults: fault_points.FaultInjector) -> None:
    for seed in range(chunk, min(chunk + CHUNK, FIRST + max(1, SEEDS // 15))):
        check(seed, faults)


# ── every point of one call ──────────────────────────────────────────────────────────────────────────────────────────

TEXTS = {
    "q": "SELECT A.x AS a, B.y AS b FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.x = B.x AND B.x = C.x",
    "p": "SELECT A.x AS a, C.y FROM A [RANGE 5], B [RANGE 4], C [RANGE 9] WHERE A.x = B.x AND B.x = C.x AND A.y > 0",
    "n": "SELECT A.x, COUNT(*) AS n, MAX(B.y) AS m FROM A [RANGE 9], B [ROWS 4] WHERE A.x = B.x GROUP BY A.x",
    "d": "DSTREAM (SELECT DISTINCT A.x FROM A [RANGE 3])",
}
CALLS = {
    "push": lambda number: Call("push", (make_rows(number),)),
    "query": lambda _: Call("query", ("new", TEXTS["p"])),
    "alter": lambda _: Call("alter", ("p", TEXTS["p"].replace("RANGE 5", "RANGE 8"))),
    "migrate": lambda _: Call("migrate", ("q", "(B (C A))", "moving-state")),
    "policy": lambda _: Call("policy", ("q", "eager")),
    "drop": lambda _: Call("drop", ("p",)),
    "restart": lambda _: Call("restart"),
    "flush": lambda _: Call("flush"),
}


def make_rows(number: int) -> dict[str, pa.Table]:
    rng = random.Random(number)
    times = [3 * number + place for place in range(4)]
    return {
        name: pa.table({"ts": times, "x": [rng.randrange(3) for _ in times], "y": [rng.randrange(3) for _ in times]})
        for name in "ABC"
    }


def build_snapshot(state: str) -> bytes:
    made = make_engine(state=state, batch=5)
    for name in "ABC":
        made.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts", lateness=3)
    for name, text in TEXTS.items():
        made.query(name, text)
    for number in range(3):
        made.push(make_rows(number))
    return made.snapshot()


def run_rest(engine: ps.Engine, first: Any, call: str) -> dict[str, Counter[str]]:
    """What the queries answer to a call and to a push after it; rows are refused after a flush."""
    rows = {} if call == "flush" else make_rows(5)
    outs = [*([first] if isinstance(first, Mapping) and first else []), engine.push(rows), engine.flush()]
    found: dict[str, Counter[str]] = {}
    for out in outs:
        for name, table in out.items():
            found.setdefault(name, Counter()).update(map(str, table.to_pylist()))
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("state", ["eager", "jit"])
@pytest.mark.parametrize("name", CALLS)
def test_every_fault_point_of_call(name: str, state: str, faults: fault_points.FaultInjector) -> None:
    blob, call = build_snapshot(state), CALLS[name](4)

    def begun() -> ps.Engine:
        engine = ps.Engine.restore(blob)
        engine.push(make_rows(3))
        return engine

    engine = begun()
    with faults.arm():
        made = call.make(engine)
    points = faults.calls
    exact = run_rest(made if name == "restart" else engine, made, name)
    for point in range(0, points, max(1, points // MOST)):
        engine, error = begun(), ERRORS[point % 2]()
        with faults.arm(point, error), pytest.raises(MemoryError) as caught:
            call.make(engine)
        assert caught.value is error
        if is_broken(engine):
            check_refuses(engine, error)
        else:
            made = call.make(engine)
            assert run_rest(made if name == "restart" else engine, made, name) == exact, f"{name} failed at {point}"
