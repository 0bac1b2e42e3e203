"""State policies against each other, on more rows than the brute-force oracle can handle."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest
from law_support import make_engine, run_case

from penstock.testing import Case, difference, expected, random_case

SHAPES = ("chain", "star", "cycle", "shared", "mixed")
FULL_ANSWERS = (2, 4, 6, 9, 10, 12, 13, 14, 17, 21, 30, 33, 34, 37, 38)  # seeds with hundreds to thousands of rows
OTHERS = ({"state": "none", "batch": 4096}, {"state": "eager", "batch": 50}, {"state": "none", "batch": 50})


def large_case(seed: int) -> Case:
    return random_case(
        seed,
        sources=2 + seed % 3,
        shape=SHAPES,
        windows=("range", "rows", "partition"),
        emit="DSTREAM" if seed % 3 else "",
        rows=1500,
        full=True,
        domain=10,
        span=6,
        limit=None,
    )


@pytest.mark.parametrize("seed", FULL_ANSWERS if "PENSTOCK_SEEDS" in os.environ else FULL_ANSWERS[::3])
def test_policies_agree(seed: int) -> None:
    case = large_case(seed)
    reference = run_case(case, {"state": "eager", "batch": 4096}, None)
    assert reference.num_rows > 100
    for options in OTHERS:
        found = difference(run_case(case, options, case.plan), reference)
        assert found is None, f"{case}\n{options}\n{found}"


SQUEEZED = (
    "DSTREAM (SELECT tag, v FROM R [PARTITION BY tag ROWS 1])",
    "SELECT g.tag, r.v FROM G [NOW] AS g, R [PARTITION BY tag ROWS 2] AS r WHERE g.tag = r.tag",
    "DSTREAM (SELECT g.v, r.v AS w FROM G [RANGE 7] AS g, R [PARTITION BY tag ROWS 1] AS r WHERE g.tag = r.tag)",
)


@pytest.mark.parametrize("looks", [True, False], ids=["results looked at", "results left for later"])
@pytest.mark.parametrize("text", SQUEEZED)
def test_windows_compact_out_of_order_expiry(text: str, looks: bool) -> None:
    """Some tags are read much more often than others, so their tuples expire between tuples that stay."""
    rng = random.Random(text)
    current = make_engine()
    for name in "RG":
        current.stream(name, {"ts": "bigint", "tag": "bigint", "v": "bigint"}, time="ts")
    current.query("q", text)
    pushes, answers = [], []
    for push in range(10):
        pushes.append({name: _reads(rng, 100 * push, 250 if name == "R" else 25) for name in "RG"})
        answers.append(current.push(pushes[-1]))
        if looks:
            assert answers[-1]["q"].num_rows >= 0
    answers.append(current.flush())
    every = {name: pa.concat_tables([push[name] for push in pushes]) for name in "RG"}
    wanted = expected(text, every, {}, dict.fromkeys("RG", "ts"))
    assert wanted.num_rows > 100
    fault = difference(pa.concat_tables([answer["q"] for answer in answers]), wanted)
    assert fault is None, fault


def _reads(rng: random.Random, start: int, rows: int) -> pa.Table:
    return pa.table({
        "ts": sorted(start + rng.randrange(100) for _ in range(rows)),
        "tag": [int(30 * rng.random() ** 3) for _ in range(rows)],
        "v": [rng.randrange(1000) for _ in range(rows)],
    })  # fmt: skip
