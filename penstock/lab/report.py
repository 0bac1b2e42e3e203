"""The result of a lab: checks, tables, figures and one JSON object, all measured in one run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

ReportRow = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class Check:
    """A measured value with a goal. `goal` reads as a condition on `value`, such as `<= 2`."""

    name: str
    value: float
    unit: str
    goal: str
    ok: bool


def check_at_most(name: str, value: float, limit: float, unit: str) -> Check:
    return Check(name, round(value, 4), unit, f"<= {limit:g}", value <= limit)


def check_at_least(name: str, value: float, limit: float, unit: str) -> Check:
    return Check(name, round(value, 4), unit, f">= {limit:g}", value >= limit)


def check_at_least_unless(name: str, value: float, limit: float, most: float, why: str, unit: str) -> Check:
    """A goal that may be out of reach: it is also met if `most`, the best possible value in this run, is below it.

    `why` says what limits the value to `most`.
    """
    goal = f">= {limit:g}, unless {why} ({most:.3g})"
    return Check(name, round(value, 4), unit, goal, value >= limit or most < limit)


def check_equals(name: str, value: int, expected: int, unit: str) -> Check:
    return Check(name, value, unit, f"== {expected}", value == expected)


@dataclass(frozen=True)
class Section:
    """One table of a report. The JSON has the same rows under `key`."""

    key: str
    title: str
    rows: Sequence[ReportRow]


@dataclass(frozen=True)
class RunFacts:
    """When a lab ran, how long, and what else the machine did: `load_before` and `load_after` are load averages."""

    begun: str
    seconds: float
    load_before: Sequence[float]
    load_after: Sequence[float]


@dataclass
class Report:
    """The result of one lab. `figures` maps a file name to PNG bytes; `notes` say what was not measured, and why."""

    lab: str
    quick: bool
    checks: list[Check] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    figures: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failure: str | None = None
    """Why the lab ended early; then it has no checks."""
    facts: RunFacts | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None and all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "lab": self.lab,
            "quick": self.quick,
            "machine": describe_machine(),
            "checks": [asdict(check) for check in self.checks],
            "notes": list(self.notes),
            "failure": self.failure,
            "run": None if self.facts is None else asdict(self.facts),
            "tables": {section.key: section.title for section in self.sections},
            "figures": list(self.figures),
            **{section.key: list(section.rows) for section in self.sections},
        }

    @staticmethod
    def read(out: Path, lab: str) -> Report | None:
        """The report that `write` left in a folder; None if there is none that this version reads."""
        try:
            found = json.loads((out / f"{lab}.json").read_text())
            return Report(
                found["lab"],
                found["quick"],
                [Check(**each) for each in found["checks"]],
                [Section(key, title, found[key]) for key, title in found["tables"].items()],
                {name: (out / name).read_bytes() for name in found["figures"]},
                found["notes"],
                found["failure"],
                None if found["run"] is None else RunFacts(**found["run"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def show(self, console: Console) -> None:
        for section in self.sections:
            for part, names in enumerate(split_columns(section.rows, console.width)):
                title = f"{section.title}, continued" if part else section.title
                console.print(
                    _build_table(title, section.rows, {name: _find_longest_word(name, section.rows) for name in names})
                )
        if self.failure is not None:
            console.print(f"{self.lab} failed: {self.failure}", highlight=False, soft_wrap=True, markup=False)
        checks = [_build_check_row(check) for check in self.checks]
        console.print(_build_table(f"{self.lab}: checks", checks, dict.fromkeys(checks[0] if checks else ())))
        for note in self.notes:
            console.print(note, highlight=False, soft_wrap=True, markup=False)
        facts = describe_machine()
        console.print(f"{facts['cores']} cores, Python {facts['python']}", style="dim", highlight=False)

    def write(self, out: Path) -> list[Path]:
        """Write the JSON and the figures into a folder; returns the paths of the files."""
        out.mkdir(parents=True, exist_ok=True)
        files = [write_json(out / f"{self.lab}.json", self.as_json())]
        for name, content in self.figures.items():
            files.append(out / name)
            files[-1].write_bytes(content)
        return files


def combine_reports(reports: Sequence[Report]) -> dict[str, Any]:
    """The JSON object of a run: that of a single lab, or one with all checks and the objects of all labs."""
    if len(reports) == 1:
        return reports[0].as_json()
    checks = [asdict(check) for report in reports for check in report.checks]
    return {"lab": "all", "checks": checks, "labs": [report.as_json() for report in reports]}


def write_json(path: Path, value: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
    return path


def describe_machine() -> dict[str, Any]:
    """The facts about the machine that a reader needs to judge a measurement."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = {name: _find_version(name) for name in _PACKAGES}
    return {
        "cores": cores,
        "processor": _read_fact("/proc/cpuinfo", "model name"),
        "memory": _read_memory(),
        "python": platform.python_version(),
        "system": platform.system(),
        "packages": packages,
    }


_PACKAGES = ("penstock", "numba", "numpy", "pyarrow", "duckdb", "pyspark", "apache-flink", "pathway")


def _read_memory() -> str | None:
    found = _read_fact("/proc/meminfo", "MemTotal")
    return None if found is None else f"{int(found.split()[0]) / 2**20:.1f} GiB"


def _read_fact(path: str, name: str) -> str | None:
    """The value of the first line of this name in a file of Linux; None on other systems."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next(
        (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name), None
    )


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _build_check_row(check: Check) -> ReportRow:
    verdict = "[green]met[/]" if check.ok else "[red]missed[/]"
    return {"check": check.name, "value": check.value, "unit": check.unit, "goal": check.goal, "": verdict}


def list_columns(rows: Sequence[ReportRow]) -> list[str]:
    """The columns of all rows: rows of a table may lack some."""
    return list(dict.fromkeys(name for row in rows for name in row))


def split_columns(rows: Sequence[ReportRow], width: int) -> Iterator[list[str]]:
    """The columns of a table in parts that fit a width. Each begins with the columns that identify a row."""
    names = list_columns(rows)
    needed = {name: 3 + _find_longest_word(name, rows) for name in names}
    distinct = (
        len({tuple(format_cell(row.get(name)) for name in names[:count]) for row in rows})
        for count in range(1, len(names))
    )
    size = next((count for count, different in enumerate(distinct, 1) if different == len(rows)), 0)
    key, part = names[:size], list[str]()
    for name in names[size:]:
        if part and 1 + sum(needed[each] for each in (*key, *part, name)) > width:
            yield key + part
            part = []
        part.append(name)
    yield key + part


_SECONDS_COLUMNS = ("first_batch_s",)
"""Columns in which the suffix `_s` means seconds. In all others it means "per second"."""


def format_heading(name: str) -> str:
    """The heading of a column, with its unit."""
    unit = "" if not name.endswith("_s") else " s" if name in _SECONDS_COLUMNS else "/s"
    return (name.removesuffix("_s") if unit else name).replace("_", " ") + unit


def _find_longest_word(name: str, rows: Sequence[ReportRow]) -> int:
    """The length of the longest word of a column."""
    return max(
        (
            len(word)
            for text in (format_heading(name), *(format_cell(row.get(name)) for row in rows))
            for word in text.split()
        ),
        default=0,
    )


def _build_table(title: str, rows: Sequence[ReportRow], widths: Mapping[str, int | None]) -> Table:
    """A table of the columns in `widths`; None lets rich choose the width."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for name, width in widths.items():
        numeric = all(isinstance(row.get(name, 0), int | float) for row in rows)
        justify: Literal["right", "left"] = "right" if numeric else "left"
        table.add_column(format_heading(name), justify=justify, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(format_cell(row.get(name)) for name in widths))
    return table


def format_cell(value: object) -> str:
    """A value of a table; an empty cell for a row that does not have the column."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
