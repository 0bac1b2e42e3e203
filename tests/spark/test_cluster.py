"""More than one executor: Spark's `local-cluster` starts them as separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_cases import FaultCase, run_driver
from spark_support import write_case

SEED = 4


def test_two_executors_share_cells(tmp_path: Path) -> None:
    fault_case = FaultCase(SEED, tmp_path)
    assert fault_case.cells == 2
    write_case(fault_case.case, tmp_path)
    ended = run_driver(fault_case, "local-cluster[2,1,1024]")
    assert ended.returncode == 0, ended.stderr
    assert "executors 2" in ended.stdout
    fault_case.check()


@pytest.mark.soak
def test_lost_executors(tmp_path: Path) -> None:
    """Three executors of which one is killed in each of three micro-batches: results are exact."""
    fault_case = FaultCase(SEED, tmp_path)
    assert len(fault_case.case.steps) == 4
    ended = run_driver(fault_case, "local-cluster[3,1,1024]", "executors")
    assert ended.returncode == 0, ended.stderr
    killed = next(line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("killed"))
    assert len(set(killed)) == 3
    fault_case.check()
