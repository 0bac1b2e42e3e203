"""Random runs of queries that read an inner node of a wider query's join, all from one seed.

Law: the queries of a run give together, push by push, the results that each gives alone in an engine without sharing.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import law_support
import pyarrow as pa
import pytest
from inspect_engine import query_names
from law_support import make_engine
from sharing_runs import Happens, push_all

import penstock as ps
from penstock.join import JoinOperator
from penstock.state import SHIPPED
from penstock.testing import difference

STREAMS = "ABCD"


LINKS = {
    "star": [("A.x", "B.x"), ("A.x", "C.x"), ("A.x", "D.x")],
    "chain": [("A.x", "B.x"), ("B.y", "C.y"), ("C.x", "D.x")],
    "mixed": [("A.x", "B.x"), ("B.x", "C.x"), ("A.y", "B.y"), ("C.y", "D.y")],
}


class NestedRun:
    """Pushes, and queries by name: their texts, and the steps before and after which they are added and dropped."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"nested {seed}")
        self.links = LINKS[rng.choice(sorted(LINKS))]
        self.steps = rng.randint(4, 12)
        self.streams = STREAMS[: rng.choice([3, 3, 4])]
        lags = {name: rng.choice([0, 0, 3, 25]) for name in self.streams}
        self.pushes = [
            {name: self._draw_rows(max(0, 10 * step - lags[name])) for name in self.streams if rng.random() < 0.8}
            for step in range(self.steps)
        ]
        self.texts: dict[str, str] = {}
        self.added_at: dict[str, int] = {}
        self.dropped_at: dict[str, int] = {}
        for number in range(rng.choice([2, 3, 5, 8])):
            name = f"q{number}"
            streams = self.streams if number == 0 or rng.random() < 0.3 else self._draw_streams()
            self.texts[name] = self.draw_query(streams)
            self.added_at[name] = 0 if number == 0 else rng.choice([0, rng.randrange(self.steps)])
            self.dropped_at[name] = rng.choice([self.steps, self.steps, rng.randint(self.added_at[name], self.steps)])

    def _draw_streams(self) -> str:
        """Neighbouring streams: each is linked to the next."""
        size = self.rng.randint(2, len(self.streams))
        first = 0 if self.links is LINKS["star"] else self.rng.randint(0, len(self.streams) - size)
        return self.streams[first : first + size]

    def _draw_rows(self, time: int) -> pa.Table:
        rng, count = self.rng, self.rng.choice([0, 1, 6, 25])
        columns = {"ts": [time + rng.randrange(12) for _ in range(count)]}
        columns |= {c: [None if rng.random() < 0.1 else rng.randrange(5) for _ in range(count)] for c in "xy"}
        columns["s"] = [rng.choice(["", "one", "a longer text"]) for _ in range(count)]
        return pa.table({c: pa.array(v, pa.string() if c == "s" else pa.int64()) for c, v in columns.items()})

    def draw_query(self, streams: str) -> str:
        rng = self.rng
        names = {stream: f"{stream.lower()}{rng.choice(['', 'x'])}" for stream in streams}
        size = rng.choice([3, 12, 40])
        uniform = rng.random() < 0.6
        windows = ["[RANGE 7]", "[NOW]", "[UNBOUNDED]", f"[RANGE {2 * size}]"]
        items = [f"{s} {f'[RANGE {size}]' if uniform else rng.choice(windows)} AS {names[s]}" for s in streams]
        where = [f"{left} = {right}" for left, right in self.links if {left[0], right[0]} <= set(streams)]
        where += [f"{s}.{rng.choice(['y > 1', 'x < 3', 'ts % 3 = 0'])}" for s in streams if rng.random() < 0.3]
        if rng.random() < 0.3:
            one, other = rng.sample(streams, 2)
            where.append(f"{one}.ts <= {other}.ts + {rng.randrange(5)}")
        shown = rng.sample([f"{s}.{c}" for s in streams for c in ("ts", "x", "y", "s")], rng.randint(1, 5))
        text = ", ".join(f"{column} AS c{n}" for n, column in enumerate(shown))
        text = f"SELECT {text} FROM {', '.join(items)} WHERE {' AND '.join(where)}"
        for stream, name in names.items():
            text = text.replace(f"{stream}.", f"{name}.")
        return f"DSTREAM ({text})" if rng.random() < 0.05 else text


def build_engine(**options: Any) -> ps.Engine:
    eng: ps.Engine = make_engine(**options)
    for name in STREAMS:
        columns = {"ts": "bigint", "x": "bigint", "y": "bigint", "s": "string"}
        eng.stream(name, columns, time="ts", lateness=2 if name == "B" else 0)
    return eng


def make_changes(rng: random.Random) -> Happens:
    return lambda eng, _step: apply_change(eng, rng) if rng.random() < 0.5 else eng


def apply_change(eng: ps.Engine, rng: random.Random) -> ps.Engine:
    names = query_names(eng)
    if not names:
        return eng
    name = rng.choice(names)
    match rng.choice(["snapshot", "migrate", "migrate", "policy", "reslice", "budget"]):
        case "snapshot":
            return ps.Engine.restore(eng.snapshot())
        case "policy":
            eng.policy(name, rng.choice(["eager", "lazy", "jit", "auto", "none"]))
        case "reslice":
            eng.reslice(rng.choice(["mem-opt", "cpu-opt"]))
        case "budget":
            eng.budget(10**9)
            eng.budget(None)
        case "migrate":
            aliases = str(eng.metrics(name)["plan"]).replace("(", " ").replace(")", " ").split()
            if rng.random() < 0.5:
                rng.shuffle(aliases)
            plan = f"({' '.join(aliases)})"
            if len(aliases) == 4 and rng.random() < 0.3:
                plan = "(({} {}) ({} {}))".format(*aliases)
            eng.migrate(name, plan, rng.choice(["jisc", "moving-state"]))
    return eng


def draw_run_with_wider_later(seed: int) -> NestedRun:
    """Narrower queries run before wider ones, and some are altered or start when the wider ones have gone."""
    run = NestedRun(seed)
    rng = run.rng
    for name in [name for name, at in run.added_at.items() if at == 0 and name != "q0"]:
        if rng.random() < 0.5:
            run.texts[name] = run.draw_query(run.streams[:2])
    run.added_at["q0"] = rng.randrange(run.steps)
    run.dropped_at["q0"] = rng.choice([run.steps, rng.randint(run.added_at["q0"], run.steps)])
    return run


def check_wider_later(seed: int) -> int:
    """As `check_nesting`, with wider queries that start after the narrower ones."""
    return check_run(seed, draw_run_with_wider_later(seed))


def check_nesting(seed: int) -> int:
    """Check the law for a seed; returns how often a query read a node of another query's join."""
    return check_run(seed, NestedRun(seed))


def check_run(seed: int, run: NestedRun) -> int:
    """Check the law for the queries of a run."""
    options = {"state": run.rng.choice(["eager", "auto"]), "batch": run.rng.choice([1, 7, 4096])}
    if seed % 4 < 2:  # sets of filter groups that are listed again after each batch leave early readers no pending rows
        options["maintenance"] = replace(law_support.MAINTENANCE, recycle_codes=SHIPPED.recycle_codes)
    changes = bool(seed % 2)
    nested = 0
    enter = JoinOperator.add_member

    def counted(self: JoinOperator, member: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal nested
        nested += member.need.scope is not None
        enter(self, member, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JoinOperator, "add_member", counted)
        together = push_all(build_engine(**options), run, list(run.texts), make_changes(run.rng) if changes else None)
    for name in run.texts:
        alone = push_all(build_engine(share=False, state="eager"), run, [name])[name]
        pairs = (
            [(together[name], alone)] if changes else [([t], [a]) for t, a in zip(together[name], alone, strict=True)]
        )
        for push, (ours, theirs) in enumerate(pairs):
            fault = difference(pa.concat_tables(ours), pa.concat_tables(theirs)) if ours or theirs else None
            assert fault is None, f"seed {seed}, {options}, {name} at {push}: {run.texts[name]}\n{fault}"
    return nested
