"""Lab `ends` on tiny data. No test asserts a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from services import SCRIPT, require_service

from penstock.lab.ends.experiments import run
from penstock.lab.ends.topics import find_broker
from penstock.lab.join_workloads import build_one_key

pytest.importorskip("pyspark")


def test_report_without_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_KAFKA", raising=False)
    report = run(quick=True)
    assert report.ok
    assert "make services" in report.notes[0]
    assert find_broker({"PENSTOCK_KAFKA": "host:1"}) == "host:1"
    state = tmp_path / "state.json"
    state.write_text('{"kafka": {"port": 7}}')
    assert find_broker({}, state) == "127.0.0.1:7"


@pytest.mark.services
@pytest.mark.flaky(reruns=2, only_rerun=["Python worker failed to connect back"])  # Spark waits ten seconds for it
def test_every_run_has_all_results(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    from penstock.spark.kafka import fetch_jars

    monkeypatch.setenv("PENSTOCK_KAFKA", f"127.0.0.1:{require_service('kafka')['port']}")
    os.environ.setdefault("PENSTOCK_JARS", str(SCRIPT.FOLDER / "jars"))
    fetch_jars(pyspark.__version__)
    report = run(quick=True, workload=build_one_key("W3", 3, 600, 60, 20, 5, 6))
    assert [check.value for check in report.checks if check.name.endswith("wrong_counts")] == [0, 0, 0]
    rows = report.sections[0].rows
    assert len(rows) == 3
    assert len({row["results"] for row in rows}) == 1
    assert rows[0]["results"] > 100
