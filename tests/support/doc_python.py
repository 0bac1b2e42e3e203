"""Runs the Python blocks of the documentation.

An expression on a line of its own may end with a comment that is a Python value: the value of the expression.
"""

from __future__ import annotations

import ast
import contextlib
import io
import tokenize
from typing import Any


def run_python(code: str, file: str, line: int, namespace: dict[str, Any]) -> str:
    """Run a block that begins after a line of a file, compare values with their comments, and return what it prints."""
    padded = "\n" * line + code
    comments = _find_values(padded)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for node in ast.parse(padded, file).body:
            wanted = comments.get(node.end_lineno or 0)
            if isinstance(node, ast.Expr) and wanted is not None:
                found = repr(eval(compile(ast.Expression(node.value), file, "eval"), namespace))
                assert found == wanted, f"{file}:{node.lineno} is {found}, not {wanted}"
            else:
                exec(compile(ast.Module([node], []), file, "exec"), namespace)
    return printed.getvalue()


def _find_values(code: str) -> dict[int, str]:
    """The comments that are Python values, by line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        text = token.string.lstrip("# ")
        if token.type == tokenize.COMMENT and _is_value(text):
            found[token.start[0]] = text
    return found


def _is_value(text: str) -> bool:
    try:
        value = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.Call)
