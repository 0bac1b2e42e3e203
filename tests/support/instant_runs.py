"""Random runs of queries of all kinds over one join: those that get rows at once, and those that wait for instants.

Law: each query gives in each push what it gives alone in an engine without sharing, whether it is a plain SELECT, an
aggregate, DISTINCT, RSTREAM, DSTREAM or a set operation. Times come in small steps, so that an instant often ends one
push and begins the next. Queries are added, altered and dropped, with snapshots and changes of plans and policies in
between.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from inspect_engine import joins_of, query_names
from law_support import make_engine
from sharing_runs import SharingRun, push_all

import penstock as ps
from penstock.testing import difference, expected_by_duckdb

COLUMNS = {"ts": "bigint", "x": "bigint", "y": "bigint"}
_UNKNOWN = object()
TABLE = pa.table({"x": pa.array([0, 1, 1, 2]), "n": pa.array([5, 6, 7, 8])})


@dataclass
class InstantRun(SharingRun):
    """A run in which queries are altered, too: the step before which each is, and its new text."""

    altered: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.int64()) for name in COLUMNS])


def draw_run(seed: int) -> InstantRun:
    rng = random.Random(f"instants {seed}")
    run, steps = InstantRun(rng), rng.randint(4, 12)
    joined = rng.choice(["AB", "AB", "AB", "ABC", "ABT"])
    now = dict.fromkeys("ABC", 0)
    for _ in range(steps):
        run.pushes.append({name: _draw_rows(rng, now, name) for name in "ABC" if rng.random() < 0.75})
    for number in range(rng.choice([2, 2, 3, 5])):
        name = f"q{number}"
        run.texts[name] = draw_query(rng, joined)
        run.added_at[name] = rng.choice([0, 0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, steps, rng.randint(run.added_at[name], steps)])
        if run.dropped_at[name] == steps and run.added_at[name] < steps - 1 and rng.random() < 0.2:
            run.altered[name] = rng.randint(run.added_at[name] + 1, steps - 1), draw_query(rng, joined)
    return run


def _draw_rows(rng: random.Random, now: dict[str, int], name: str) -> pa.Table:
    times = []
    for _ in range(rng.choice([0, 1, 2, 5, 12])):
        now[name] += rng.choice([0, 0, 1, 1, 3])
        times.append(now[name])
    if rng.random() < 0.2:
        now[name] = max(now.values())
    keys = [[None if rng.random() < 0.05 else rng.randrange(3) for _ in times] for _ in "xy"]
    return pa.table([pa.array(each, pa.int64()) for each in (times, *keys)], names=list(COLUMNS))


def draw_query(rng: random.Random, joined: str) -> str:
    size, uniform = rng.randint(1, 9), rng.random() < 0.6
    windows = [f"[RANGE {size if uniform else rng.randint(1, 12)}]" if name != "T" else "" for name in joined]
    if rng.random() < 0.1:
        windows[0] = "[NOW]"
    froms = ", ".join(f"{name} {window} AS {name.lower()}" for name, window in zip(joined, windows, strict=True))
    links = [f"a.x = {name.lower()}.x" for name in joined[1:]]
    where = links + rng.choice([[], [], ["a.y > 0"], ["b.y < 2"], ["a.y <= b.y"], ["a.ts < b.ts + 2"]])
    tail = f"FROM {froms} WHERE {' AND '.join(where)}"
    plain = f"SELECT a.x, a.y AS ay, b.y AS byy {tail}"
    match rng.choice(["plain"] * 5 + ["count"] * 3 + ["distinct", "rstream", "dstream", "except", "left", "changes"]):
        case "count":
            return f"SELECT a.x, COUNT(*) AS n, SUM(b.y) AS s, MAX(a.y) AS m {tail} GROUP BY a.x"
        case "distinct":
            return plain.replace("SELECT", "SELECT DISTINCT")
        case "rstream" | "dstream" as emit:
            return f"{emit.upper()} ({plain})"
        case "changes":
            return f"SELECT a.x, COUNT(*) AS n {tail} GROUP BY a.x EMIT CHANGES"
        case "except":
            return f"SELECT a.x {tail} EXCEPT SELECT b.y AS x FROM B [RANGE 3] AS b"
        case "left" if joined == "AB":
            return (
                f"SELECT a.x, a.y AS ay, b.y AS byy FROM A [RANGE {size}] AS a LEFT JOIN B [RANGE {size}] AS b "
                "ON a.x = b.x"
            )
    return plain


def build_engine(**options: Any) -> ps.Engine:
    eng: ps.Engine = make_engine(**options)
    for name in "ABC":
        eng.stream(name, COLUMNS, time="ts", lateness=1 if name == "B" else 0)
    eng.table("T", TABLE)
    return eng


def _apply_change(eng: ps.Engine, rng: random.Random) -> ps.Engine:
    names = query_names(eng)
    if not names:
        return eng
    name = rng.choice(names)
    match rng.choice(["snapshot", "snapshot", "migrate", "policy", "reslice"]):
        case "snapshot":
            return ps.Engine.restore(eng.snapshot())
        case "policy":
            eng.policy(name, rng.choice(["eager", "lazy", "jit", "auto", "none"]))
        case "reslice":
            eng.reslice(rng.choice(["mem-opt", "cpu-opt"]))
        case "migrate":
            plan = eng.metrics(name).get("plan")
            if isinstance(plan, str):
                aliases = plan.replace("(", " ").replace(")", " ").split()
                rng.shuffle(aliases)
                with suppress(ps.UnsupportedError, ps.QueryError):  # an endless window; an EXCEPT of two plans
                    eng.migrate(name, f"({' '.join(aliases)})", rng.choice(["jisc", "moving-state", "parallel-track"]))
    return eng


def check_instants(seed: int) -> int:
    """Check the law for a seed; returns how many joins had queries of both kinds."""
    run = draw_run(seed)
    rng = run.rng
    options = {"state": rng.choice(["eager", "lazy", "jit", "auto", "none"]), "batch": rng.choice([1, 7, 4096])}
    changes, mixed = seed % 3 > 0, 0
    since: dict[str, Any] = {}

    def happens(eng: ps.Engine, step: int) -> ps.Engine:
        nonlocal mixed
        for name, (at, text) in run.altered.items():
            if at == step:
                eng.alter(name, text)
                figures = eng.metrics(name)
                since[name] = figures.get("complete_since", _UNKNOWN)  # a query of several joins names no time
        eng = _apply_change(eng, rng) if changes and rng.random() < 0.5 else eng
        mixed += sum(join.shared_join.has_waiting and not join.shared_join.strict for join in joins_of(eng))
        return eng

    together = push_all(build_engine(**options), run, list(run.texts), happens)
    for name in run.texts:
        context = f"seed {seed}, {options}, {name}: {run.texts[name]}"
        if name in run.altered:
            if since[name] is not _UNKNOWN:
                _check_altered(run, name, together[name], since[name], context)
            continue
        alone = push_all(build_engine(share=False, state="eager"), run, [name])[name]
        for push, (ours, theirs) in enumerate(zip(together[name], alone, strict=True)):
            fault = difference(ours, theirs)
            assert fault is None, f"{context} at {push}\n{fault}"
    return mixed


def _check_altered(run: InstantRun, name: str, found: list[pa.Table], since: int | None, context: str) -> None:
    """From the time on that the engine names, an altered query has the results of its new text over all tuples."""
    step, text = run.altered[name]
    whole = pa.concat_tables(found[step - run.added_at[name] :])
    before = run.added_at | {name: 0}
    again = InstantRun(run.rng, run.pushes, before, run.dropped_at, run.texts | {name: text})
    wanted = pa.concat_tables(push_all(build_engine(share=False, state="eager"), again, [name])[name])
    first = max(since if since is not None else 0, _find_last_time(run, step) + 1)
    fault = difference(*(_filter_since(rows, first) for rows in (whole, wanted)))
    assert fault is None, f"{context}, altered before {step} to {text}, complete since {since}\n{fault}"


def _find_last_time(run: InstantRun, step: int) -> int:
    times = [time for push in run.pushes[:step] for rows in push.values() for time in rows.column("ts").to_pylist()]
    return max(times, default=0)


def _filter_since(table: pa.Table, first: int) -> pa.Table:
    return table.filter(pa.compute.greater_equal(table.column("_ts"), first))


def check_by_oracle(seed: int) -> None:
    """The queries of a run that last from the start to the end have the results of the oracle."""
    run = draw_run(seed)
    for name in run.texts:
        run.added_at[name], run.dropped_at[name] = 0, len(run.pushes)
    tables = {
        name: pa.concat_tables([push[name] for push in run.pushes if name in push] or [_empty()]) for name in "ABC"
    }
    answers = push_all(build_engine(batch=run.rng.choice([1, 4096])), run, list(run.texts))
    for name, text in _iter_known(run):
        wanted = expected_by_duckdb(text, tables, {"T": TABLE}, time="ts")
        fault = difference(pa.concat_tables(answers[name]), wanted)
        assert fault is None, f"seed {seed}, {name}: {text}\n{fault}"


def _iter_known(run: InstantRun) -> Iterator[tuple[str, str]]:
    """The queries whose rows are those of their instants: EMIT CHANGES has a form of its own."""
    return ((name, text) for name, text in run.texts.items() if "EMIT" not in text)


def _empty() -> pa.Table:
    return pa.table([pa.array([], pa.int64())] * 3, names=list(COLUMNS))
