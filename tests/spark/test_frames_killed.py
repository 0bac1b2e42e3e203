"""A driver that is killed while a frame runs: another one continues from the checkpoint, and results are exact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frame_program import DDL, TEXT
from spark_support import wait_until, write_file

import penstock as ps

PROGRAM = Path(__file__).parents[1] / "support" / "frame_program.py"
BATCHES, SIZE = 12, 200


def make_rows(number: int, shift: int) -> pa.Table:
    times = range(number * SIZE, (number + 1) * SIZE)
    return pa.table({"ts": list(times), "k": [at * 7 % 10 for at in times], "v": [2 * at + shift for at in times]})


@pytest.mark.faults
def test_killed_driver_continues_exactly(spark: Any, tmp_path: Path) -> None:
    for number in range(BATCHES):
        for shift, name in enumerate(("t", "h")):
            write_file(tmp_path / name / f"{number}.parquet", make_rows(number, shift), number)
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    for commits in (2, 5):
        program = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda commits=commits: (tmp_path / "ck" / "commits" / str(commits)).exists())
        for pid in (int((tmp_path / "java").read_text()), program.pid):
            os.kill(pid, signal.SIGKILL)
        program.wait()
    subprocess.run(command, check=True, capture_output=True)
    written = spark.read.parquet(str(tmp_path / "out"))
    frames = {name: ps.timed(spark.read.schema(DDL).parquet(str(tmp_path / name)), "ts") for name in ("t", "h")}
    names = pa.table({"k": list(range(5)), "name": [f"room {k}" for k in range(5)]})
    answer = ps.sql(spark, TEXT, r=names, **frames)
    assert written.exceptAll(answer).isEmpty()
    assert answer.filter(f"_ts < {BATCHES * SIZE - 1}").exceptAll(written).isEmpty()
