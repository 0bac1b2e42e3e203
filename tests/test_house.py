"""The layout of the tests: where they are, what they may import, and what they may look into.

Only syntax trees and text are read; no module of the tests is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SUPPORT = TESTS / "support"
LONGEST_TEST_NAME = 60


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def list_modules() -> list[Path]:
    """All Python files of the tests."""
    return sorted(TESTS.rglob("*.py"))


def list_modules_outside_support() -> list[Path]:
    return [path for path in list_modules() if SUPPORT not in path.parents]


def locate(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def iter_imports(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """The imported names of a module, with dots; a name that a module gives includes the module."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node, f"{node.module or ''}.{alias.name}") for alias in node.names)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(value: ast.expr) -> bool:
    """Whether an attribute belongs to the class that reads it."""
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def find_private_access(node: ast.AST) -> str | None:
    """The private name of another object that a node reads, writes or replaces by `setattr`."""
    if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
        return node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        return next(filter(is_private, names), None)
    return None


def test_no_module_imports_test_module() -> None:
    """What several tests need is a support module."""
    found = [
        f"{locate(path, node)} imports {name}"
        for path in list_modules()
        for node, name in iter_imports(path)
        if any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    ]
    assert not found, "\n".join(found)


def test_no_private_access_outside_support() -> None:
    """Tests use public behaviour; what they need beyond it is a function of tests/support/inspect_engine.py."""
    modules = list_modules_outside_support()
    found = [
        f"{locate(path, node)} uses {name}"
        for path in modules
        for node in ast.walk(parse(path))
        if (name := find_private_access(node)) is not None
    ]
    found += [
        f"{locate(path, node)} imports {name}"
        for path in modules
        for node, name in iter_imports(path)
        if any(map(is_private, name.split(".")))
    ]
    assert not found, "\n".join(found)


def test_names_are_short() -> None:
    found = [
        f"{locate(path, node)} {node.name}"
        for path in list_modules()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > LONGEST_TEST_NAME
    ]
    assert not found, "\n".join(found)


def test_every_room_has_tests() -> None:
    rooms = {path.parent.name for path in (ROOT / "penstock").glob("*/__init__.py")}
    tested = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert rooms <= tested, sorted(rooms - tested)


def test_named_paths_exist() -> None:
    """Paths of tests in the Makefile, in the documentation and in the tests themselves."""
    readers = [ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *list_modules()]
    found = [
        f"{reader.relative_to(ROOT)} names {name}"
        for reader in readers
        for name in re.findall(r"\btests/[\w/]+(?:\.py)?", reader.read_text())
        if not (ROOT / name).exists()
    ]
    assert not found, "\n".join(found)
