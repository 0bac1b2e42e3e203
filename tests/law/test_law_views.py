"""The law over views: a query over views gives the results of the same query with the views in WITH.

More seeds: PENSTOCK_SEEDS=5000 PENSTOCK_FIRST_SEED=1000000 pytest -n auto tests/law/test_law_views.py
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from law_support import BATCHES, CHUNKS, STATES, list_seeds, make_engine

from penstock.testing import difference
from penstock.testing.relation_cases import ViewsCase, random_views_case
from penstock.testing.runner import run_all


def declare_views(views: ViewsCase) -> Callable[[Any, int], Any]:
    def declare(engine: Any, step: int) -> None:
        if step == 0:
            for name, text in views.views.items():
                engine.view(name, text)
            engine.query("reader", views.reader)

    return declare


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_views_equal_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        views = random_views_case(seed)
        options = {"state": STATES[seed % len(STATES)], "batch": BATCHES[seed % len(BATCHES)]}
        rng = random.Random(seed)
        when = {rng.randint(0, len(views.case.steps)) for _ in range(rng.randint(0, 2))}
        declare = declare_views(views)

        def events(engine: Any, step: int, when: set[int] = when, declare: Any = declare) -> Any:
            declare(engine, step)
            return type(engine).restore(engine.snapshot()) if step in when else None

        answers = run_all(lambda options=options: make_engine(**options), views.case, events=events)
        fault = difference(answers["reader"], views.case.expected)
        assert fault is None, f"{views}\n{options} restored before {when}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS[::10])
def test_late_reader_continues_with_current_rows(chunk: int) -> None:
    """Before its first change a late reader has the rows of the view, and then the same changes as an early one."""
    for seed in list_seeds(chunk):
        views = random_views_case(seed)
        start = random.Random(seed).randint(1, len(views.case.steps))
        name = list(views.views)[-1]
        declare = declare_views(views)

        def events(engine: Any, step: int, start: int = start, name: str = name, declare: Any = declare) -> Any:
            declare(engine, step)
            if step == 0:
                engine.query("early", f"SELECT * FROM {name} EMIT CHANGES")
            if step == start:
                engine.query("late", f"SELECT * FROM {name} EMIT CHANGES")
                return type(engine).restore(engine.snapshot()) if start % 2 else None
            return None

        answers = run_all(make_engine, views.case, events=events)
        early, late = (_list_changes(answers[each]) for each in ("early", "late"))
        if not late:
            continue
        first = late[0][0]
        assert _collect(early, first) == _collect(late, first), f"{views}\nfrom step {start}"
        assert Counter(each for each in early if each[0] > first) == Counter(each for each in late if each[0] > first)


def _list_changes(table: Any) -> list[tuple[Any, ...]]:
    return [(row.pop("_ts"), row.pop("_op"), *row.values()) for row in table.to_pylist()]


def _collect(changes: list[tuple[Any, ...]], until: Any) -> Counter[tuple[Any, ...]]:
    """The rows after all changes up to a time."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for time, sign, *values in changes:
        if time <= until:
            rows[tuple(values)] += 1 if sign == "+" else -1
    return +rows
