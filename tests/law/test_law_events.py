"""The law with events: restarts, other queries that are added and dropped, late rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from law_support import CHUNKS, STATES, check_case, list_seeds, make_engine

from penstock.testing import Case, another_query, declare, expected, random_case, run_all, same_rows


def draw_run_options(case: Case) -> tuple[random.Random, dict[str, Any], str | None]:
    rng = random.Random(case.seed)
    options = {"state": rng.choice(STATES), "batch": rng.choice((1, 3, 4096))}
    return rng, options, rng.choice((None, case.plan))


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_restarts_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        rng, options, plan = draw_run_options(case)
        when = {rng.randint(0, len(case.steps)) for _ in range(rng.randint(1, 4))}

        def restart(current: Any, step: int, when: set[int] = when) -> Any:
            return type(current).restore(current.snapshot()) if step in when else None

        check_case(case, options, plan, lambda: restart)


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_query_added_and_dropped_matches_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        rng, options, plan = draw_run_options(case)
        first, last = sorted(rng.randint(0, len(case.steps)) for _ in range(2))
        check_case(case, options, plan, make_add_and_drop(another_query(case, seed), first, last))


def make_add_and_drop(text: str, first: int, last: int) -> Callable[[], Any]:
    def events() -> Any:
        def event(current: Any, step: int) -> None:
            if step == first:
                current.query("other", text)
            if step == last:
                current.drop("other")

        return event

    return events


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_query_added_later_sees_later_tuples(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        rng, options, plan = draw_run_options(case)
        text, first = another_query(case, seed), rng.randint(0, len(case.steps))

        def add(current: Any, step: int, text: str = text, first: int = first) -> None:
            if step == first:
                current.query("other", text)

        answers = run_all(lambda options=options: make_engine(**options), case, plan=plan, events=add)
        try:
            same_rows(answers["q"], case.expected)
            same_rows(answers["other"], expected(text, case.accepted_since(first), case.tables, case.times))
        except AssertionError as error:
            raise AssertionError(
                f"{case}\n{options}, plan={plan!r}\nother before step {first}: {text}\n{error}"
            ) from error


@pytest.mark.parametrize("seed", range(20))
def test_late_rows_to_late_output(seed: int) -> None:
    case = random_case(seed, late=True)
    rows: dict[str, Any] = {}

    def look(current: Any, step: int) -> None:
        if step == len(case.steps):
            rows.update({name: current.late(name) for name in case.late})

    check_case(case, {"state": "eager"}, None, lambda: look)
    for name, wanted in case.late.items():
        same_rows(rows[name].select(wanted.column_names), wanted)


def test_declare_allows_manual_query() -> None:
    case = random_case(0)
    by_hand = make_engine(state="eager")
    declare(by_hand, case)
    by_hand.query("mine", case.query)
    assert set(by_hand.flush()) == {"mine"}
