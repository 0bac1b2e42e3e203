"""More than one executor: Spark's `local-cluster` starts them as processes of their own."""

from __future__ import annotations

from pathlib import Path

from mishaps import Story, driven
from sparkkit import write

SEED = 4


def test_two_executors_share_the_cells(tmp_path: Path) -> None:
    story = Story(SEED, tmp_path)
    assert story.cells == 2
    write(story.case, tmp_path)
    ended = driven(story, "local-cluster[2,1,1024]")
    assert ended.returncode == 0, ended.stderr
    assert "executors 2" in ended.stdout
    story.check()
