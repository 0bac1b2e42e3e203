"""Random cases in which static tables are replaced while queries read them.

The oracles know no replacement: their tables have the rows of all versions, with the births that each is for, and the
text compares the birth of a combination with them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from law_support import BATCHES, STATES, make_engine

from penstock.cql import Stream
from penstock.errors import UnsupportedError
from penstock.testing import Case, Push, difference, expected, random_case, random_plan
from penstock.testing.case import to_ticks
from penstock.testing.row_functions import EPOCH
from penstock.testing.runner import run_all

ROWS = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("n", pa.string())])
FORMS = (
    "SELECT a.id, t.n FROM {A} AS a JOIN t ON a.x = t.x",
    "SELECT a.id, t.n, b.id AS other FROM {A} AS a, {B} AS b, t WHERE a.x = b.x AND b.y = t.x",
    "SELECT a.id, t.n, b.id AS other FROM {A} AS a, {B} AS b, t WHERE a.x = t.x AND b.y = t.y",
    "SELECT a.id, t.n, u.n AS m FROM {A} AS a, t, u WHERE a.x = t.x AND t.y = u.x",
    "SELECT a.id, t.n FROM {A} AS a JOIN t ON a.x < t.x",
    "SELECT a.id, t.n FROM {A} AS a LEFT JOIN t ON a.x = t.x",
    "SELECT a.id FROM {A} AS a ANTI JOIN t ON a.x = t.x",
    "SELECT a.id FROM {A} AS a SEMI JOIN t ON a.x = t.y",
    "SELECT t.n, COUNT(*) AS c, SUM(a.x) AS s FROM {A} AS a JOIN t ON a.x = t.x{V} GROUP BY t.n",
    "SELECT t.n, COUNT(*) AS c FROM {A} AS a, {B} AS b, t WHERE a.x = b.x AND b.y = t.x{V} GROUP BY t.n",
)
EMITS = ("", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM")


@dataclass(frozen=True)
class ReplacementCase:
    """Streams and steps, queries by name, and the rows of each table with the step before which it gets them."""

    case: Case
    queries: Mapping[str, str]
    oracle_queries: Mapping[str, str]
    versions: Mapping[str, tuple[tuple[int, pa.Table], ...]]

    def find_births(self, step: int) -> int:
        """The first birth for which rows hold that a table gets before a step."""
        reached = []
        for stream in self.case.declarations:
            taken = replace(self.case, steps=self.case.steps[:step])
            times = [to_ticks(each.value) + stream.lateness for each in taken.steps
                     if not isinstance(each, Push) and each.stream == stream.name]  # fmt: skip
            reached += times + [_to_tick(each) for each in taken.accepted[stream.name].column(stream.time).to_pylist()]
        return max(reached, default=-(2**60)) + 1

    def build_oracle_table(self, name: str) -> pa.Table:
        """The rows of all versions, with the births that they are for."""
        kind, parts = self.case.declarations[0].time_type, []
        starts = [-(2**50), *(self.find_births(step) for step, _ in self.versions[name][1:]), 2**52]
        for (_, rows), first, end in zip(self.versions[name], starts, starts[1:], strict=False):
            births = [pa.array([value] * rows.num_rows, pa.int64()).cast(kind) for value in (first, end)]
            parts.append(rows.append_column("since", births[0]).append_column("until", births[1]))
        return pa.concat_tables(parts)


def _to_tick(value: Any) -> int:
    return value if isinstance(value, int) else (value - EPOCH) // timedelta(microseconds=1)


def random_replacement_case(seed: int) -> ReplacementCase:
    rng = random.Random(f"replaced tables {seed}")
    base = random_case(seed, sources=2, rows=rng.choice((6, 14)), tables=False, limit=None, offset=0,
                       domain=3, full=True)  # fmt: skip
    form = rng.choice(FORMS)
    left, right = rng.choice(base.declarations), rng.choice(base.declarations)
    texts = {name: _write_query(rng, form, left, right) for name in ("q", "r", "s")}
    steps = [0, *sorted(rng.sample(range(1, len(base.steps) + 1), min(len(base.steps), rng.choice((1, 1, 2, 4)))))]
    versions = {
        name: tuple((step, _draw_rows(rng)) for step in steps if step == 0 or rng.random() < 0.8) for name in "tu"
    }
    return ReplacementCase(
        replace(base, query=texts["q"][0], plan="", tables={name: versions[name][0][1] for name in "tu"}),
        {name: text for name, (text, _) in texts.items()}, {name: text for name, (_, text) in texts.items()}, versions,
    )  # fmt: skip


def _draw_rows(rng: random.Random) -> pa.Table:
    rows = [
        {"x": rng.choice((None, 0, 1, 2)), "y": rng.randint(0, 2), "n": rng.choice("vw")}
        for _ in range(rng.choice((0, 3, 5)))
    ]
    return pa.Table.from_pylist(rows, schema=ROWS)


def _write_query(rng: random.Random, form: str, left: Stream, right: Stream) -> tuple[str, str]:
    """The text of a query, and the one that the oracles answer."""
    unit = " SECONDS" if pt.is_timestamp(left.time_type) else ""
    windows = ("[NOW]", "[ROWS 2]", *(f"[RANGE {length}{unit}]" for length in (1, 3, 9)), "")
    text = form.replace("{A}", f"{left.name} {rng.choice(windows)}")
    text = text.replace("{B}", f"{right.name} {rng.choice(windows)}")
    birth = f"GREATEST(a.{left.time}, b.{right.time})" if "{B}" in form else f"a.{left.time}"
    tests = "".join(
        f" AND {birth} >= {name}.since AND {birth} < {name}.until" for name in "tu" if re.search(rf"\b{name}\.", text)
    )
    text = text if "{V}" in text else text + "{V}"
    extra = rng.choice(("", "", " AND a.y > 1", " AND t.y <= 2"))
    emit = rng.choice(EMITS)
    own, other = (text.replace("{V}", f"{extra}{each}") for each in ("", tests))
    if emit.endswith("STREAM"):
        return f"{emit} ({own})", f"{emit} ({other})"
    return own + emit, other + emit


def check_replacement(seed: int) -> None:
    """All queries of a case equal the oracle, with options, restarts and migrations that the seed determines."""
    drawn, rng = random_replacement_case(seed), random.Random(f"run {seed}")
    options = {"state": rng.choice(STATES), "batch": rng.choice(BATCHES), "warn": False}
    often, restarts = rng.choice((0, 0.3)), rng.choice((0, 0, 0.3))

    def act(engine: Any, step: int) -> Any:
        if step == 0:
            for name, text in drawn.queries.items():
                if name != "q":
                    engine.query(name, text)
        for table, versions in drawn.versions.items():
            for since, rows in versions[1:]:
                if since == step:
                    engine.table(table, rows)
        if rng.random() < often:
            _change_engine(engine, rng)
        return type(engine).restore(engine.snapshot()) if rng.random() < restarts else None

    answers = run_all(lambda: make_engine(**options), drawn.case, events=act)
    case = drawn.case
    tables = {name: drawn.build_oracle_table(name) for name in drawn.versions}
    for name, text in drawn.oracle_queries.items():
        fault = difference(answers[name], expected(text, case.accepted, tables, case.times))
        assert fault is None, f"{name} of {drawn.queries}\n{options}\n{drawn.versions}\n{fault}"


def _change_engine(engine: Any, rng: random.Random) -> None:
    name = rng.choice("qrs")
    match rng.choice(("policy", "plan", "slices")):
        case "policy":
            engine.policy(name, rng.choice(STATES))
        case "slices":
            engine.reslice(rng.choice(("mem-opt", "cpu-opt")))
        case _:
            trees = [re.findall(r"[\w+]+", tree) for tree in (engine.queries[name].plan or "").split(";")]
            plan = "; ".join(random_plan(rng, aliases) for aliases in trees if aliases)
            if "(" in plan:
                with suppress(UnsupportedError):  # no parallel track without a bounded window
                    engine.migrate(name, plan, how=rng.choice(("jisc", "moving-state", "parallel-track")))
