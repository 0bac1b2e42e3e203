"""Execute notebooks and store their outputs, without Jupyter: python scripts/execute_notebook.py examples/x.ipynb.

Cells run in one namespace, in a new folder with a copy of `examples/`. The value of a cell's last expression is stored
as a notebook shows it: by `_repr_html_` and `_repr_png_` if it has them, and as text. So is what a cell prints.
"""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import sys
import tempfile
from base64 import b64encode
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def show_value(value: Any) -> dict[str, Any]:
    """What a notebook stores for a value, by media type."""
    shown: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        shown["text/html"] = value._repr_html_().splitlines(keepends=True)
    if hasattr(value, "_repr_png_"):
        shown["image/png"] = b64encode(value._repr_png_()).decode()
    return shown


def run_cell(source: str, names: dict[str, Any], title: str) -> Any:
    """Run a cell; returns the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, title, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), title, "eval"), names)


def run_notebook(cells: list[dict[str, Any]], title: str) -> dict[str, Any]:
    """Run the cells of a notebook and replace their outputs; returns the names that they define."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
        printed = io.StringIO()
        with redirect_stdout(printed):
            value = run_cell("".join(cell["source"]), names, f"{title} [{count}]")
        text = printed.getvalue().splitlines(keepends=True)
        stream = {"name": "stdout", "output_type": "stream", "text": text}
        result = {"data": show_value(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs = [stream] * bool(text) + [result] * (value is not None)
        cell |= {"execution_count": count, "outputs": outputs}
    return names


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        notebook = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "examples", Path(folder) / "examples")
            before = Path.cwd()
            os.chdir(folder)
            try:
                run_notebook(notebook["cells"], path.name)
            finally:
                os.chdir(before)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
