"""`penstock doctor`: check the environment and the machine, and say what to do about each problem."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from penstock.errors import ResourceError
from penstock.spark.environment import (
    CONNECTOR_PACKAGES,
    Finding,
    check_java,
    check_package,
    check_packages,
    check_spark_home,
    check_worker_python,
    explain_worker_failure,
    parse_version,
)
from penstock.spark.session import SHORT_RUN_SETTINGS, create_log_file, local_session

_GIB = 2**30
_LEAST_DISK = 1 * _GIB
_LEAST_MEMORY = 2 * _GIB
_SPARK_CONNECTORS = (
    ("Delta's connector for Spark", "4.2", "deltalake"),
    ("Iceberg's connector for Spark", "4.1", "pyiceberg"),
)
"""Connectors with the newest Spark that they had a release for in November 2026, and what Penstock uses."""
_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def diagnose(*, spark: bool, console: Console) -> list[Finding]:
    """Run all checks. Without `spark`, only those of the embedded engine; with it, a session is started."""
    findings = [*check_packages(spark=spark), *check_machine()]
    broken = {each.name for each in findings if each.level == "problem"}
    if not broken & {"numba", "numpy", "pyarrow"}:
        findings.append(check_kernel_cache())
    if spark:
        findings += [check_java(), *check_workers(os.environ.get("PYSPARK_PYTHON"))]
        if "pyspark" not in broken:
            version = next(each.found for each in findings if each.name == "pyspark")
            findings += [check_spark_home(version), *check_connectors(version)]
        if all(each.level != "problem" for each in findings):
            console.print("starting Spark; this takes some seconds ...")
            findings.append(check_spark_start())
    return findings


def fetch_connectors(console: Console) -> None:
    """Copy the jars of connectors for the installed Spark."""
    import pyspark  # noqa: PLC0415 - `diagnose` reports that it is missing

    from penstock.spark.kafka import fetch_jars, get_jar_folder  # noqa: PLC0415

    version = pyspark.__version__
    console.print(f"copying jars to {get_jar_folder(version)} ...")
    for coordinates in fetch_jars(version):
        console.print(coordinates)


def check_connectors(version: str) -> Iterator[Finding]:
    """Kafka's connector for Spark, and the packages of other connectors. None of them is needed."""
    from penstock.spark.kafka import describe_connector  # noqa: PLC0415

    found, remedy = describe_connector(version)
    yield Finding("Kafka", "ok", found, remedy)
    for name, newest, package in _SPARK_CONNECTORS:
        if parse_version(version)[:2] > parse_version(newest):
            told = f"no release for Spark {version}; the newest is for Spark {newest}"
            yield Finding(name, "ok", told, f"not needed: sources and sinks use the package {package}")
    for requirement in CONNECTOR_PACKAGES:
        finding = check_package(requirement)
        missing = finding.condition in ("PACKAGE_MISSING", "SPARK_NOT_INSTALLED")
        yield replace(finding, level="ok", found="not installed") if missing else finding


def is_fine(findings: list[Finding]) -> bool:
    return all(each.level != "problem" for each in findings)


def print_findings(findings: list[Finding], console: Console) -> None:
    table = Table(title=f"Penstock {penstock.__version__}", title_justify="left", header_style="bold")
    for heading in ("check", "", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for each in findings:
        level = f"[{_STYLES[each.level]}]{each.level}[/]"
        table.add_row(each.name, level, _escape(each.found), _escape(each.remedy))
    console.print(table, highlight=False)
    console.print("everything needed is there" if is_fine(findings) else "fix the problems above, then try again")


def format_json(findings: list[Finding]) -> str:
    """A JSON object: `ok`, the version, and a list of findings."""
    document = {"ok": is_fine(findings), "penstock": penstock.__version__, "findings": [asdict(e) for e in findings]}
    return json.dumps(document, indent=2)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────────────


def check_machine() -> Iterator[Finding]:
    """Cores and memory, and the folders that Spark writes temporary files to."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", "ok", str(cores))
    memory = _measure_free_memory()
    if memory is not None:
        found = f"{memory / _GIB:.1f} GiB free"
        remedy = "end other programs, or set spark.driver.memory lower"
        enough = memory >= _LEAST_MEMORY
        yield Finding("memory", "ok" if enough else "warning", found, "" if enough else remedy)
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    yield check_temporary_folder("temporary files", "TMPDIR", None)
    for folder in filter(None, folders):
        yield check_temporary_folder("Spark's files", "SPARK_LOCAL_DIRS", folder)


def check_temporary_folder(name: str, variable: str, folder: str | None) -> Finding:
    """Whether a folder (by default the system's) can be written to and has space."""
    try:
        place = folder or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        remedy = f"set {variable} to a folder that you can write to"
        return Finding(name, "problem", f"not writable: {error}", remedy, "TEMP_NOT_WRITABLE")
    found = f"{free / _GIB:.1f} GiB free in {place}"
    if free < _LEAST_DISK:
        return Finding(name, "warning", found, f"free some space, or set {variable} to another folder")
    return Finding(name, "ok", found)


def _measure_free_memory() -> int | None:
    """Bytes that a new process can have; None where the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
        limit, used = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current"))
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            available = min(available, int(text) - int(used.read_text()))
    except (OSError, KeyError, ValueError):
        return None
    return available


def check_kernel_cache() -> Finding:
    """Where the machine code of kernels is kept. Without such a folder every process compiles it again."""
    from penstock.state import chain_append, find_cache_folder  # noqa: PLC0415 - numba loads slowly

    folder = find_cache_folder(chain_append)
    if folder is None:
        found = "no folder can be written to: every process compiles for some seconds"
        return Finding("kernel cache", "warning", found, "set NUMBA_CACHE_DIR to a folder that you can write to")
    return Finding("kernel cache", "ok", folder)


# ── Spark ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_workers(command: str | None) -> Iterator[Finding]:
    """The interpreter of the workers: as PYSPARK_PYTHON says, else that of Penstock's own session and of others."""
    yield check_worker_python(command or sys.executable)
    other = check_worker_python("python3")
    if command is None and other.level == "problem":
        name, found = "python3 on the PATH", f"{other.found} (for sessions that Penstock does not create)"
        yield replace(other, name=name, level="warning", found=found, condition="")


def check_spark_start() -> Finding:
    """Start a session with one worker that imports Penstock, and end it."""
    begin, log = time.monotonic(), create_log_file()
    try:
        spark = local_session("local[1]", SHORT_RUN_SETTINGS, log)
        try:
            rows = spark.range(1).mapInArrow(_report_worker, "version string").collect()
        finally:
            spark.stop()
    except ResourceError as error:
        return Finding("spark", "problem", error.message, "see the other checks", error.condition)
    except Exception as error:  # whatever fails here would fail in every run
        known = explain_worker_failure(str(error))
        if known is not None:
            return Finding("spark", "problem", known.message, f"Spark's log is {log}", known.condition)
        raised = re.findall(r"^\S*(?:Error|Exception): .+$", str(error), re.MULTILINE)
        found = f"a worker failed: {raised[-1] if raised else type(error).__name__}"
        return Finding("spark", "problem", found, f"read Spark's log: {log}", "SPARK_NOT_STARTED")
    log.unlink(missing_ok=True)
    seconds = time.monotonic() - begin
    return Finding("spark", "ok", f"a worker imports Penstock {rows[0].version}, {seconds:.1f} s with the start")


def _report_worker(batches: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - runs in a worker

    import penstock.engine  # noqa: PLC0415

    for _ in batches:
        yield pa.record_batch({"version": [penstock.__version__]})
