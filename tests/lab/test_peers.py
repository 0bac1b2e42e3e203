"""Engines other than Spark beside the embedded engine, on tiny data. No test asserts a time."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ResourceError
from penstock.lab.join_workloads import build_one_key, build_twelve
from penstock.lab.peers.peer_engines import (
    PEERS,
    PeerEngine,
    compare_engines,
    find_interpreters,
    run_embedded,
    run_peer,
)

W3 = build_one_key("W3", 3, 600, 60, 20, 5, 3)
W12 = build_twelve(300, 30, 10, 3, (500, 1000, 2500))

ANSWERS = """
import json, sys
from pathlib import Path
asked = json.loads(sys.argv[1])
assert all(len(list((Path(asked["folder"]) / name).glob("*.parquet"))) == 3 for name in asked["streams"])
print("some chatter")
print(json.dumps({"seconds": 3600.0, "reading": 1.0, "results": %s}))
"""


@pytest.fixture
def fake(tmp_path: Path) -> PeerEngine:
    return PeerEngine("fake", "fake", "json", str(tmp_path / "fake.py"))


def ignore_note(label: str) -> None:
    assert label


@pytest.mark.parametrize("load", [W3, W12], ids=lambda load: load.name)
def test_embedded_counts_match_duckdb(load) -> None:
    assert run_embedded(load).results == load.count_results()
    assert sum(load.count_results()) > 0


def test_peer_counts_checked_and_goal_on_w3(fake: PeerEngine) -> None:
    """Counts of a peer are checked against DuckDB; only W3 has a goal."""
    for load, goals in ((W3, 1), (W12, 0)):
        Path(fake.program).write_text(ANSWERS % load.count_results())
        table, checks = compare_engines(load, {fake: sys.executable}, ignore_note)
        assert [row["engine"] for row in table] == ["penstock, embedded", "fake"]
        assert len({row["results"] for row in table}) == 1
        assert all(check.ok for check in checks if check.name.endswith("_wrong_counts"))
        assert sum(check.name.endswith("_rows_vs_fake") for check in checks) == goals
    Path(fake.program).write_text(ANSWERS % [7 for _ in W12.queries])
    _, checks = compare_engines(W12, {fake: sys.executable}, ignore_note)
    assert not next(check for check in checks if check.name == "w12_fake_wrong_counts").ok


def test_unnamed_peer_skipped_and_missing_peer_error(monkeypatch) -> None:
    for peer in PEERS:
        monkeypatch.delenv(peer.env_variable, raising=False)
    assert find_interpreters() == {}
    assert "pip install apache-flink, then PENSTOCK_FLINK_PYTHON=" in PEERS[0].install_hint
    monkeypatch.setenv("PENSTOCK_FLINK_PYTHON", "/nowhere/python")
    with pytest.raises(ResourceError, match=r"/nowhere/python \(PENSTOCK_FLINK_PYTHON\) did not run pyflink"):
        find_interpreters()


def test_last_output_is_reason_of_peer_failure(fake: PeerEngine) -> None:
    Path(fake.program).write_text("import sys\nsys.exit('Caused by: no room\\n\\tat somewhere\\n')")
    with pytest.raises(ResourceError, match=r"PEER_FAILED.*Caused by: no room"):
        run_peer(W3, fake, sys.executable)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_installed_peer_gives_same_counts(peer: PeerEngine) -> None:
    python = os.environ.get(peer.env_variable)
    if python is None:
        pytest.skip(peer.install_hint)
    for load in (W3, replace(W12, asked=W12.queries[:2])):
        assert run_peer(load, peer, python).results == load.count_results()
