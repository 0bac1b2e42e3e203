"""Names in the documentation exist: paths, tests, targets, commands, modules, methods and error conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import typer
from doc_blocks import COMMENT, ROOT, list_pages

from penstock.cli import app
from penstock.expr import AGGREGATE_SYNONYMS, NAMED_AGGREGATES, NAMED_FUNCTIONS

PAGES = [path for path in list_pages() if path.name != "CHANGELOG.md"]  # the changelog also has former names
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
ROOMS = sorted(path.parent.name for path in (ROOT / "penstock").glob("*/__init__.py"))
PATH = re.compile(rf"^(?:penstock|tests|scripts|docs|examples|{'|'.join(ROOMS)})/[\w/.]*$")
OF_SPARK = {
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "MULTIPLE_EVENT_TIME_COLUMNS",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
}


@cache
def read_sources(folder: str) -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / folder).rglob("*.py")))


def find_missing(exists: Callable[[str], bool], pattern: str) -> list[str]:
    return [f"{place}: {name}" for place, name in iter_names(pattern) if not exists(name)]


def iter_names(pattern: str) -> Iterator[tuple[str, str]]:
    """The matches of a pattern in inline code, with their pages."""
    for path in PAGES:
        prose = BLOCK.sub("", COMMENT.sub("", path.read_text()))
        for code in CODE.findall(prose):
            yield from ((str(path.relative_to(ROOT)), name) for name in re.findall(pattern, code))


def test_paths_exist() -> None:
    def exists(name: str) -> bool:
        return not PATH.match(name) or any((folder / name).exists() for folder in (ROOT, ROOT / "penstock"))

    assert not find_missing(exists, r"^[\w/.]+$")


def test_tests_exist() -> None:
    sources = read_sources("tests")
    assert not find_missing(lambda name: f"def {name}(" in sources, r"^test_\w+$")


def test_conditions_exist() -> None:
    sources = read_sources("penstock") + read_sources("tests")
    assert not find_missing(
        lambda name: (
            name in OF_SPARK
            or name.casefold() in (*NAMED_FUNCTIONS, *NAMED_AGGREGATES, *AGGREGATE_SYNONYMS)
            or name in sources
        ),
        r"^[A-Z]+(?:_[A-Z]+)+$",
    )


def test_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert not find_missing(lambda name: name in targets, r"^make ([a-z-]+)")


def test_commands_exist() -> None:
    commands: Any = typer.main.get_command(app)
    assert not find_missing(lambda name: name in commands.commands, r"^penstock ([a-z]+)")


def test_modules_exist() -> None:
    assert not find_missing(can_import, r"^penstock(?:\.\w+)+")


def can_import(name: str) -> bool:
    """Whether a dotted name is a module, or a name in a module."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return module != "" and hasattr(import_module(module), last)
    return True


@pytest.mark.parametrize(
    ("variable", "module", "kind"),
    [
        ("eng", "penstock.engine", "Engine"),
        ("pipe", "penstock.spark.pipeline", "Pipeline"),
        ("run", "penstock.spark.run", "Run"),
    ],
)
def test_methods_exist(variable: str, module: str, kind: str) -> None:
    if "spark" in module:
        pytest.importorskip("pyspark")
    owner = getattr(import_module(module), kind)
    assert not find_missing(lambda name: hasattr(owner, name), rf"(?<![\w.]){variable}\.(\w+)")
