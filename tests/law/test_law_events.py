"""The law under events: restarts, other queries coming and going, late rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from lawkit import CHUNKS, STATES, engine, holds, seeds

from penstock.testing import Case, another_query, declare, expected, random_case, run_all, same_rows


def some_way(case: Case) -> tuple[random.Random, dict[str, Any], str | None]:
    rng = random.Random(case.seed)
    options = {"state": rng.choice(STATES), "batch": rng.choice((1, 3, 4096))}
    return rng, options, rng.choice((None, case.plan))


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_restarts_change_nothing(chunk: int) -> None:
    for seed in seeds(chunk):
        case = random_case(seed)
        rng, options, plan = some_way(case)
        when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

        def restart(current: Any, step: int, when: set[int] = when) -> Any:
            return type(current).restore(current.snapshot()) if step in when else None

        holds(case, options, plan, lambda: restart)


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_another_query_comes_and_goes(chunk: int) -> None:
    for seed in seeds(chunk):
        case = random_case(seed)
        rng, options, plan = some_way(case)
        first, last = sorted(rng.randint(0, len(case.steps)) for _ in range(2))
        holds(case, options, plan, coming_and_going(another_query(case, seed), first, last))


def coming_and_going(text: str, first: int, last: int) -> Callable[[], Any]:
    def events() -> Any:
        def event(current: Any, step: int) -> None:
            if step == first:
                current.query("other", text)
            if step == last:
                current.drop("other")

        return event

    return events


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_a_query_added_under_way_sees_what_comes_after_it(chunk: int) -> None:
    for seed in seeds(chunk):
        case = random_case(seed)
        rng, options, plan = some_way(case)
        text, first = another_query(case, seed), rng.randint(0, len(case.steps))

        def add(current: Any, step: int, text: str = text, first: int = first) -> None:
            if step == first:
                current.query("other", text)

        answers = run_all(lambda options=options: engine(**options), case, plan=plan, events=add)
        try:
            same_rows(answers["q"], case.expected)
            same_rows(answers["other"], expected(text, case.accepted_since(first), case.tables, case.times))
        except AssertionError as error:
            raise AssertionError(
                f"{case}\n{options}, plan={plan!r}\nother before step {first}: {text}\n{error}"
            ) from error


@pytest.mark.parametrize("seed", range(20))
def test_late_rows_go_to_the_late_output(seed: int) -> None:
    case = random_case(seed, late=True)
    rows: dict[str, Any] = {}

    def look(current: Any, step: int) -> None:
        if step == len(case.steps):
            rows.update({name: current.late(name) for name in case.late})

    holds(case, {"state": "eager"}, None, lambda: look)
    for name, wanted in case.late.items():
        same_rows(rows[name].select(wanted.column_names), wanted)


def test_declare_is_enough_to_query_by_hand() -> None:
    case = random_case(0)
    by_hand = engine(state="eager")
    declare(by_hand, case)
    by_hand.query("mine", case.query)
    assert set(by_hand.flush()) == {"mine"}
