"""Makes a failing case small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.testing.case import Case, Push

T = TypeVar("T")
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails) -> Case:
    """A smaller case that still fails: steps, then rows are dropped while `fails` returns true.

    `fails` takes a candidate and returns whether the fault is still there. Lateness is computed anew for every
    candidate, so `case.expected` stays correct.
    """
    if not fails(case):
        raise ValueError("shrink needs a case that fails; this one does not")
    size = -1
    while size != (size := _compute_size(case)):
        case = _drop_steps(case, fails)
        for at, step in enumerate(case.steps):
            if isinstance(step, Push):
                case = _drop_batch_rows(case, at, step, fails)
        for name in case.tables:
            case = _drop_table_rows(case, name, fails)
    return case


def _drop_steps(case: Case, fails: Fails) -> Case:
    return replace(case, steps=_drop_items(case.steps, lambda steps: fails(replace(case, steps=steps))))


def _drop_batch_rows(case: Case, at: int, step: Push, fails: Fails) -> Case:
    """The case with fewer rows in the batches of the step at `at`."""

    def with_push(push: Push) -> Case:
        return replace(case, steps=(*case.steps[:at], push, *case.steps[at + 1 :]))

    for name in step.batches:
        step = _drop_rows(step, name, lambda push: fails(with_push(push)))
    return with_push(step)


def _drop_rows(step: Push, name: str, fails: Callable[[Push], bool]) -> Push:
    batch = step.batches[name]

    def with_rows(rows: tuple[int, ...]) -> Push:
        return Push({**step.batches, name: _take_rows(batch, rows)})

    return with_rows(_drop_items(tuple(range(batch.num_rows)), lambda rows: fails(with_rows(rows))))


def _drop_table_rows(case: Case, name: str, fails: Fails) -> Case:
    table = case.tables[name]

    def with_rows(rows: tuple[int, ...]) -> Case:
        return replace(case, tables={**case.tables, name: _take_rows(table, rows)})

    return with_rows(_drop_items(tuple(range(table.num_rows)), lambda rows: fails(with_rows(rows))))


def _drop_items(items: tuple[T, ...], still: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Greedily drop runs of items, long ones first, while `still` returns true."""
    run = len(items)
    while run:
        at = 0
        while at < len(items):
            candidate = items[:at] + items[at + run :]
            if still(candidate):
                items = candidate
            else:
                at += run
        run //= 2
    return items


def _compute_size(case: Case) -> int:
    rows = sum(table.num_rows for table in [*case.streams.values(), *case.tables.values()])
    return len(case.steps) + int(rows)


def _take_rows(table: pa.Table, rows: tuple[int, ...]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))
