"""What Penstock needs of its environment: Python, packages, Java, and the interpreter of Spark's workers.

Every check returns a `Finding`. A start raises the first problem and gives the warnings; `penstock doctor` prints all.
This module imports without pyspark and without pandas, so that it can report that they are missing. The checks of a
start are cheap: they import what Spark imports anyway, and start a process only if the workers use another interpreter
than the driver.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import penstock
from penstock.errors import ResourceError, UnsupportedError
from penstock.spark.java import describe_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Level = Literal["ok", "warning", "problem"]
Version = tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """The result of one check. A problem has the condition of its error and a remedy; a warning has a remedy."""

    name: str
    level: Level
    found: str
    remedy: str = ""
    condition: str = ""

    def to_error(self) -> ResourceError:
        return ResourceError(self.condition, f"{self.name}: {self.found}; {self.remedy}", check=self.name)


@dataclass(frozen=True)
class Requirement:
    """A package and its tested versions: from `lowest` on, before `untested`. pyproject.toml has the same."""

    package: str
    lowest: str
    untested: str
    extra: str = ""
    module: str = ""
    newer_fails: bool = field(default=False, kw_only=True)

    @property
    def install_command(self) -> str:
        return f"pip install 'penstock[{self.extra}]'" if self.extra else "pip install penstock"

    @property
    def versions(self) -> str:
        return f"{self.package}>={self.lowest},<{self.untested}"


LOWEST_PYTHON, UNTESTED_PYTHON = (3, 11), (3, 14)
CORE_PACKAGES = (
    Requirement("numba", "0.61", "0.69"),
    Requirement("numpy", "2.0", "2.5"),
    Requirement("pyarrow", "19", "27"),
    Requirement("rich", "13.8", "16"),
    Requirement("scipy", "1.14", "1.19"),
    Requirement("sqlglot", "30", "31", newer_fails=True),
    Requirement("typer", "0.26", "0.30"),
)
SPARK_PACKAGES = (
    Requirement("pyspark", "4.1", "4.4", "spark"),
    Requirement("pandas", "2.2", "3", "spark", newer_fails=True),
    Requirement("protobuf", "6.33.5", "8", "spark", "google.protobuf"),
)
CONNECTOR_PACKAGES = (
    Requirement("deltalake", "1.2", "2", "delta"),
    Requirement("pyiceberg", "0.12", "0.13", "iceberg"),
    Requirement("psycopg", "3.2.3", "4", "postgres"),
    Requirement("fastavro", "1.10", "2", "kafka"),
    Requirement("confluent-kafka", "2.6", "3", "kafka"),
)
"""Packages of connectors; a pipeline without these connectors does not need them."""
_CHECKED_AT_START = ("numba", "numpy", "pyarrow")
_PROBE = """
import sys
print("%d.%d" % sys.version_info[:2])
from importlib.util import find_spec
print(" ".join(name for name in ("penstock", "numba", "pandas", "pyarrow") if find_spec(name) is None))
import penstock
print(penstock.__version__)
"""
_PROBE_SECONDS = 60
_SET_WORKER_PYTHON = (
    "set PYSPARK_PYTHON (or spark.pyspark.python of spark-submit) to the interpreter that has Penstock, before the "
    f"session is created: export PYSPARK_PYTHON={sys.executable}"
)


# ── packages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_version(text: str) -> Version:
    """The leading numbers of a version: `4.1.0.dev1` is (4, 1, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def check_python(version: Version = sys.version_info[:2]) -> Finding:
    text, lowest = ".".join(map(str, version)), ".".join(map(str, LOWEST_PYTHON))
    if version < LOWEST_PYTHON:
        remedy = f"Penstock needs Python {lowest} or newer: install it in a new virtual environment"
        return Finding("python", "problem", f"{text} at {sys.executable}", remedy, "PYTHON_VERSION")
    if version >= UNTESTED_PYTHON:
        newest = f"{UNTESTED_PYTHON[0]}.{UNTESTED_PYTHON[1] - 1}"
        return Finding("python", "warning", f"{text}, newer than tested", f"tested up to Python {newest}")
    return Finding("python", "ok", f"{text} at {sys.executable}")


def check_package(requirement: Requirement) -> Finding:
    """Import a package and compare its version with the tested ones."""
    name, module = requirement.package, requirement.module or requirement.package
    missing = "SPARK_NOT_INSTALLED" if requirement.extra else "PACKAGE_MISSING"
    try:
        imported = import_module(module)
        found = getattr(imported, "__version__", None) or metadata.version(name)
    except ModuleNotFoundError as error:
        if error.name in (module, module.partition(".")[0]):
            return Finding(name, "problem", "not installed", requirement.install_command, missing)
        return _describe_broken(requirement, error)
    except Exception as error:
        return _describe_broken(requirement, error)
    return judge_version(requirement, str(found), (getattr(imported, "__path__", None) or [""])[0])


def judge_version(requirement: Requirement, found: str, place: str = "") -> Finding:
    """Compare a version with the tested ones."""
    name, version = requirement.package, parse_version(found)
    remedy = f"pip install '{requirement.versions}'"
    where = f"{found} at {place}" if place else found
    if version < parse_version(requirement.lowest):
        return Finding(name, "problem", f"{where} is too old", remedy, "PACKAGE_VERSION")
    if version >= parse_version(requirement.untested):
        if requirement.newer_fails:
            return Finding(name, "problem", f"{where} is too new", remedy, "PACKAGE_VERSION")
        return Finding(name, "warning", f"{where} is newer than tested", f"if something fails: {remedy}")
    return Finding(name, "ok", found)


def _describe_broken(requirement: Requirement, error: Exception) -> Finding:
    message = (str(error).strip().splitlines() or [""])[0]
    said = f"cannot be imported: {type(error).__name__}: {message}"
    remedy = f"pip install --force-reinstall '{requirement.versions}'"
    return Finding(requirement.package, "problem", said, remedy, "PACKAGE_BROKEN")


def check_packages(*, spark: bool) -> list[Finding]:
    """Python and the packages of the engine, and those of the pipeline if wanted."""
    wanted = (*CORE_PACKAGES, *SPARK_PACKAGES) if spark else CORE_PACKAGES
    return [check_python(), *map(check_package, wanted)]


# ── Java and Spark ───────────────────────────────────────────────────────────────────────────────────────────────────


def check_java(environment: Mapping[str, str] = os.environ) -> Finding:
    try:
        return Finding("java", "ok", describe_java(environment))
    except ResourceError as error:
        found, _, remedy = error.message.partition("; ")
        return Finding("java", "problem", found, remedy, error.condition)


def check_spark_home(pyspark_version: str, environment: Mapping[str, str] = os.environ) -> Finding:
    """SPARK_HOME replaces the Java part of the installed pyspark; both parts must be of one version."""
    home = environment.get("SPARK_HOME")
    if not home:
        return Finding("SPARK_HOME", "ok", "not set: Spark of the installed pyspark")
    jars = [re.match(r"spark-core_[\d.]+-(\d.*)\.jar", path.name) for path in Path(home, "jars").glob("spark-core_*")]
    version = next((jar[1] for jar in jars if jar), None)
    remedy = "unset SPARK_HOME, or install the pyspark of that version"
    if version is None:
        return Finding("SPARK_HOME", "warning", f"{home} has no jars/spark-core", remedy)
    if parse_version(version)[:2] != parse_version(pyspark_version)[:2]:
        found = f"Spark {version} at {home}, but pyspark {pyspark_version}"
        return Finding("SPARK_HOME", "problem", found, remedy, "SPARK_HOME_DIFFERS")
    return Finding("SPARK_HOME", "ok", f"Spark {version} at {home}")


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_worker_python(command: str) -> Finding:
    """Whether an interpreter of this machine can be that of the workers. The driver's own is not started."""
    path = shutil.which(command)
    if path is None:
        found = f"{command} is not an interpreter"
        return Finding("worker python", "problem", found, _SET_WORKER_PYTHON, "WORKER_PYTHON_MISSING")
    if is_same_interpreter(path, sys.executable):
        return Finding("worker python", "ok", path)
    return judge_worker_python(path, _probe_interpreter(path))


@cache
def _probe_interpreter(path: str) -> str:
    """What the probe prints; nothing if the interpreter does not start."""
    command = [path, "-c", _PROBE]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def judge_worker_python(path: str, probed: str) -> Finding:
    """Compare what the probe printed (version, missing packages, version of Penstock) with this process."""
    version, missing, installed, *_ = [*probed.splitlines(), "", "", ""]
    own = ".".join(map(str, sys.version_info[:2]))
    condition = ""
    if not re.fullmatch(r"\d+\.\d+", version):
        condition, found = "WORKER_PYTHON_MISSING", f"{path} is not an interpreter"
    elif version != own:
        condition, found = "WORKER_PYTHON_VERSION", f"{path} is Python {version}, the driver is Python {own}"
    elif missing:
        condition, found = "WORKER_WITHOUT_PENSTOCK", f"{path} cannot import {', '.join(missing.split())}"
    elif installed != penstock.__version__:
        condition = "WORKER_PENSTOCK_DIFFERS"
        found = f"{path} has Penstock {installed}, the driver has {penstock.__version__}"
    if condition:
        return Finding("worker python", "problem", found, _SET_WORKER_PYTHON, condition)
    return Finding("worker python", "ok", path)


def is_same_interpreter(one: str, other: str) -> bool:
    """Whether two paths start one interpreter with the same packages.

    The `python` of a virtual environment links to that of the system, so links alone do not decide.
    """
    return os.path.realpath(one) == os.path.realpath(other) and (
        os.path.realpath(Path(one).parent) == os.path.realpath(Path(other).parent)
    )


def explain_worker_failure(text: str) -> ResourceError | None:
    """The error for a task that failed because of the interpreter of its worker, on whatever machine it runs."""
    if "PYTHON_VERSION_MISMATCH" in text:
        found, condition = "Spark's workers have another Python version than the driver", "WORKER_PYTHON_VERSION"
    elif "No module named 'penstock'" in text:
        found, condition = "Spark's workers cannot import penstock", "WORKER_WITHOUT_PENSTOCK"
    elif match := re.search(r'Cannot run program "([^"]+)"', text):
        found, condition = f"Spark cannot start its workers with {match[1]}", "WORKER_PYTHON_MISSING"
    else:
        return None
    remedy = f"install Penstock on every node; {_SET_WORKER_PYTHON}"
    return Finding("worker python", "problem", found, remedy, condition).to_error()


# ── starts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def require(findings: Iterable[Finding]) -> None:
    """Raise the first problem; give each warning once."""
    for finding in findings:
        if finding.level == "problem":
            raise finding.to_error()
        if finding.level == "warning":
            warnings.warn(f"{finding.name}: {finding.found}; {finding.remedy}", stacklevel=3)


@cache
def require_spark(otherwise: str = "") -> None:
    """Check Python and the packages of the pipeline. The error has the remedy and what works `otherwise`."""
    core = [each for each in CORE_PACKAGES if each.package in _CHECKED_AT_START]
    findings = [check_python(), *map(check_package, (*SPARK_PACKAGES, *core))]
    require(replace(each, remedy=f"{each.remedy}; {otherwise}" if otherwise else each.remedy) for each in findings)


def require_worker_python(command: str) -> None:
    """Check the interpreter that a local session would start its workers with."""
    require([check_worker_python(command)])


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: the driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_session(spark: SparkSession) -> None:
    """Check a session that the user created: its kind, its version and, on this machine, its workers."""
    if is_connect(spark):
        raise UnsupportedError(
            "SPARK_CONNECT",
            "a pipeline needs a session in the driver's own process, not Spark Connect; use ps.sql, which works over "
            "Spark Connect, or unset SPARK_REMOTE and create the session with SparkSession.builder.master(...)",
        )
    require_spark()
    require([judge_version(SPARK_PACKAGES[0], spark.version)])
    context = spark.sparkContext
    ships_packages = context.getConf().get("spark.submit.pyFiles") or context._python_includes
    if (context.master or "").partition("[")[0] == "local" and not ships_packages:
        require_worker_python(context.pythonExec)
