"""The map in docs/architecture.md shows the imports between packages, without those that follow from others."""

from __future__ import annotations

import ast
import re

from doc_blocks import ROOT

PACKAGES = {path.parent.name for path in (ROOT / "penstock").glob("*/__init__.py")}
MAP = re.compile(r"## Map\n.*?```mermaid\n(.*?)```", re.DOTALL)
Edges = set[tuple[str, str]]


def read_imports() -> Edges:
    """Which package imports which other one."""
    found: Edges = set()
    for package in PACKAGES:
        for path in (ROOT / "penstock" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(), str(path))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                found |= {(package, part) for name in names for part in name.split(".")[1:2] if is_own(name)}
    return {(user, used) for user, used in found if used in PACKAGES - {user}}


def is_own(name: str) -> bool:
    return name.startswith("penstock.")


def find_reachable(edges: Edges, package: str) -> set[str]:
    found: set[str] = set()
    waiting = [package]
    while waiting:
        near = {used for user, used in edges if user == waiting[-1]} - found
        waiting.pop()
        found |= near
        waiting += near
    return found


def drop_implied(edges: Edges) -> Edges:
    """The edges that no path over another package replaces."""
    behind = {package: find_reachable(edges, package) for package in PACKAGES}
    return {
        (user, used)
        for user, used in edges
        if not any(used in behind[middle] for other, middle in edges if other == user and middle != used)
    }


def test_map_shows_imports() -> None:
    found = MAP.search((ROOT / "docs" / "architecture.md").read_text())
    assert found, "docs/architecture.md has no map"
    # `graph` is a keyword of mermaid, so its node is `graph_`
    drawn = set(re.findall(r"^ *(\w+?)_? --> (\w+?)_?$", found[1], re.MULTILINE))
    assert drawn == drop_implied(read_imports())
