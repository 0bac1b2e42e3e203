"""Labs: programs that measure Penstock and its references, in one run on one machine.

To add a lab, write a module with `run(quick: bool) -> Report` (see `penstock.lab.report`) and add one line to `LABS`.
The command `penstock lab`, its help and its errors read the names from there. A lab prints tables and writes JSON and
figures. Its checks compare a measured value with a goal; users compare runs by the names of checks and columns, so
these names do not change. Helpers that labs share are modules of this package: `workloads`, `database`, `timing`,
`meters`, `drawing` and, for Spark, `join_workloads` and `spark_runs`.
"""

from __future__ import annotations

import os
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.spark.environment import require_spark

if TYPE_CHECKING:
    from penstock.lab.report import Report


@dataclass(frozen=True)
class Lab:
    """A lab: the module that has its `run(quick) -> Report`, and one line on what it measures."""

    module: str
    description: str
    needs_spark: bool = False


LABS = {
    "core": Lab(
        "penstock.lab.core.experiments", "throughput and memory of the engine compared with a compiled loop and DuckDB"
    ),
    "jisc": Lab(
        "penstock.lab.papers.jisc.experiments", "plan changes by JISC and by its rivals: Figures 7 to 12 of JISC"
    ),
    "graph": Lab(
        "penstock.lab.papers.query_graph.experiments", "query graph in virtual time: Figures 14 to 16 of its paper"
    ),
    "jit": Lab(
        "penstock.lab.papers.jit.experiments", "just-in-time state against eager state: Figures 10 to 17 of JIT"
    ),
    "jaqpot": Lab("penstock.lab.papers.jaqpot.experiments", "allocation of probe budgets: Figures 6 to 9 of JAQPOT"),
    "adapt": Lab("penstock.lab.adapt.experiments", "an adaptive engine against fixed ones on drifting data"),
    "slice": Lab(
        "penstock.lab.papers.state_slice.experiments", "many queries over one join: Figures 17 to 19 of State-Slice"
    ),
    "crowd": Lab("penstock.lab.crowd.experiments", "many queries over the same streams: cost against their number"),
    "nexmark": Lab("penstock.lab.nexmark.experiments", "the queries of Nexmark, their answers compared with DuckDB"),
    "tpch": Lab("penstock.lab.tpch.experiments", "the queries of TPC-H over streams, compared with DuckDB"),
    "spark": Lab("penstock.lab.spark.experiments", "the pipeline on Spark: micro-batches, shuffle, restart", True),
    "ends": Lab(
        "penstock.lab.ends.experiments", "a join from topics of Kafka, from files, and by Spark's own join", True
    ),
    "peers": Lab(
        "penstock.lab.peers.experiments", "Penstock compared with Spark's own joins, PyFlink and Pathway", True
    ),
}
"""The labs by name, in the order in which `penstock lab all` runs them."""

ALL = "all"
"""The name that stands for every lab."""

REQUIRED_PACKAGES = ("duckdb", "matplotlib")


def select_labs(name: str) -> tuple[str, ...]:
    """The labs that a name stands for."""
    if name == ALL:
        return tuple(LABS)
    if name not in LABS:
        known = ", ".join(LABS)
        raise UnsupportedError("LAB_NOT_BUILT", f"there is no lab {name!r}; choose {known} or {ALL}", lab=name)
    return (name,)


def run_safely(name: str, quick: bool) -> Report:
    """Run one lab of several. If it fails, its report says why, so that the others are not lost."""
    from penstock.lab.report import Report  # noqa: PLC0415 - needs rich, which loads slowly

    try:
        return run(name, quick)
    except Exception as error:
        traceback.print_exc()
        return Report(name, quick, failure=f"{type(error).__name__}: {error}")


def run(name: str, quick: bool) -> Report:
    """Run one lab. Its module is imported here, because references and figures are optional dependencies."""
    from penstock.lab.report import RunFacts  # noqa: PLC0415

    if LABS[name].needs_spark:
        require_spark()
    require_packages()
    begun, clock, load = datetime.now(UTC), time.monotonic(), os.getloadavg()
    report: Report = import_module(LABS[name].module).run(quick)
    seconds = round(time.monotonic() - clock, 1)
    report.facts = RunFacts(f"{begun:%Y-%m-%d %H:%M} UTC", seconds, _round_load(load), _round_load(os.getloadavg()))
    return report


def require_packages() -> None:
    """Refuse to measure without the packages of references and figures."""
    missing = [package for package in REQUIRED_PACKAGES if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise UnsupportedError(
            "LAB_NEEDS_EXTRAS", f"the labs need {names}: pip install 'penstock[lab]'", missing=missing
        )


def _round_load(load: tuple[float, float, float]) -> list[float]:
    return [round(each, 1) for each in load]
