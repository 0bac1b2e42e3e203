"""More than one executor: Spark's `local-cluster` starts them as separate processes."""

from __future__ import annotations

from pathlib import Path

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
