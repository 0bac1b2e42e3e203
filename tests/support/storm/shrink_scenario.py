"""Reduce a failing storm: leave out events, queries, steps and rows as long as it still fails."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.testing import Push
from penstock.testing.shrink import _drop_items
from storm.scenario import Event, Scenario, draw_scenario

Fails = Callable[[Scenario], bool]


def shrink_scenario(scenario: Scenario, fails: Fails) -> Scenario:
    """A smaller storm for which `fails` still holds."""
    size = -1
    while size != (size := _compute_size(scenario)):
        scenario = _drop_queries(scenario, fails)
        events = _drop_items(scenario.events, lambda events: fails(_replace(scenario, events=events)))  # noqa: B023
        scenario = _replace(scenario, events=events)
        scenario = _drop_steps(scenario, fails)
        for at, step in enumerate(scenario.case.steps):
            for name in list(step.batches) if isinstance(step, Push) else ():
                scenario = _drop_rows(scenario, at, name, fails)
        scenario = _simplify_options(scenario, fails)
    return scenario


def _replace(scenario: Scenario, **changes: Any) -> Scenario:
    return replace(scenario, **changes, expected_cache={})


def _compute_size(scenario: Scenario) -> int:
    rows = sum(table.num_rows for table in scenario.case.streams.values())
    return len(scenario.events) + len(scenario.case.steps) + len(scenario.texts) + int(rows)


def _drop_queries(scenario: Scenario, fails: Fails) -> Scenario:
    def only(names: tuple[str, ...]) -> Scenario:
        texts = {name: scenario.texts[name] for name in names}
        known = {name for name in texts if not name.endswith("'")}
        events = [event for event in scenario.events if not event.query or event.query in known]
        events = [event for event in events if event.action != "alter" or f"{event.query}'" in texts]
        return _replace(scenario, texts=texts, events=tuple(events))

    return only(
        _drop_items(tuple(scenario.texts), lambda names: _has_derived_streams(scenario, names) and fails(only(names)))
    )


def _has_derived_streams(scenario: Scenario, names: tuple[str, ...]) -> bool:
    """Whether every derived stream that a query reads is among the names."""
    return all(scenario.texts[name].reads <= set(names) for name in names)


def _drop_steps(scenario: Scenario, fails: Fails) -> Scenario:
    def only(places: tuple[int, ...]) -> Scenario:
        steps = tuple(scenario.case.steps[place] for place in places)
        events = tuple(_move_event(event, places) for event in scenario.events)
        return _replace(scenario, case=replace(scenario.case, steps=steps), events=events)

    return only(_drop_items(tuple(range(len(scenario.case.steps))), lambda places: fails(only(places))))


def _move_event(event: Event, places: tuple[int, ...]) -> Event:
    return replace(event, step=sum(place < event.step for place in places))


def _drop_rows(scenario: Scenario, at: int, name: str, fails: Fails) -> Scenario:
    case = scenario.case
    step = case.steps[at]
    assert isinstance(step, Push)
    batch = step.batches[name]

    def only(rows: tuple[int, ...]) -> Scenario:
        push = Push({**step.batches, name: batch.take(pa.array(rows, pa.int64()))})
        return _replace(scenario, case=replace(case, steps=(*case.steps[:at], push, *case.steps[at + 1 :])))

    return only(_drop_items(tuple(range(batch.num_rows)), lambda rows: fails(only(rows))))


def _simplify_options(scenario: Scenario, fails: Fails) -> Scenario:
    plain = {"adapt": False, "slicing": "mem-opt", "schedule": "dfs", "batch": 4096, "state": "eager", "share": True}
    for name, value in plain.items():
        other = _replace(scenario, options={**scenario.options, name: value})
        if scenario.options[name] != value and fails(other):
            scenario = other
    for change in ({"read_when": "now"}, {"smallest_maintenance": False}):
        other = _replace(scenario, **change)
        if fails(other):
            scenario = other
    return scenario


def main() -> None:
    """Reduce the storm of a seed and print it; set NUMBA_BOUNDSCHECK=1 if the storm crashes."""
    parser = argparse.ArgumentParser(description="Reduce a failing storm.")
    parser.add_argument("kind", choices=("embedded", "cells"))
    parser.add_argument("seed", type=int)
    parser.add_argument("--containing", default="", help="only faults with this text count")
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    from storm import cell_run, embedded_check

    find, most = {
        "embedded": (embedded_check.find_embedded_fault, embedded_check.MOST),
        "cells": (cell_run.find_cells_fault, cell_run.MOST),
    }[given.kind]
    end = time.monotonic() + 60 * given.minutes

    def fails(scenario: Scenario) -> bool:
        fault = find(scenario) if time.monotonic() < end else None
        return fault is not None and given.containing in fault

    small = shrink_scenario(draw_scenario(given.seed, most=most), fails)
    print(f"{small}\n{find(small) or 'this seed does not fail'}")
    for number, step in enumerate(small.case.steps):
        rows = {name: table.to_pylist() for name, table in step.batches.items()} if isinstance(step, Push) else step
        print(f"step {number}: {rows}")
