"""Snapshots of earlier versions are restored: a new version must convert the stored ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from snapshot_fixture import FOLDER, QUERIES, build_engine, make_push

import penstock as ps
from penstock.engine import snapshot
from penstock.testing import difference

FIRST_VERSION = 7
"""Versions before this one were never released."""


@pytest.mark.parametrize("version", range(FIRST_VERSION, snapshot.VERSION + 1))
def test_stored_snapshot_continues(version: int) -> None:
    whole, restored = build_engine(), ps.Engine.restore((FOLDER / f"snapshot-{version}.bin").read_bytes())
    for number in range(4):
        whole.push(make_push(number))
    steps = [lambda engine: engine.push(make_push(4)), lambda engine: engine.push(make_push(5)), ps.Engine.flush]
    for step in steps:
        wanted, found = step(whole), step(restored)
        for name in QUERIES:
            assert difference(found[name], wanted[name]) is None, name


def test_older_versions_are_converted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two versions before are simulated: their index has other names."""
    engine = build_engine()
    engine.push(make_push(0))
    old = engine.snapshot()
    present = snapshot.Snapshot.from_bytes(old)

    def rename_pushes(index: dict[str, Any], tables: list[pa.Table]) -> dict[str, Any]:
        assert tables
        return {**index, "count": index["pushes"]}

    def move_pushes(index: dict[str, Any], tables: list[pa.Table]) -> dict[str, Any]:
        assert tables
        return {**{key: value for key, value in index.items() if key != "count"}, "pushes": index["count"] + 100}

    monkeypatch.setattr(snapshot, "VERSION", snapshot.VERSION + 2)
    newest = snapshot.VERSION
    monkeypatch.setattr(snapshot, "CONVERTERS", {newest - 2: rename_pushes, newest - 1: move_pushes})
    assert snapshot.Snapshot.from_bytes(old).pushes == present.pushes + 100
    monkeypatch.setattr(snapshot, "CONVERTERS", {newest - 1: move_pushes})
    with pytest.raises(ps.DataError, match=r"BAD_SNAPSHOT.*restore it with the version of Penstock that wrote it"):
        snapshot.Snapshot.from_bytes(old)
