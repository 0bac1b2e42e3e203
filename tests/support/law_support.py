"""Shared by the law tests: seeds, engines by option, and the comparison of a run with the oracle."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.adapt import Rules
from penstock.state import SHIPPED
from penstock.testing import Case, difference, run, shrink

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "60"))
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
CHUNK = 10
CHUNKS = range(FIRST, FIRST + SEEDS, CHUNK)
STATES = ("eager", "lazy", "jit", "auto", "none")
BATCHES = (1, 3, 4096)
STRESS_RULES = Rules(
    margin=0, least=0, confirm=1, cool_down=0, per_minute=1_000_000, effort=1.0, wait=True, full=1e9
)  # fmt: skip
"""Acts on any gain at every sample; `full` prevents shedding on a slow machine."""


MAINTENANCE = SHIPPED
"""The default thresholds of engines; conftest.py sets them for each test."""


def make_engine(**options: Any) -> Any:
    import penstock as ps

    return ps.Engine(**{"maintenance": MAINTENANCE, **options})


def list_seeds(chunk: int) -> range:
    """The seeds of one chunk: pytest-xdist balances chunks."""
    return range(chunk, min(chunk + CHUNK, FIRST + SEEDS))


def list_run_options(case: Case) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Every way to run a case: state policy, batch size and plan."""
    for state, batch, plan in itertools.product(STATES, BATCHES, (None, case.plan)):
        yield {"state": state, "batch": batch}, plan


def sample_run_options(case: Case) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Two of the policies, each with every plan; the seed determines them and the batch size."""
    batch = BATCHES[case.seed % len(BATCHES)]
    states = {STATES[(case.seed + place) % len(STATES)] for place in (0, 2)}
    return (
        (options, plan)
        for options, plan in list_run_options(case)
        if options["batch"] == batch and options["state"] in states
    )


def check_case(case: Case, options: dict[str, Any], plan: str | None, events: Callable[[], Any] | None = None) -> None:
    """Law: a case run with these options gives the results of the oracle. `events` creates the events of the run."""
    fault = _find_fault(case, options, plan, events)
    if fault is None:
        return
    if os.environ.get("PENSTOCK_SHRINK"):
        case = shrink(case, lambda smaller: _find_fault(smaller, options, plan, events) is not None)
        fault = f"{_find_fault(case, options, plan, events)}\n\n{case.script()}"
    raise AssertionError(f"{case}\n{options}, plan={plan!r}\n{fault}\n(PENSTOCK_SHRINK=1 makes it small)")


def _find_fault(case: Case, options: dict[str, Any], plan: str | None, events: Callable[[], Any] | None) -> str | None:
    try:
        answer = run_case(case, options, plan, events)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return difference(answer, case.expected)


def run_case(
    case: Case, options: dict[str, Any], plan: str | None, events: Callable[[], Any] | None = None
) -> pa.Table:
    return run(lambda: make_engine(**options), case, plan=plan, events=events() if events else None)


def check_fails(check: Callable[[int], object], seed: int) -> bool:
    """Whether a check fails for a seed; used with mutants."""
    try:
        check(seed)
    except Exception:
        return True
    return False
