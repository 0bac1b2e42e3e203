"""The law in storms: random queries over the same streams with random events, over 10 to 10,000 tuples.

Storms run on the embedded engine and on the cells of a pipeline. The oracle is DuckDB over validity intervals. Seeds
run in a child process: if the interpreter crashes, the test fails with the seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from storm.seed_processes import Outcome, run_seeds

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "300"))
CHUNK = 10
EMBEDDED = range(FIRST, FIRST + max(1, SEEDS // 5), CHUNK)
LARGE = range(FIRST, FIRST + max(1, SEEDS // 40), CHUNK // 2)
CELLS = range(FIRST, FIRST + max(1, SEEDS // 15), CHUNK)


def format_failures(outcomes: Iterable[Outcome]) -> str:
    """The failures, each with the command that repeats it."""
    failed = [outcome for outcome in outcomes if outcome.fault is not None]
    return "\n\n".join(f"{outcome.fault}\nrepeat: {outcome.command}" for outcome in failed)


@pytest.mark.parametrize("chunk", EMBEDDED)
def test_storm_embedded(chunk: int) -> None:
    assert not (text := format_failures(run_seeds("embedded", chunk, chunk + CHUNK))), text


@pytest.mark.parametrize("chunk", LARGE)
def test_storm_large(chunk: int) -> None:
    """At these sizes the shipped thresholds trigger maintenance."""
    assert not (text := format_failures(run_seeds("large", chunk, chunk + CHUNK // 2))), text


@pytest.mark.parametrize("chunk", CELLS)
def test_storm_on_cells(chunk: int) -> None:
    pytest.importorskip("pyspark")
    assert not (text := format_failures(run_seeds("cells", chunk, chunk + CHUNK))), text


def test_crash_reported_with_seed() -> None:
    """Odd seeds of this kind kill their process."""
    outcomes = list(run_seeds("crash", 0, 4))
    assert [(outcome.seed, outcome.fault is None) for outcome in outcomes] == [
        (0, True),
        (1, False),
        (2, True),
        (3, False),
    ]
    assert "seed 1 crashed the interpreter, signal 11 (SIGSEGV)" in format_failures(outcomes)
