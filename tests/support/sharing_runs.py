"""Random runs of queries that share a join: pushes, and queries that are added and dropped, all from one seed.

Law: the queries of a run give together the results that each gives alone in an engine without sharing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from inspect_engine import query_names
from law_support import make_engine

from penstock.testing import difference

STREAMS = {"A": {"ts": "bigint", "x": "bigint", "y": "bigint"}, "B": {"ts": "bigint", "x": "bigint", "y": "bigint"},
           "C": {"ts": "bigint", "x": "bigint", "s": "string"}}  # fmt: skip


TABLE = pa.table({"x": pa.array([0, 1, 2, 3, 4, 4]), "name": ["zero", "one", "two", "three", "four", "vier"]})


LATENESS = 3


@dataclass
class SharingRun:
    """Pushes, and queries with the steps before and after which they are added and dropped."""

    rng: random.Random
    pushes: list[dict[str, pa.Table]] = field(default_factory=list)
    added_at: dict[str, int] = field(default_factory=dict)
    dropped_at: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


ROWS_WINDOWS = ("[ROWS 1]", "[ROWS 3]", "[ROWS 8]", "[PARTITION BY x ROWS 1]", "[PARTITION BY x ROWS 3]")


def draw_rows_window_run(seed: int) -> SharingRun:
    """All queries have the same ROWS windows, most have filters, most are dropped before the end."""
    rng = random.Random(f"counted {seed}")
    joined = rng.sample(sorted(STREAMS), rng.choice([2, 2, 3]))
    windows = {name: rng.choice(ROWS_WINDOWS) if rng.random() < 0.6 else "" for name in joined}
    windows[joined[0]] = windows[joined[0]] or rng.choice(ROWS_WINDOWS)
    return _add_pushes_and_queries(SharingRun(rng), joined, windows)


def draw_sharing_run(seed: int) -> SharingRun:
    rng = random.Random(f"groups {seed}")
    run = SharingRun(rng)
    steps, time = rng.randint(3, 12), 0
    joined = rng.sample(sorted(STREAMS), rng.choice([2, 2, 3])) + (["T"] if rng.random() < 0.2 else [])
    if rng.random() < 0.1:
        joined = [joined[0], joined[0]]
    for _ in range(steps):
        time += rng.randint(0, 30)
        run.pushes.append({
            name: _rows(rng, name, time) for name in STREAMS if rng.random() < 0.9
        })  # fmt: skip
    wide = rng.choice([5, 20, 60])
    for number in range(rng.choice([1, 2, 3, 5, 8, 14])):
        name = f"q{number}"
        run.texts[name] = _query(rng, joined, wide)
        run.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, steps, rng.randint(run.added_at[name], steps)])
    return run


def _add_pushes_and_queries(run: SharingRun, joined: list[str], windows: dict[str, str]) -> SharingRun:
    rng, steps, time = run.rng, run.rng.randint(5, 14), 0
    for _ in range(steps):
        time += rng.randint(0, 30)
        run.pushes.append({name: _rows(rng, name, time) for name in STREAMS if rng.random() < 0.9})
    for number in range(rng.choice([2, 3, 4, 6])):
        name = f"q{number}"
        run.texts[name] = _query(rng, joined, rng.choice([20, 60]), windows)
        run.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        run.dropped_at[name] = rng.choice([steps, rng.randint(run.added_at[name], steps), rng.randint(0, steps // 2)])
        run.dropped_at[name] = max(run.dropped_at[name], run.added_at[name])
    return run


def _rows(rng: random.Random, name: str, time: int) -> pa.Table:
    count = rng.choice([0, 1, 3, 12, 40])
    columns: dict[str, Any] = {"ts": [time + rng.randint(0, 30) for _ in range(count)]}
    for column, kind in STREAMS[name].items():
        if column != "ts":
            values = [None if rng.random() < 0.05 else rng.randrange(5) for _ in range(count)]
            columns[column] = values if kind == "bigint" else [None if v is None else "abcde"[v] for v in values]
    types = {"bigint": pa.int64(), "string": pa.string()}
    return pa.table({c: pa.array(v, types[STREAMS[name][c]]) for c, v in columns.items()})


def _query(rng: random.Random, joined: list[str], wide: int, fixed: Mapping[str, str] | None = None) -> str:
    order = rng.sample(range(len(joined)), len(joined))
    names = [f"{joined[place].lower()}{place}{rng.choice(['', 'x'])}" for place in range(len(joined))]
    size = rng.randint(1, wide)

    def window(stream: str) -> str:
        if fixed and fixed[stream]:
            return fixed[stream]
        kinds = ["range"] * 8 + ["other"] * 3 + ["now", "unbounded", "rows", "partition"]
        kind = kinds[0] if uniform else rng.choice(kinds)
        return {
            "range": f"[RANGE {size}]", "other": f"[RANGE {rng.randint(1, wide)}]", "now": "[NOW]",
            "unbounded": "[UNBOUNDED]", "rows": "[ROWS 4]", "partition": "[PARTITION BY x ROWS 2]",
        }[kind]  # fmt: skip

    uniform = rng.random() < 0.6
    items = [f"{joined[p]} {'' if joined[p] == 'T' else window(joined[p])} AS {names[p]}" for p in order]
    where = [f"{names[0]}.x = {names[place]}.x" for place in range(1, len(names))]
    streams = [place for place in range(len(joined)) if joined[place] != "T"]
    for place in streams:
        if rng.random() < (0.35 if fixed is None else 0.6):
            where.append(
                rng.choice([f"{names[place]}.x > 1", f"{names[place]}.ts % 3 = 0", f"{names[place]}.x IN (0, 4)"])
            )
    first, second = names[streams[0]], names[streams[1]]
    if rng.random() < 0.25:
        where.append(rng.choice([f"{first}.ts < {second}.ts", f"ABS({first}.ts - {second}.ts) > 2"]))
    rng.shuffle(where)
    shown = rng.sample([f"{name}.{column}" for name in names for column in ("x",)], rng.randint(1, len(names)))
    shown += [f"{first}.ts AS t1", f"{second}.ts - {first}.ts AS apart"][: rng.randint(0, 2)]
    text = f"SELECT {', '.join(f'{s} AS c{n}' if ' AS ' not in s else s for n, s in enumerate(shown))}"
    tail = f" FROM {', '.join(items)} WHERE {' AND '.join(where)}"
    match rng.choice(["plain"] * 8 + ["dstream", "rstream", "distinct", "count"]):
        case "dstream" | "rstream" as emit:
            return f"{emit.upper()} ({text}{tail})"
        case "distinct":
            return text.replace("SELECT", "SELECT DISTINCT") + tail
        case "count":
            return f"SELECT {first}.x, COUNT(*) AS n{tail} GROUP BY {first}.x"
    return text + tail


def build_engine(**options: Any) -> Any:
    eng = make_engine(**options)
    for name, columns in STREAMS.items():
        eng.stream(name, columns, time="ts", lateness=LATENESS if name == "B" else 0)
    eng.table("T", TABLE)
    return eng


Happens = Callable[[Any, int], Any]


def push_all(eng: Any, run: Any, names: list[str], happens: Happens | None = None) -> dict[str, list[pa.Table]]:
    """The results of the named queries, push by push; `happens` may change the engine before a step, or return another.

    `run` has pushes, and by query its text and the steps before and after which it is added and dropped.
    """
    answers: dict[str, list[pa.Table]] = {name: [] for name in names}
    for step, push in enumerate(run.pushes):
        for name in names:
            if run.added_at[name] == step:
                eng.query(name, run.texts[name])
        eng = happens(eng, step) if happens else eng
        out = eng.push(push)
        for name, table in out.items():
            assert table.column("_ts").to_pylist() == sorted(table.column("_ts").to_pylist())
            answers[name].append(table)
        for name in names:
            if run.added_at[name] <= step and run.dropped_at[name] == step:
                eng.drop(name)
    for name, table in eng.flush().items():
        answers[name].append(table)
    return answers


def run_queries(eng: Any, run: SharingRun, names: list[str], happens: Happens | None = None) -> dict[str, pa.Table]:
    """The results of the named queries."""
    answers = push_all(eng, run, names, happens)
    return {name: pa.concat_tables(tables) for name, tables in answers.items() if tables}


def make_changes(rng: random.Random) -> Happens:
    """Snapshots, migrations and changes of policy."""
    import penstock as ps

    def happens(eng: Any, step: int) -> Any:  # noqa: ARG001
        running = query_names(eng)
        if running and rng.random() < 0.4:
            name = rng.choice(running)
            match rng.choice(["snapshot", "migrate", "policy", "reslice"]):
                case "reslice":
                    eng.reslice(rng.choice(["mem-opt", "cpu-opt"]))
                case "snapshot":
                    return ps.Engine.restore(eng.snapshot())
                case "policy":
                    eng.policy(name, rng.choice(["eager", "lazy", "jit", "auto", "none"]))
                case "migrate":
                    plan = eng.metrics(name)["plan"]
                    aliases = plan.replace("(", " ").replace(")", " ").split()
                    rng.shuffle(aliases)
                    how = rng.choice(["jisc", "moving-state", "parallel-track"])
                    with suppress(ps.UnsupportedError):  # a parallel track with an unbounded window
                        eng.migrate(name, f"({' '.join(aliases)})", how)
        return eng

    return happens


def run_each_alone(run: SharingRun) -> Iterator[tuple[str, pa.Table]]:
    for name in run.texts:
        alone = run_queries(build_engine(share=False, state="eager"), run, [name])
        if name in alone:
            yield name, alone[name]


def check_sharing(seed: int) -> None:
    """Check the law for a seed."""
    check_sharing_run(seed, draw_sharing_run(seed))


def check_rows_window_sharing(seed: int) -> None:
    """Check the law for queries with equal ROWS windows."""
    check_sharing_run(seed, draw_rows_window_run(seed))


def check_sharing_run(seed: int, run: SharingRun) -> None:
    """Check the law for the queries of a run."""
    options = {
        "state": run.rng.choice(["eager", "lazy", "jit", "auto", "none"]),
        "batch": run.rng.choice([1, 7, 4096]),
    }
    happens = make_changes(run.rng) if seed % 2 else None
    together = run_queries(build_engine(**options), run, list(run.texts), happens)
    for name, answer in run_each_alone(run):
        fault = difference(together[name], answer)
        assert fault is None, f"seed {seed}, {options}, {name}: {run.texts[name]}\n{fault}"


def check_freed_tuples() -> None:
    """Tuples that were freed with a query stay freed when the next filter group is added, some batches later."""
    run = SharingRun(random.Random(1))
    for step in range(6):
        rows = pa.table({"ts": [10 * step] * 6, "x": [0, 1, 2, 3, 4, 0], "y": [0] * 6})
        run.pushes.append({"A": rows, "B": rows})
    for name, where, added, dropped in (("p", "a.x > 1", 0, 6), ("q", "a.x < 9", 0, 1), ("r", "a.x > 0", 4, 6)):
        run.texts[name] = f"SELECT a.x, b.ts FROM A [RANGE 90] AS a, B [RANGE 90] AS b WHERE a.x = b.x AND {where}"
        run.added_at[name], run.dropped_at[name] = added, dropped
    together = run_queries(build_engine(), run, list(run.texts))
    for name, answer in run_each_alone(run):
        fault = difference(together[name], answer)
        assert fault is None, f"{name}: {fault}"
