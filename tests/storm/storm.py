"""Run one storm: `check_embedded(seed)` raises an AssertionError that tells everything needed to repeat it."""

from __future__ import annotations

from dataclasses import replace

from embedded import Player
from scenario import MOST, Scenario, draw
from verdict import find_fault


def find_embedded_fault(scenario: Scenario) -> str | None:
    """What is wrong with a storm on the embedded engine, or None."""
    try:
        segments = Player(scenario).play()
    except AssertionError as error:
        return str(error)
    return find_fault(scenario, segments)


def check_embedded(seed: int, most: int = MOST) -> None:
    _check(draw(seed, most=most))


def check_large(seed: int) -> None:
    """Thousands of tuples, with the thresholds of maintenance as shipped."""
    _check(replace(draw(seed, least=1_000), smallest=False))


def _check(scenario: Scenario) -> None:
    fault = find_embedded_fault(scenario)
    assert fault is None, f"{scenario}\n{fault}"
