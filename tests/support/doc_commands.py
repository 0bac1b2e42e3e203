"""Runs or checks the shell commands that the documentation shows.

Commands of `penstock` that only read run as they are. For the others, and for `make` and `pip`, the command, its
options and arguments are checked without running it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from doc_blocks import ROOT
from typer.testing import CliRunner

from penstock.cli import app
from penstock.lab import select_labs

WIDTH = 120
DEMO = ["demo", "--embedded"]
READING = {"check", "explain"}
ASKING = {"--version", "--help", "--list"}
ASSIGNMENT = re.compile(r"^[A-Z_]+=")
SEPARATORS = {"&&", "||", ";", "|", "&"}
UNCHECKED = {
    *(".", "cat", "cd", "cp", "curl", "docker", "echo", "export", "git", "head", "kill", "ls", "mkdir", "source"),
    *("spark-submit", "venv"),
}


@dataclass(frozen=True)
class Command:
    """One command line and the output shown below it, if any."""

    text: str
    output: str | None = None


def split_commands(code: str, output: str | None, *, prompts: bool) -> list[Command]:
    """The commands of a block. With prompts, commands follow `$ ` and the other lines are their output."""
    if not prompts:
        lines = code.replace("\\\n", " ").splitlines()
        commands = [line for line in lines if line.split("#")[0].strip()]
        return [Command(line, output if line is commands[-1] else None) for line in commands]
    found: list[Command] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        elif found:
            found[-1] = Command(found[-1].text, (found[-1].output or "") + line + "\n")
    return found


def run_command(command: Command) -> str | None:
    """The output of a command that only reads. Other commands are checked and have no output."""
    words = shlex.split(command.text, comments=True)
    shown = None
    start = 0
    for end in [*(i for i, word in enumerate(words) if word in SEPARATORS), len(words)]:
        part = [word for word in words[start:end] if not ASSIGNMENT.match(word)]
        start = end + 1
        if part:
            shown = _run_part(Path(part[0]).name, part[1:], shown_error=command.output is not None)
    return shown


def _run_part(program: str, arguments: list[str], *, shown_error: bool) -> str | None:
    if program.startswith("python") and arguments[:1] == ["-m"]:
        program, arguments = arguments[1], arguments[2:]
    if program == "penstock":
        return _run_penstock(arguments, shown_error=shown_error)
    if program == "make":
        check_target(arguments)
    elif program == "pip":
        check_extras(arguments)
    elif program == "pytest":
        for argument in arguments:
            assert "/" not in argument or (ROOT / argument).exists(), f"no path {argument}"
    elif program.startswith("python"):
        return _run_python(arguments)
    elif program not in UNCHECKED:
        raise AssertionError(f"{program} is no command that this test knows")
    return None


def _run_penstock(arguments: list[str], *, shown_error: bool) -> str | None:
    if not (arguments[0] in READING or ASKING & set(arguments) or arguments == DEMO):
        check_arguments(arguments)
        return None
    exit_code, output = _run_demo() if arguments == DEMO else _invoke(arguments)
    assert shown_error or exit_code == 0, output
    return output


def _invoke(arguments: list[str]) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(app, arguments)
    return result.exit_code, result.output


@cache
def _run_demo() -> tuple[int, str]:
    """The embedded demo, once for all pages that name it."""
    return _invoke(DEMO)


def _run_python(arguments: list[str]) -> str | None:
    """The output of a script of `examples/`. Other scripts only have to exist."""
    script = ROOT / arguments[0]
    assert script.is_file(), f"no file {arguments[0]}"
    if script.parent != ROOT / "examples":
        return None
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True, timeout=300
    ).stdout


def check_arguments(arguments: list[str]) -> None:
    """Parse the arguments of a command without running it. Scripts that the page does not have are created empty."""
    for argument in arguments:
        if argument.endswith(".cql"):
            Path(argument).touch()
    try:
        name, params = _parse_arguments(arguments)
        if name == "lab":
            select_labs(params["name"])
    except Exception as error:
        raise AssertionError(f"penstock {shlex.join(arguments)}: {error}") from error


def _parse_arguments(arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """The name of the command and its parameters."""
    name, rest = "penstock", list(arguments)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "resolve_command"):
        context = command.context_class(command, info_name=name)
        _, rest, _ = command.make_parser(context).parse_args(rest)
        name, command, rest = command.resolve_command(context, rest)
    return name, command.make_context(name, rest).params


def check_target(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for argument in arguments:
        assert "=" in argument or argument in targets, f"the Makefile has no target {argument}"


def check_extras(arguments: list[str]) -> None:
    """The extras of penstock that pip is to install exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for argument in arguments:
        for extras in re.findall(r"(?:^penstock|^\.)\[([\w,-]+)\]", argument):
            unknown = set(extras.split(",")) - set(project["optional-dependencies"])
            assert not unknown, f"penstock has no extra {', '.join(unknown)}"
