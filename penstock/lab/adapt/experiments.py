"""Lab `adapt`: an adaptive engine compared with engines that do not adapt, on a workload that drifts.

Four streams form a chain: a.x = b.x, b.y = c.y, c.z = d.z. The workload has half an hour of event time. In each of
five phases another pair rarely matches, so the best plan of one phase is the worst of the next. The fourth phase has a
burst. The query has FRESHNESS, so it may shed under overload. The history is replayed faster than real time. All times
are CPU seconds, which other programs do not change.

All runs start with the best plan of the first phase. The fixed runs keep it, without a budget, each with another state
policy; `auto` measures where gates reduce work. The adaptive run starts like `fixed, jit` and is compared with the
cheapest fixed run. Work that was shed does not count as saved: CPU is compared over the pushes outside the overload
that the adaptive run declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.adapt import Decision, Rules
from penstock.engine import Engine
from penstock.lab.adapt.figures import draw_timeline
from penstock.lab.report import Check, Report, ReportRow, Section, check_at_most, check_equals
from penstock.lab.workloads import SECOND
from penstock.progress import show_progress

NAMES = "abcd"
KEYS = "xyz"
"""The columns on which neighbours in the chain join."""
RARE, USUAL, DENSE = 0.02, 1.0, 150.0
"""How many matches a tuple finds in the window of its neighbour."""
PHASES = ((RARE, DENSE, USUAL), (DENSE, RARE, USUAL), (DENSE, USUAL, RARE), (RARE, DENSE, USUAL), (DENSE, RARE, USUAL))
"""The number of matches for each pair of neighbours, by phase."""
BURST_PHASE = 3
"""The phase with a burst in its middle. The start plan is the best one for it, so only a budget can help."""
START_PLAN = "(((a b) c) d)"
_SCHEMA = pa.schema([("ts", pa.timestamp("us")), *((key, pa.int64()) for key in KEYS), ("id", pa.int64())])


@dataclass(frozen=True)
class AdaptScale:
    """How much is measured, in seconds of event time. A push has the tuples of one second."""

    phase: int = 360
    window: int = 60
    rate: int = 200
    burst: int = 60
    burst_factor: int = 5
    """The rate in a burst over the usual rate."""
    speed: float = 60.0

    @property
    def seconds(self) -> int:
        return self.phase * len(PHASES)

    @property
    def burst_seconds(self) -> range:
        begin = self.phase * BURST_PHASE + self.phase // 2
        return range(begin, begin + self.burst)


FULL = AdaptScale()
QUICK = AdaptScale(phase=150, window=40, burst=40, burst_factor=4)


@dataclass(frozen=True)
class PushCost:
    """CPU seconds and results of a push. `checksum` does not depend on the order of the rows."""

    cpu: float
    rows: int
    checksum: int

    def has_same_results(self, other: PushCost) -> bool:
        return (self.rows, self.checksum) == (other.rows, other.checksum)


@dataclass(frozen=True)
class DriftRun:
    pushes: tuple[PushCost, ...]
    decisions: tuple[Decision, ...] = ()

    def cpu(self, seconds: Sequence[int]) -> float:
        return sum(self.pushes[second].cpu for second in seconds)


def run(quick: bool = False, scale: AdaptScale | None = None) -> Report:
    scale = scale or (QUICK if quick else FULL)
    report = Report("adapt", quick)
    with show_progress("lab adapt", 5) as step:
        step("warming up")
        for state in ("eager", "jit"):
            _run_engine(scale, range(scale.window // 2), state=state)
        found = {}
        for name, options in _list_contenders(scale).items():
            step(name)
            found[name] = _run_engine(scale, range(scale.seconds), **options)
    adaptive = found["adaptive"]
    shed = find_overloads(adaptive.decisions, scale.seconds)
    calm = [second for second in range(scale.seconds) if second not in shed]
    report.sections += [
        Section(
            "phases",
            f"CPU seconds by phase, {scale.phase} s each; the fourth has a burst",
            _build_phase_rows(scale, found),
        ),
        Section("total", "CPU seconds", [_build_total_row(name, each, calm, scale) for name, each in found.items()]),
        Section(
            "decisions",
            "Decisions of the adaptive run",
            [_build_decision_row(decision) for decision in adaptive.decisions],
        ),
    ]
    report.checks += _build_checks(found, calm)
    report.figures["adapt.png"] = draw_timeline(
        {name: [push.cpu for push in each.pushes] for name, each in found.items()},
        [(decision.push or 0, decision.command.do) for decision in adaptive.decisions if decision.command is not None],
        shed,
    )
    return report


def _build_checks(found: dict[str, DriftRun], calm: Sequence[int]) -> list[Check]:
    """The checks; `calm` are the pushes outside the declared overload."""
    adaptive, fixed = found["adaptive"], found["fixed, eager"]
    cheapest = min(each.cpu(calm) for name, each in found.items() if name != "adaptive")
    commands = [decision.command for decision in adaptive.decisions if decision.command is not None]
    budgets = [command.value for command in commands if command.do == "budget"]
    both = list(zip(adaptive.pushes, fixed.pushes, strict=True))
    unlike = sum(not both[at][0].has_same_results(both[at][1]) for at in calm)
    return [
        check_at_most("cpu_adaptive_over_fixed", adaptive.cpu(calm) / cheapest, 0.5, "of the cheapest fixed run's CPU"),
        check_equals("pushes_that_differ_outside_overload", unlike, 0, "pushes"),
        check_equals("pushes_with_more_than_the_exact_results", sum(a.rows > f.rows for a, f in both), 0, "pushes"),
        check_at_most(
            "decisions_in_a_minute", count_busiest_minute(adaptive.decisions), Rules().per_minute, "decisions"
        ),
        check_equals(
            "decisions_that_failed", sum(each.error is not None for each in adaptive.decisions), 0, "decisions"
        ),
        check_equals("matters_decided_on", len({command.do for command in commands}), 3, "of plan, policy and budget"),
        check_equals("budgets_left_over", int(bool(budgets) and budgets[-1] is not None), 0, "budgets"),
    ]


def _list_contenders(scale: AdaptScale) -> dict[str, dict[str, Any]]:
    return {
        **{f"fixed, {state}": {"state": state} for state in ("eager", "jit", "auto")},
        "adaptive": {"state": "jit", "adapt": Rules(speed=scale.speed)},
    }


def _run_engine(scale: AdaptScale, seconds: range, **options: Any) -> DriftRun:
    engine = Engine(timer=process_time, **options)
    for name in NAMES:
        engine.stream(name, _SCHEMA, time="ts")
    sources = ", ".join(f"{name} [RANGE {scale.window} SECONDS]" for name in NAMES)
    shown = ", ".join(f"{name}.id AS {name}_id" for name in NAMES)
    text = f"SELECT {shown} FROM {sources} WHERE a.x = b.x AND b.y = c.y AND c.z = d.z"
    engine.query("q", f"{text} FRESHNESS a {scale.window} SECONDS", plan=START_PLAN)
    pushes = []
    for second in seconds:
        data = generate_arrivals(scale, second)
        begin = process_time()
        rows = engine.push(data)["q"]
        pushes.append(PushCost(process_time() - begin, rows.num_rows, _compute_checksum(rows)))
    engine.close()
    return DriftRun(tuple(pushes), tuple(engine.decisions()))


def generate_arrivals(scale: AdaptScale, second: int) -> dict[str, pa.Table]:
    """The tuples of one second, which is also the seed."""
    rng = np.random.default_rng(second)
    rows = scale.rate * (scale.burst_factor if second in scale.burst_seconds else 1)
    partners = PHASES[second // scale.phase]
    values = [max(1, round(scale.rate * scale.window / each)) for each in partners]
    tables = {}
    for place, name in enumerate(NAMES):
        times = np.sort(rng.integers(0, SECOND, rows)) + second * SECOND
        columns = [rng.integers(0, most, rows) for most in values]
        ids = (second * scale.rate * scale.burst_factor + np.arange(rows)) * len(NAMES) + place
        arrays = [pa.array(times).cast(pa.timestamp("us")), *map(pa.array, columns), pa.array(ids)]
        tables[name] = pa.Table.from_arrays(arrays, schema=_SCHEMA)
    return tables


def _compute_checksum(rows: pa.Table) -> int:
    """The sum over all rows of a hash of their ids."""
    mixed = np.zeros(rows.num_rows, np.uint64)
    for name in NAMES:
        mixed = (mixed ^ rows.column(f"{name}_id").to_numpy().astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def find_overloads(decisions: Sequence[Decision], seconds: int) -> set[int]:
    """The pushes under a budget: from the decision that sets it to the decision that removes it."""
    found: set[int] = set()
    since: int | None = None
    for decision in decisions:
        if decision.command is not None and decision.command.do == "budget" and decision.push is not None:
            if decision.command.value is not None:
                since = decision.push if since is None else since
            elif since is not None:
                found |= set(range(since, decision.push))
                since = None
    return found | set(range(since if since is not None else seconds, seconds))


def count_busiest_minute(decisions: Sequence[Decision]) -> int:
    """The most decisions within 60 seconds of event time."""
    times = [decision.time for decision in decisions]
    return max((sum(0 <= time - begin < 60 for time in times) for begin in times), default=0)


def _build_phase_rows(scale: AdaptScale, found: dict[str, DriftRun]) -> list[ReportRow]:
    decided = Counter((decision.push or 0) // scale.phase for decision in found["adaptive"].decisions)
    rows = []
    for phase, partners in enumerate(PHASES):
        seconds = range(phase * scale.phase, (phase + 1) * scale.phase)
        matches = " ".join(f"{a}{b} {p:g}" for a, b, p in zip(NAMES, NAMES[1:], partners, strict=False))
        results = sum(found["fixed, eager"].pushes[second].rows for second in seconds)
        cpu = {name: each.cpu(seconds) for name, each in found.items()}
        rows.append({"partners": matches, "results": results, **cpu, "decisions": decided[phase]})
    return rows


def _build_total_row(name: str, each: DriftRun, calm: Sequence[int], scale: AdaptScale) -> ReportRow:
    cpu = each.cpu(range(scale.seconds))
    tuples = len(NAMES) * scale.rate * (scale.seconds + (scale.burst_factor - 1) * scale.burst)
    outside = each.cpu(calm)
    return {"run": name, "cpu": cpu, "outside_overload": outside, "tuples_s": round(tuples / cpu),
            "results": sum(push.rows for push in each.pushes)}  # fmt: skip


def _build_decision_row(decision: Decision) -> ReportRow:
    command = decision.command
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in decision.numbers.items())
    return {
        "push": decision.push,
        "time": round(decision.time, 1),
        "do": "" if command is None else command.do,
        "value": "" if command is None else str(command.value),
        "numbers": decision.error or numbers,
    }
