"""More than one executor: Spark's `local-cluster` starts them as processes of their own."""

from __future__ import annotations

from pathlib import Path

from fault_cases import FaultCase, run_driver
from spark_support import write_case

SEED = 4


def test_two_executors_share_cells(tmp_path: Path) -> None:
    story = FaultCase(SEED, tmp_path)
    assert story.cells == 2
    write_case(story.case, tmp_path)
    ended = run_driver(story, "local-cluster[2,1,1024]")
    assert ended.returncode == 0, ended.stderr
    assert "executors 2" in ended.stdout
    story.check()
