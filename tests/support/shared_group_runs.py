"""Random runs of aggregate queries over one stream: added, altered and dropped while running, with restarts."""

from __future__ import annotations

import random
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
from law_support import make_engine

import penstock as ps
from penstock.testing import difference, expected

SCHEMA = pa.schema([
    ("ts", pa.int64()), ("k", pa.int64()), ("s", pa.string()), ("v", pa.float64()), ("d", pa.decimal128(8, 2)),
    ("b", pa.bool_()),
])  # fmt: skip
CALLS = (
    "COUNT(*)", "COUNT(v)", "SUM(v)", "AVG(v)", "MIN(v)", "MAX(v)", "COUNT(DISTINCT v)", "SUM(k)", "AVG(k)", "MAX(k)",
    "COUNT(DISTINCT k)", "SUM(d)", "AVG(d)", "MIN(ts)", "MAX(b)", "SUM(v + k)", "MIN(DISTINCT k)", "STDDEV(k)",
    "SUM(v) / COUNT(*)",
)  # fmt: skip
VALUES = (0.0, -0.0, 1.5, 1e300, -1e300, 1e-300, 0.1, float("nan"), float("inf"), float("-inf"), -2.25, 3.0)
FILTERS = ("v > 1", "k IN (0, 2)", "v IS NOT NULL AND k > 0", "s = 'a'")
HAVINGS = ("COUNT(*) > 1", "SUM(v) > 2", "SUM(v) > 0", "MAX(k) < 3 OR COUNT(v) = 2")
KEYS = (("k",), ("k",), ("k",), ("s",), (), ("k", "s"), ("k % 2",))
LATENESS = 3


def draw_query(rng: random.Random) -> str:
    life, keys = rng.randint(1, 40), rng.choice(KEYS)
    window = rng.choice([f"[RANGE {life}]"] * 6 + [f"[RANGE {life} SLIDE {rng.randint(1, 12)}]"] * 4 + ["[NOW]"])
    shown = [*rng.sample(keys, rng.randint(0, len(keys))), *rng.sample(CALLS, rng.randint(1, 4))]
    rng.shuffle(shown)
    text = "SELECT " + ", ".join(f"{item} AS c{place}" for place, item in enumerate(shown)) + f" FROM t {window}"
    text += f" WHERE {rng.choice(FILTERS)}" if rng.random() < 0.5 else ""
    text += f" GROUP BY {', '.join(keys)}" if keys else ""
    return text + (f" HAVING {rng.choice(HAVINGS)}" if rng.random() < 0.4 else "")


def draw_rows(rng: random.Random, time: int) -> pa.Table:
    def draw(values: Any) -> Any:
        return None if rng.random() < 0.1 else rng.choice(values)

    kinds = (range(4), "ab", VALUES, range(-500, 500), (True, False))
    rows = [(time + rng.randint(0, 30), *map(draw, kinds)) for _ in range(rng.choice([0, 1, 5, 30]))]
    plain = [(*row[:4], None if row[4] is None else Decimal(row[4]) / 100, row[5]) for row in rows]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in plain], SCHEMA)


def run_groups(seed: int, *, share: bool) -> dict[str, pa.Table]:
    """The results of every text that a query had, in one engine."""
    rng, time, count = random.Random(f"groups {seed}"), 0, 0
    engine = make_engine(share=share, batch=rng.choice([1, 7, 4096]), warn=False)
    engine.stream("t", SCHEMA, time="ts", lateness=LATENESS)
    found: defaultdict[str, list[pa.Table]] = defaultdict(list)
    running: dict[str, str] = {}

    def take(results: Any) -> None:
        for name, table in dict(results).items():
            found[running[name]].append(table)

    for step in range(rng.randint(4, 12)):
        for _ in range(rng.choice([0, 0, 1, 4]) if step else rng.randint(1, 8)):
            engine.query(f"q{count}", text := draw_query(rng))
            running[f"q{count}"], count = f"{count}: {text}", count + 1
        if running and rng.random() < 0.3:
            name = rng.choice(sorted(running))
            del running[name]
            if rng.random() < 0.5:
                engine.drop(name)
            else:
                engine.alter(name, text := draw_query(rng))
                running[name], count = f"{count}: {text}", count + 1
        time += rng.randint(0, 25)
        take(engine.push({"t": draw_rows(rng, time)}))
        chance = rng.random()
        if chance < 0.2:
            engine = ps.Engine.restore(engine.snapshot())
        elif chance < 0.3:
            engine.advance("t", time + rng.randint(0, 20))
    take(engine.flush())
    return {text: pa.concat_tables(tables) for text, tables in found.items()}


def check_groups(seed: int) -> None:
    """Queries that share windows of a stream have the results that each has alone."""
    shared, alone = run_groups(seed, share=True), run_groups(seed, share=False)
    assert shared.keys() == alone.keys()
    for text, table in shared.items():
        times = table.column("_ts").to_pylist()
        assert times == sorted(times), (seed, text)
        fault = difference(table, alone[text])
        assert fault is None, (seed, text, fault)


def check_groups_with_oracle(seed: int) -> None:
    """All queries start with the stream: the oracle knows their results."""
    rng = random.Random(f"oracle {seed}")
    texts = [draw_query(rng) for _ in range(rng.randint(2, 6))]
    rows = pa.concat_tables([draw_rows(rng, time) for time in range(0, 90, 30)]).sort_by("ts")
    engine = make_engine(batch=rng.choice([1, 7, 4096]), warn=False)
    engine.stream("t", SCHEMA, time="ts")
    for place, text in enumerate(texts):
        engine.query(f"q{place}", text)
    step = rng.choice([2, 11, 100])
    pushed = [dict(engine.push({"t": rows.slice(start, step)})) for start in range(0, rows.num_rows, step)]
    pushed.append(dict(engine.flush()))
    for place, text in enumerate(texts):
        fault = difference(pa.concat_tables([out[f"q{place}"] for out in pushed]), expected(text, {"t": rows}))
        assert fault is None, (seed, text, fault)
