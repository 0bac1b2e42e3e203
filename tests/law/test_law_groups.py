"""The law for groups: a query that shares its join with others answers what it answers alone.

Random queries over the same streams, with their own windows, filters, predicates, select lists, aliases and emission,
come and go under way, with snapshots, migrations and changes of policy in between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from law_support import CHUNKS, check_fails, list_seeds, make_engine

from penstock.join.node import JoinNode
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.member import Member
from penstock.join.stored_rows import StoredRows
from penstock.testing import difference

STREAMS = {"A": {"ts": "bigint", "x": "bigint", "y": "bigint"}, "B": {"ts": "bigint", "x": "bigint", "y": "bigint"},
           "C": {"ts": "bigint", "x": "bigint", "s": "string"}}  # fmt: skip
TABLE = pa.table({"x": pa.array([0, 1, 2, 3, 4, 4]), "name": ["zero", "one", "two", "three", "four", "vier"]})
LATENESS = 3


@dataclass
class SharingRun:
    """What happens to an engine: pushes, and queries that come and go, by step."""

    rng: random.Random
    pushes: list[dict[str, pa.Table]] = field(default_factory=list)
    added_at: dict[str, int] = field(default_factory=dict)
    dropped_at: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


ROWS_WINDOWS = ("[ROWS 1]", "[ROWS 3]", "[ROWS 8]", "[PARTITION BY x ROWS 1]", "[PARTITION BY x ROWS 3]")


def draw_rows_window_run(seed: int) -> SharingRun:
    """All queries have the same ROWS windows, most have filters, most go before the end."""
    rng = random.Random(f"counted {seed}")
    joined = rng.sample(sorted(STREAMS), rng.choice([2, 2, 3]))
    windows = {name: rng.choice(ROWS_WINDOWS) if rng.random() < 0.6 else "" for name in joined}
    windows[joined[0]] = windows[joined[0]] or rng.choice(ROWS_WINDOWS)
    return _add_pushes_and_queries(SharingRun(rng), joined, windows)


def draw_sharing_run(seed: int) -> SharingRun:
    rng = random.Random(f"groups {seed}")
    told = SharingRun(rng)
    steps, time = rng.randint(3, 12), 0
    joined = rng.sample(sorted(STREAMS), rng.choice([2, 2, 3])) + (["T"] if rng.random() < 0.2 else [])
    if rng.random() < 0.1:
        joined = [joined[0], joined[0]]
    for _ in range(steps):
        time += rng.randint(0, 30)
        told.pushes.append({
            name: _rows(rng, name, time) for name in STREAMS if rng.random() < 0.9
        })  # fmt: skip
    wide = rng.choice([5, 20, 60])
    for number in range(rng.choice([1, 2, 3, 5, 8, 14])):
        name = f"q{number}"
        told.texts[name] = _query(rng, joined, wide)
        told.added_at[name] = rng.choice([0, 0, rng.randrange(steps)])
        told.dropped_at[name] = rng.choice([steps, steps, rng.randint(told.added_at[name], steps)])
    return told


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
    """What the named queries answered, push by push; `happens` may change the engine before a step, or give another.

    `told` has pushes, and by query its text and the steps before and after which it comes and goes.
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
    """What the named queries answered."""
    answers = push_all(eng, run, names, happens)
    return {name: pa.concat_tables(tables) for name, tables in answers.items() if tables}


def make_changes(rng: random.Random) -> Happens:
    """Snapshots, migrations and changes of policy."""
    import penstock as ps

    def happens(eng: Any, step: int) -> Any:  # noqa: ARG001
        running = [running.name for running in eng._registry.queries.values()]
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
                    with suppress(ps.UnsupportedError):  # a parallel track beside an endless window
                        eng.migrate(name, f"({' '.join(aliases)})", how)
        return eng

    return happens


def run_each_alone(run: SharingRun) -> Iterator[tuple[str, pa.Table]]:
    for name in run.texts:
        alone = run_queries(build_engine(share=False, state="eager"), run, [name])
        if name in alone:
            yield name, alone[name]


REGRESSIONS = {
    5: "rows of a table in a parallel track had no code of interest",
    13: "rows that had died in a query's own window came back from a snapshot",
    111: "results found before two parties became one were given to both",
    122: "intermediate rows were not tested when a predicate became common to all",
    1048: "tuples freed with the query that wanted them came back with the next party",
    3053: "a table's columns were those of the first query that came back from a snapshot",
    7059: "the code of one side was taken for that of the combination",
    7293: "a static row, born before all time, broke off a chain",
}


@pytest.mark.parametrize("seed", REGRESSIONS, ids=list(REGRESSIONS.values()))
def test_sharing_regressions(seed: int) -> None:
    check_sharing(seed)


def test_sharing_mutants_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these breaks sharing; a few seeds are enough to see it."""
    breakages: tuple[tuple[object, str, Any], ...] = (
        (Interest, "membership", lambda self, _party: np.ones(len(self.sets), np.bool_)),
        (StoredRows, "is_freed", lambda _self, ids: np.zeros(ids.size, np.bool_)),
        (Member, "_find_group_at", lambda self, _matches: self.filter_group),
        (JoinNode, "drop_unwanted", lambda _self, _bound: None),
    )
    for place, name, broken in breakages:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, broken)
            assert any(check_fails(check_sharing, seed) for seed in (1048, 111, 122, 0, 1, 2, 3)), name


@pytest.mark.parametrize("chunk", CHUNKS)
def test_sharing_matches_unshared_queries(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_sharing(seed)


def check_sharing(seed: int) -> None:
    """The queries of a story answer together what each answers alone."""
    _check_sharing_run(seed, draw_sharing_run(seed))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_sharing_with_rows_windows(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_rows_window_sharing(seed)


def check_rows_window_sharing(seed: int) -> None:
    """The same for queries with equal ROWS windows."""
    _check_sharing_run(seed, draw_rows_window_run(seed))


def _check_sharing_run(seed: int, run: SharingRun) -> None:
    options = {
        "state": run.rng.choice(["eager", "lazy", "jit", "auto", "none"]),
        "batch": run.rng.choice([1, 7, 4096]),
    }
    happens = make_changes(run.rng) if seed % 2 else None
    together = run_queries(build_engine(**options), run, list(run.texts), happens)
    for name, answer in run_each_alone(run):
        fault = difference(together[name], answer)
        assert fault is None, f"seed {seed}, {options}, {name}: {run.texts[name]}\n{fault}"


def _filter_since(table: pa.Table, time: int) -> pa.Table:
    return table.filter(pc.greater_equal(table.column("_ts"), time))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_history_query_complete_since(chunk: int) -> None:
    """It answers no more than one that was there from the start, and no less once it says that it is complete."""
    for seed in list_seeds(chunk):
        told = draw_sharing_run(seed)
        plain = [name for name, text in told.texts.items() if text.startswith("SELECT ") and "COUNT" not in text]
        plain = [name for name in plain if "DISTINCT" not in told.texts[name] and "ROWS" not in told.texts[name]]
        if not plain or len(told.pushes) < 2:
            continue
        late, step = plain[-1], told.rng.randrange(1, len(told.pushes))
        told.added_at |= dict.fromkeys(told.texts, 0) | {late: len(told.pushes)}
        told.dropped_at |= dict.fromkeys(told.texts, len(told.pushes))
        state = told.rng.choice(["eager", "lazy", "jit", "auto", "none"])
        says: list[Any] = []

        def looks_back(
            eng: Any, now: int, told: SharingRun = told, late: str = late, step: int = step, says: list[Any] = says
        ) -> Any:
            if now == step:
                eng.query(late, told.texts[late], history=True)
                says.append(eng.metrics(late)["complete_since"])
            return eng

        answer = run_queries(build_engine(state=state), told, list(told.texts), looks_back)[late]
        told.added_at[late] = 0
        whole = run_queries(build_engine(share=False, state="eager"), told, [late])[late]
        context = f"seed {seed}, {state}, at {step}, complete since {says}: {told.texts[late]}"
        more = Counter(map(str, answer.to_pylist())) - Counter(map(str, whole.to_pylist()))
        assert not more, f"{context}\nunexpected: {list(more)[:5]}"
        if says[0] is not None:
            fault = difference(_filter_since(answer, says[0]), _filter_since(whole, says[0]))
            assert fault is None, f"{context}\n{fault}"
