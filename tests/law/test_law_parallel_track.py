"""The law during parallel-track migrations: alone, overlapping, and mixed with other kinds of migration."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
import pytest
from law_support import CHUNKS, check_case, list_seeds, make_engine

from penstock.errors import UnsupportedError
from penstock.testing import random_case, random_plan

ALIAS = re.compile(r"[^\s()]+")
WAYS = ("parallel-track", "parallel-track", "jisc", "moving-state")


@pytest.mark.parametrize("chunk", CHUNKS)
def test_parallel_track_matches_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed, windows=("range", "range", "rows", "now"))
        rng = random.Random(seed)
        options = {"state": rng.choice(("eager", "lazy", "jit", "none")), "batch": rng.choice((1, 3, 4096))}

        def events(case: Any = case, seed: int = seed) -> Any:
            rng = random.Random(seed + 1)

            def event(current: Any, step: int) -> Any:
                if step and rng.random() < 0.4:
                    how = rng.choice(WAYS)
                    current.migrate("q", random_plan(rng, ALIAS.findall(case.plan)), how=how)
                return type(current).restore(current.snapshot()) if rng.random() < 0.1 else None

            return event

        check_case(case, options, rng.choice((None, case.plan)), events)


def test_parallel_track_joins_static_tables() -> None:
    """The new tree joins two tables, whose rows never arrive."""
    running = make_engine(state="eager")
    running.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    running.table("T", pa.table({"x": [5], "y": [6]}))
    running.table("U", pa.table({"y": [6], "z": [7]}))
    running.query("q", "SELECT A.x, U.z FROM A [RANGE 9], T, U WHERE A.x = T.x AND T.y = U.y", plan="((A T) U)")
    running.push({"A": pa.table({"ts": [1], "x": [4]})})
    running.migrate("q", "(A (T U))", how="parallel-track")
    results = running.push({"A": pa.table({"ts": [2], "x": [5]})})["q"].num_rows
    assert results + running.flush()["q"].num_rows == 1


@pytest.mark.parametrize("window", ["", "[UNBOUNDED]", "[PARTITION BY x ROWS 3]"])
def test_parallel_track_refused_for_unbounded_window(window: str) -> None:
    running = make_engine()
    for name in ("A", "B"):
        running.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    running.query("q", f"SELECT A.x FROM A [RANGE 9], B {window} WHERE A.x = B.x", plan="(A B)")
    one = pa.table({"ts": [1], "x": [5]})
    results = running.push({"A": one})["q"].num_rows
    with pytest.raises(UnsupportedError, match="may never happen; use how='jisc'"):
        running.migrate("q", "(B A)", how="parallel-track")
    results += running.push({"B": one})["q"].num_rows + running.flush()["q"].num_rows
    assert results == 1
    assert "(A B)" in str(running.metrics("q")["plan"])
