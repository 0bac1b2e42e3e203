"""The law above the joins: groups, DISTINCT, set operations, SLIDE, sequences, user aggregates, derived streams.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_operators.py
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, check_case, list_seeds, make_engine

from penstock.testing import Case, difference, expected, random_case, run_all
from penstock.testing.operator_cases import random_operators_case, random_operators_text


class Spread:
    """The difference of the largest and the smallest value; it cannot remove values."""

    type = "bigint"

    def initialise(self) -> None:
        self.seen: list[int] = []

    def iterate(self, value: int) -> None:
        self.seen.append(value)

    def terminate(self) -> int | None:
        spread = max(self.seen) - min(self.seen)
        return spread if spread < 2**63 else None


class Weighted:
    """The sum of products; it can remove values."""

    type = "bigint"

    def __init__(self) -> None:
        self.total = 0

    def iterate(self, value: int, weight: int) -> None:
        self.total += value * weight

    def remove(self, value: int, weight: int) -> None:
        self.total -= value * weight

    def terminate(self) -> int | None:
        return self.total if abs(self.total) < 2**63 else None


CLASSES = {"spread": Spread, "weighted": Weighted}
CALLS = ("spread({}.x)", "SPREAD(DISTINCT {}.y)", "weighted({}.y, {}.y + 1)", "weighted(DISTINCT {}.x, {}.y)")
OVER = (
    "SELECT c0 AS k, COUNT(*) AS n FROM d [RANGE {w}] GROUP BY c0",
    "DSTREAM (SELECT c0 AS k FROM d [RANGE {w}])",
    "RSTREAM (SELECT DISTINCT c0 AS k FROM d [RANGE {w}])",
    "SELECT d.c0 AS k, S.id AS i FROM d [RANGE {w}], {s} [RANGE {w}] AS S WHERE S.x > 0",
    "SELECT S.id AS i, e.c0 AS k FROM SEQ({s} AS S, d AS e) MODE RECENT",
    "SELECT c0 AS k, _ts AS at FROM d [NOW] UNION ALL SELECT c0, _ts AS at FROM d [RANGE {w}]",
)


def draw_run_options(case: Case) -> tuple[random.Random, dict[str, Any], str | None]:
    rng = random.Random(case.seed)
    return rng, {"state": rng.choice(STATES), "batch": rng.choice(BATCHES)}, rng.choice((None, case.plan or None))


def make_restarts(rng: random.Random, case: Case, **classes: Any) -> Any:
    when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

    def event(current: Any, step: int) -> Any:
        return type(current).restore(current.snapshot(), **classes) if step in when else None

    return event


@pytest.mark.parametrize("chunk", CHUNKS)
def test_run_options_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_operators_case(seed)
        for place, batch in enumerate(BATCHES):
            options = {"state": STATES[(seed + place) % len(STATES)], "batch": batch}
            check_case(case, options, case.plan or None if place else None)


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_restarts_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_operators_case(seed)
        rng, options, plan = draw_run_options(case)
        event = make_restarts(rng, case)
        check_case(case, options, plan, lambda event=event: event)


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_query_added_later_under_any_schedule(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_operators_case(seed, limit=500)
        rng, options, plan = draw_run_options(case)
        text, first = random_operators_text(rng, case.declarations), rng.randint(0, len(case.steps))
        restart = make_restarts(rng, case)

        def event(current: Any, step: int, rng: random.Random = rng, restart: Any = restart) -> Any:
            current = restart(current, step) or current
            if step == first:  # noqa: B023 - called before the next case
                current.query("other", text)  # noqa: B023
            if rng.random() < 0.2:
                current.schedule(rng.choice(("dfs", "bfs", "rr")))
            return current

        answers = run_all(lambda options=options: make_engine(**options), case, plan=plan, events=event)
        wanted = expected(text, case.accepted_since(first), case.tables, case.times)
        for name, answer in (("q", case.expected), ("other", wanted)):
            found = difference(answers[name], answer)
            assert found is None, f"{case}\n{options}, plan={plan!r}\n{name} before step {first}: {text}\n{found}"


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_sequences_under_skew(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_operators_case(seed, feature="sequence", late=seed % 4 == 0)
        rng, options, plan = draw_run_options(case)
        event = make_restarts(rng, case) if seed % 2 else None
        check_case(case, options, plan, (lambda event=event: event) if event else None)


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_user_defined_aggregates(chunk: int) -> None:
    for seed in list_seeds(chunk):
        feature = ("group", "global", "slide")[seed % 3]
        case = random_operators_case(seed, feature=feature, calls=CALLS, aggregates=CLASSES)
        rng, options, plan = draw_run_options(case)

        def made(options: dict[str, Any] = options) -> Any:
            fresh = make_engine(**options)
            for name, class_ in CLASSES.items():
                fresh.aggregate(name, class_)
            return fresh

        event = make_restarts(rng, case, aggregates=CLASSES) if seed % 2 else None
        found = difference(run_all(made, case, plan=plan, events=event)["q"], case.expected)
        assert found is None, f"{case}\n{options}, plan={plan!r}\n{found}"


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_derived_streams(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_operators_case(seed, emit=("", "DSTREAM")[seed % 2], limit=300)
        rng, options, plan = draw_run_options(case)
        duration = "4" if "int64" in str(case.declarations[0].time_type) else "4 SECONDS"
        text = rng.choice(OVER).format(w=duration, s=rng.choice(case.declarations).name)
        restart = make_restarts(rng, case) if rng.random() < 0.5 else lambda _current, _step: None

        def event(current: Any, step: int, text: str = text, restart: Any = restart) -> Any:
            if step == 0:
                current.derive("d", case.query)  # noqa: B023 - called before the next case
                current.query("over", text)
            return restart(current, step)

        answers = run_all(lambda options=options: make_engine(**options), case, plan=plan, events=event)
        wanted = expected(text, {**case.accepted, "d": case.expected}, {}, {**case.times, "d": "_ts"})
        for name, answer in (("q", case.expected), ("over", wanted)):
            found = difference(answers[name], answer)
            assert found is None, f"{case}\n{options}, plan={plan!r}\n{name}: {text}\n{found}"


@pytest.mark.parametrize("chunk", CHUNKS[::5])
def test_except_inputs_reordered_by_migration(chunk: int) -> None:
    for seed in list_seeds(chunk):
        base = random_case(seed, sources=4, tables=False, limit=400)
        rng = random.Random(seed)
        query, aliases = draw_except_chain(rng, base)
        case = replace(base, query=query, plan="; ".join(aliases))
        restart = make_restarts(rng, case) if rng.random() < 0.4 else lambda _current, _step: None

        def event(current: Any, step: int, rng: random.Random = rng, restart: Any = restart) -> Any:
            if rng.random() < 0.4:
                first, *others = aliases  # noqa: B023 - called before the next case
                current.migrate("q", "; ".join([first, *rng.sample(others, len(others))]))
            return restart(current, step)

        check_case(case, {"batch": rng.choice(BATCHES)}, rng.choice((None, case.plan)), lambda event=event: event)


def draw_except_chain(rng: random.Random, case: Case) -> tuple[str, list[str]]:
    """A chain of EXCEPT over some streams with random windows and columns."""
    selects, aliases = [], ["P", "Q", "R", "S"][: rng.choice((3, 4))]
    column = rng.choice(("x", "y", "s", "b"))
    for alias in aliases:
        stream = rng.choice(case.declarations)
        unit = "" if "int64" in str(stream.time_type) else " SECONDS"
        window = rng.choice((f"[RANGE {rng.choice((2, 5, 20))}{unit}]", f"[ROWS {rng.choice((1, 3))}]", "[NOW]"))
        selects.append(f"SELECT {alias}.{column} AS c FROM {stream.name} {window} AS {alias}")
    chain = " EXCEPT ".join(selects)
    emit = rng.choice(("", "DSTREAM", "RSTREAM"))
    return f"{emit} ({chain})" if emit else chain, aliases
