"""Programs that run in a damaged environment: packages hidden or of another version, other Java, other interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "cold_chain.cql"
_PREPARE = """
import sys
sys.path.insert(0, {root!r})
sys.modules.update(dict.fromkeys({hidden!r}))
for name, version in {versions!r}.items():
    __import__(name).__version__ = version
"""
_COMMAND = """
from penstock.cli import app
app(prog_name="penstock")
"""
_CLEARED = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_HOME")


def run_program(
    program: str,
    folder: Path,
    *arguments: object,
    hidden: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, where packages are hidden, have other versions, or come from `folder/packages`."""
    inherited = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    prepared = _PREPARE.format(root=str(ROOT), hidden=list(hidden), versions=dict(versions or {})) + program
    return subprocess.run(
        [sys.executable, "-c", prepared, *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(folder / "packages"), "COLUMNS": "250", **(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_command(folder: Path, *arguments: object, **damage: Any) -> subprocess.CompletedProcess[str]:
    """Run `penstock` with these arguments; the damage is that of `run_program`."""
    return run_program(_COMMAND, folder, *arguments, **damage)


def write_package(folder: Path, name: str, version: str) -> None:
    """A package of another version, which is found before the installed one."""
    package = folder / "packages" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")


def write_executable(path: Path, said: str) -> Path:
    """A command that prints a text to both outputs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{said}'\nprintf '{said}' >&2\n")
    path.chmod(0o755)
    return path


def write_java_home(folder: Path, version: str) -> Path:
    write_executable(folder / "bin" / "java", f'openjdk version "{version}"\\n')
    return folder


def build_bare_interpreter(folder: Path) -> str:
    """An interpreter of this version without any package."""
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")
