"""`ps.sql` over Spark Connect, in a process of its own: a process has sessions of one kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "connect_program.py"
PRINTED = ("no server", "batch ", "refused ", "stream ")
"""The beginnings of the program's lines; Spark prints others."""


def test_frames_over_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs the packages of pyspark[connect]")
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = [sys.executable, str(PROGRAM), str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, **settings})
    lines = [line for line in ended.stdout.splitlines() if line.startswith(PRINTED)]
    if lines and lines[0].startswith("no server"):
        pytest.skip(f"the server of Spark Connect does not start here: {lines[0]}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert lines == [
        "batch 88 ['name', 'v', 'w', '_ts']",
        "refused SESSION_SETTINGS",
        "refused SPARK_CONNECT",
        "refused SPARK_CONNECT",
        "refused TABLE_TOO_LARGE",
        "stream ['name', 'v', 'w', '_ts'] 0 0",
    ]
