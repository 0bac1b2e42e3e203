"""The thresholds of maintenance: their valid values, and that a snapshot keeps them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from inspect_engine import maintenance_of

import penstock as ps
from penstock.state import SHIPPED, Maintenance
from penstock.state.maintenance import SMALLEST


def test_smallest_is_at_most_shipped() -> None:
    for field in fields(Maintenance):
        assert getattr(SMALLEST, field.name) < getattr(SHIPPED, field.name), field.name


@pytest.mark.parametrize(
    ("name", "value"),
    [("block", 0), ("capacity", 3), ("unite_every", 1.5), ("recycle_codes", -1), ("dead_rows", True), ("lineage", [])],
)
def test_wrong_threshold_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ps.QueryError, match=name):
        Maintenance(**{name: value})


@pytest.mark.parametrize("field", fields(Maintenance), ids=lambda field: field.name)
def test_threshold_below_smallest_is_refused(field: Any) -> None:
    with pytest.raises(ps.QueryError, match=field.name):
        Maintenance(**{field.name: getattr(SMALLEST, field.name) - 1})


def test_snapshot_keeps_thresholds() -> None:
    engine = ps.Engine(maintenance=SMALLEST)
    assert maintenance_of(ps.Engine.restore(engine.snapshot())) == SMALLEST
