"""Figures of the code base: size of files and classes, imports across rooms, names used twice, asserts against None.

Usage: python scripts/code_figures.py [CHECKOUT ...]; two checkouts are shown side by side.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "penstock"
MAX_LINES, MAX_METHODS, MAX_PARAMETERS, MAX_TEST_NAME = 400, 20, 7, 60


class Module:
    """A source file: its dotted name, its room (the first folder below the package) and its syntax tree."""

    def __init__(self, root: Path, path: Path) -> None:
        relative = path.relative_to(root).with_suffix("")
        self.parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
        self.name = ".".join(self.parts)
        self.room = self.parts[1] if len(self.parts) > 1 else ""
        self.text = path.read_text()
        self.tree = ast.parse(self.text)

    def classes(self) -> Iterator[ast.ClassDef]:
        yield from (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        yield from (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    def imports(self) -> Iterator[tuple[str, list[str], str]]:
        """Each import of the package: module, names and kind ("load", "lazy" or "type")."""
        type_only = {
            id(inner)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        top = {id(node) for node in self.tree.body}
        for node in ast.walk(self.tree):
            kind = "type" if id(node) in type_only else "load" if id(node) in top else "lazy"
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
                yield node.module, [alias.name for alias in node.names], kind
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == PACKAGE:
                        yield alias.name, [], kind


def measure(root: Path) -> dict[str, int]:
    """All figures of a checkout."""
    modules = [Module(root, path) for path in sorted((root / PACKAGE).rglob("*.py"))]
    tests = [ast.parse(path.read_text()) for path in sorted((root / "tests").rglob("*.py"))]
    names = {module.name for module in modules}
    return {
        "modules": len(modules),
        "lines": sum(len(module.text.splitlines()) for module in modules),
        "loose files at the root": sum(module.room == "" or module.name.count(".") == 1 for module in modules)
        - sum(module.name.count(".") == 1 and (root / PACKAGE / module.room).is_dir() for module in modules)
        - 1,
        f"files over {MAX_LINES} lines": sum(len(module.text.splitlines()) > MAX_LINES for module in modules),
        f"classes over {MAX_METHODS} methods": sum(
            sum(isinstance(node, ast.FunctionDef) for node in each.body) > MAX_METHODS
            for module in modules
            for each in module.classes()
        ),
        f"constructors over {MAX_PARAMETERS} parameters": sum(
            function.name == "__init__" and _count_parameters(function) - 1 > MAX_PARAMETERS
            for module in modules
            for function in module.functions()
        ),
        "class names used twice": sum(
            count > 1 for count in Counter(each.name for module in modules for each in module.classes()).values()
        ),
        "deep imports across rooms": sum(
            _is_deep(module, target, imported, names) for module in modules for target, imported, _ in module.imports()
        ),
        "import cycles between rooms": _count_cycles(modules, names),
        "asserts against None": sum(
            isinstance(node, ast.Assert) and "is not None" in ast.unparse(node.test)
            for module in modules
            for node in ast.walk(module.tree)
        ),
        f"test names over {MAX_TEST_NAME} characters": sum(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > MAX_TEST_NAME
            for tree in tests
            for node in ast.walk(tree)
        ),
    }


def _count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def _is_deep(module: Module, target: str, imported: list[str], names: set[str]) -> bool:
    """Whether an import reaches into a module of another room instead of the room itself."""
    parts = target.split(".")
    room = parts[1] if len(parts) > 1 else ""
    if room in ("", module.room) or not any(name.startswith(f"{PACKAGE}.{room}.") for name in names):
        return False
    return len(parts) > 2 or any(f"{target}.{name}" in names for name in imported)


def _count_cycles(modules: list[Module], names: set[str]) -> int:
    """Pairs of rooms that import each other, in whatever way."""
    edges: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for target, imported, _ in module.imports():
            for found in [f"{target}.{name}" if f"{target}.{name}" in names else target for name in imported] or [
                target
            ]:
                parts = found.split(".")
                room = parts[1] if len(parts) > 1 else ""
                if room not in ("", module.room) and module.room:
                    edges[module.room].add(room)
    return sum(one < other and other in edges[one] and one in edges[other] for one in edges for other in edges)


def main() -> None:
    checkouts = [Path(argument) for argument in sys.argv[1:]] or [Path(__file__).parents[1]]
    found = [measure(checkout) for checkout in checkouts]
    for name in found[0]:
        print(f"{name:36}" + "".join(f"{figures[name]:10,}" for figures in found))


if __name__ == "__main__":
    main()
