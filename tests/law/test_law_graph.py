"""The law with changes of the graph, also between two steps: strategies, break nodes, added and dropped queries."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from inspect_engine import operator_ids, query_names, watch_steps
from law_support import CHUNKS, STATES, check_case, list_seeds, make_engine

from penstock.testing import Case, another_query, expected, random_case, run_all, same_rows

STRATEGIES = ("dfs", "bfs", "rr")


def draw_run_options(rng: random.Random, case: Case) -> tuple[dict[str, Any], str | None]:
    options = {"state": rng.choice(STATES), "batch": rng.choice((1, 2, 7, 4096)), "schedule": rng.choice(STRATEGIES)}
    return options, rng.choice((None, case.plan))


def edit_graph(rng: random.Random, current: Any, text: str) -> None:
    """Make a random change of the graph that must not change the results of "q"."""
    operators = operator_ids(current)
    match rng.randrange(6):
        case 0:
            current.schedule(rng.choice(STRATEGIES))
        case 1:
            current.schedule(rng.choice(STRATEGIES), part=rng.choice([*operators, "q"]))
        case 2:
            current.break_after(rng.choice(operators))
        case 3:
            current.clear_break(rng.choice(operators))
        case 4 if "other" not in query_names(current):
            current.query("other", text)
        case 5 if "other" in query_names(current):
            current.drop("other")


def make_edits(case: Case, seed: int) -> Callable[[], Any]:
    def events() -> Any:
        rng, text = random.Random(seed), another_query(case, seed)

        def event(current: Any, _step: int) -> None:
            def watch() -> None:
                if rng.random() < 0.3:
                    edit_graph(rng, current, text)

            if seed % 2:  # without it, operators wait for more rows
                watch_steps(current, watch)
            edit_graph(rng, current, text)

        return event

    return events


@pytest.mark.parametrize("chunk", CHUNKS)
def test_graph_edits_between_steps_match_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        options, plan = draw_run_options(random.Random(seed), case)
        check_case(case, options, plan, make_edits(case, seed))


@pytest.mark.parametrize("chunk", CHUNKS[::2])
def test_query_added_during_push_sees_later_tuples(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        rng = random.Random(seed)
        options, plan = draw_run_options(rng, case)
        text, push, turn = another_query(case, seed), rng.randrange(len(case.steps)), rng.randrange(4)
        added: list[int] = []

        def add(
            current: Any, step: int, text: str = text, push: int = push, turn: int = turn, added: Any = added
        ) -> None:
            turns = iter(range(turn + 1))

            def watch() -> None:
                if step >= push and not added and next(turns, None) == turn:
                    added.append(step)
                    current.query("other", text)

            watch_steps(current, watch)

        answers = run_all(lambda options=options: make_engine(**options), case, plan=plan, events=add)
        try:
            same_rows(answers["q"], case.expected)
            if added:
                same_rows(answers["other"], expected(text, case.accepted_since(added[0] + 1), case.tables, case.times))
        except AssertionError as error:
            raise AssertionError(f"{case}\n{options}, plan={plan!r}\nother in step {added}: {text}\n{error}") from error


# ── time on demand ───────────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = (
    "SELECT A.x FROM A [RANGE 5], B [RANGE 8], C [RANGE 3] WHERE A.x = B.x AND B.x = C.x",
    "DSTREAM (SELECT A.x, B.y FROM A [ROWS 2], B [RANGE 8] WHERE A.x = B.x)",
    "SELECT x FROM A [NOW] UNION ALL SELECT x FROM B [NOW] UNION ALL SELECT y FROM C [NOW]",
)


@pytest.mark.parametrize("seed", range(40))
def test_strategies_agree_with_on_demand_timestamps(seed: int) -> None:
    """The same arrivals at the same clock times give the same results and the same late rows."""
    answers = [
        run_with_clock(seed, schedule, batch) for schedule, batch in (("dfs", 4096), ("dfs", 1), ("bfs", 1), ("rr", 2))
    ]
    assert all(answer == answers[0] for answer in answers[1:])
    assert answers[0]["q"]


def run_with_clock(seed: int, schedule: str, batch: int) -> dict[str, list[Any]]:
    rng, now = random.Random(seed), 0
    current = make_engine(schedule=schedule, batch=batch, clock=lambda: now)
    declared: list[dict[str, Any]] = [{"skew": 3}, {"idle_after": 4}, {"timestamps": "internal"}, {"lateness": 2}]
    for name in "ABC":
        current.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts", **rng.choice(declared))
    current.query("q", TEXTS[seed % len(TEXTS)])
    out = []
    for _ in range(30):
        now += rng.randrange(4)
        pushed = {
            name: [{"ts": now - rng.randrange(4), "x": rng.randrange(2), "y": 5} for _ in range(rng.randrange(1, 4))]
            for name in "ABC"
            if rng.random() < 0.4
        }
        out += current.push({name: pa.Table.from_pylist(rows) for name, rows in pushed.items()})["q"].to_pylist()
    out += current.flush()["q"].to_pylist()
    times = [row["_ts"] for row in out]
    assert times == sorted(times)
    return {"q": sorted(out, key=repr), **{name: current.late(name).to_pylist() for name in "ABC"}}
