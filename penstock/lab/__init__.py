"""Measurements as programs: each lab prints tables and writes JSON and figures, its references in the same run."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from penstock.errors import UnsupportedError

LABS = {
    "core": "penstock.lab.core.experiments",
    "jisc": "penstock.lab.papers.jisc.experiments",
    "graph": "penstock.lab.papers.query_graph.experiments",
    "jit": "penstock.lab.papers.jit.experiments",
    "jaqpot": "penstock.lab.papers.jaqpot.experiments",
    "adapt": "penstock.lab.adapt.experiments",
    "slice": "penstock.lab.papers.state_slice.experiments",
    "spark": "penstock.lab.spark.experiments",
    "peers": "penstock.lab.peers.experiments",
}
"""The labs by name, each a module with `run(quick) -> Report`."""

REQUIRED_PACKAGES = ("duckdb", "matplotlib")


def select_labs(name: str) -> tuple[str, ...]:
    """The labs a name stands for."""
    if name == "all":
        return tuple(LABS)
    if name not in LABS:
        raise UnsupportedError("LAB_NOT_BUILT", f"there is no lab {name!r}; choose {', '.join(LABS)} or all", lab=name)
    return (name,)


def run(name: str, quick: bool) -> Any:
    """Run one lab. Its module is imported only now: references and figures are optional dependencies."""
    missing = [package for package in REQUIRED_PACKAGES if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise UnsupportedError(
            "LAB_NEEDS_EXTRAS", f"the labs need {names}: pip install 'penstock[lab]'", missing=missing
        )
    return import_module(LABS[name]).run(quick)
