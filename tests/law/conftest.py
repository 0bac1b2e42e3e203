"""The law tests run twice: with the shipped thresholds of maintenance, and with the smallest ones."""

from __future__ import annotations

import law_support
import pytest
from invariants import check_after_each_batch

from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST

MAINTENANCE = {"shipped": SHIPPED, "smallest": SMALLEST}
OWN_THRESHOLDS = ("tests.law.test_mutants", "tests.law.test_maintenance_mutants", "tests.law.test_law_expressions")
"""Modules whose cases choose their own thresholds, or have no state."""
NO_ENGINE = ("test_relations_oracles_agree",)
"""Tests that run no engine."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ not in OWN_THRESHOLDS and metafunc.function.__name__ not in NO_ENGINE:
        metafunc.parametrize("maintenance", list(MAINTENANCE), indirect=True)


@pytest.fixture(autouse=True)
def maintenance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of the law tests have these thresholds, and check their state after every batch."""
    monkeypatch.setattr(law_support, "MAINTENANCE", MAINTENANCE[getattr(request, "param", "shipped")])
    if request.node.module.__name__ not in OWN_THRESHOLDS:
        check_after_each_batch(monkeypatch)
