"""Run one storm: `check_embedded(seed)` raises an AssertionError with everything needed to repeat it."""

from __future__ import annotations

from dataclasses import replace

from storm.embedded_run import EmbeddedRun
from storm.oracle_check import find_fault
from storm.scenario import MOST, Scenario, draw_scenario


def find_embedded_fault(scenario: Scenario) -> str | None:
    """The fault of a storm on the embedded engine, or None."""
    try:
        segments = EmbeddedRun(scenario).run()
    except AssertionError as error:
        return str(error)
    return find_fault(scenario, segments)


def check_embedded(seed: int, most: int = MOST) -> None:
    _check_scenario(draw_scenario(seed, most=most))


def check_large(seed: int) -> None:
    """Thousands of tuples, with the shipped thresholds of maintenance."""
    _check_scenario(replace(draw_scenario(seed, least=1_000), smallest_maintenance=False))


def _check_scenario(scenario: Scenario) -> None:
    fault = find_embedded_fault(scenario)
    assert fault is None, f"{scenario}\n{fault}"
