"""Writes the tables of docs/functions.md from the registry of functions: `python scripts/list_functions.py`."""

from __future__ import annotations

from pathlib import Path

from penstock.expr import FUNCTION_KINDS, Function

PAGE = Path(__file__).parent.parent / "docs" / "functions.md"
START, END = "<!-- functions: start -->\n", "<!-- functions: end -->\n"


def format_row(function: Function) -> str:
    names = "".join(f", `{alias.upper()}`" for alias in function.aliases)
    calls = ", ".join(f"`{call}`" for call in split_calls(function.usage))
    return f"| {calls}{names} | {function.meaning} |"


def split_calls(usage: str) -> list[str]:
    """The calls of a usage: separated by commas outside of brackets."""
    calls, depth = [""], 0
    for character in usage:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            calls.append("")
        else:
            calls[-1] += character
    return [call.strip() for call in calls]


def write_tables() -> str:
    """The tables, one for each kind."""
    parts = []
    for kind, functions in FUNCTION_KINDS.items():
        rows = [format_row(function) for function in functions]
        parts.append("\n".join([f"## {kind}", "| call | value |", "|---|---|", *rows, "", ""]))
    return "".join(parts)


def main() -> None:
    text = PAGE.read_text()
    before, rest = text.split(START)
    PAGE.write_text(before + START + write_tables() + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
