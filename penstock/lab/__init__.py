"""Measurements as programs: each lab prints tables and writes JSON and figures, its references in the same run."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from penstock.errors import UnsupportedError

LabName = Literal["core", "jit", "jisc", "jaqpot", "adapt", "graph", "slice", "peers", "spark"]

BUILT: tuple[LabName, ...] = ("core", "jisc", "graph", "jit", "jaqpot", "adapt", "slice", "spark", "peers")
"""The labs of this version, each a module with `run(quick) -> Report`."""

NEEDED = ("duckdb", "matplotlib")


def chosen(name: str) -> tuple[str, ...]:
    """The labs a name stands for; one that is planned but not built is refused by name."""
    if name == "all":
        return BUILT
    if name not in BUILT:
        planned = "is not in this version" if name in get_args(LabName) else "does not exist"
        raise UnsupportedError(
            "LAB_NOT_BUILT", f"the lab {name!r} {planned}; there is: {', '.join(BUILT)}, all", lab=name
        )
    return (name,)


def run(name: str, quick: bool) -> Any:
    """Run one lab. Its module is imported only now: references and figures are optional dependencies."""
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise UnsupportedError(
            "LAB_NEEDS_EXTRAS", f"the labs need {names}: pip install 'penstock[lab]'", missing=missing
        )
    return import_module(f"penstock.lab.{name}").run(quick)
