"""What all commands share: errors as messages or JSON, exit codes, logging.

Results go to stdout; progress, logging and errors go to stderr. With `--json` stdout has one JSON document, also for an
error.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from typer.core import TyperGroup

from penstock.cli.interrupts import Interrupted, convert_signals
from penstock.errors import DataError, PenstockError, QueryError, UnsupportedError

FAILED = 1
WRONG_INPUT = 2
INPUT_ERRORS = (QueryError, DataError, UnsupportedError)
_JSON = "penstock.json"
_CONTROL_FLOW = (typer.Exit, typer.Abort, BrokenPipeError)
_USAGE_ERROR = cast(type[Exception], typer.BadParameter.__base__)
"""Wrong options and arguments; of these classes Typer exports the derived one only."""


class CommandGroup(TyperGroup):
    """Prints a `PenstockError` of any command as a message and sets the exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with convert_signals():
                return super().invoke(ctx)
        except PenstockError as error:
            _print_error(ctx, error.condition, error.message, str(error))
            raise typer.Exit(WRONG_INPUT if isinstance(error, INPUT_ERRORS) else FAILED) from error
        except Interrupted as error:
            _print_error(ctx, "INTERRUPTED", str(error), str(error))
            raise typer.Exit(error.exit_code) from error
        except _USAGE_ERROR as error:
            if not ctx.meta.get(_JSON):
                raise
            _print_error(ctx, "USAGE", cast(Any, error).format_message(), "")
            raise typer.Exit(WRONG_INPUT) from error
        except _CONTROL_FLOW:
            raise
        except Exception as error:
            message = f"{_describe(error)}; please report it with the traceback in {_save_traceback()}"
            _print_error(ctx, "UNEXPECTED_ERROR", message, f"[UNEXPECTED_ERROR] {message}")
            raise typer.Exit(FAILED) from error


def _describe(error: Exception) -> str:
    """The type of an error and the first line of its text: Spark adds the stack of Java."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _save_traceback() -> Path:
    with tempfile.NamedTemporaryFile("w", prefix="penstock-error-", suffix=".log", delete=False) as file:
        file.write(traceback.format_exc())
    return Path(file.name)


def _print_error(ctx: Any, condition: str, message: str, text: str) -> None:
    if ctx.meta.get(_JSON):
        print_json({"error": {"class": condition, "message": message}})
    else:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(text)


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, default=str), flush=True)


def _remember_json(ctx: typer.Context, wanted: bool) -> bool:
    ctx.meta[_JSON] = ctx.meta.get(_JSON, False) or wanted
    return wanted


JsonFlag = Annotated[
    bool,
    typer.Option("--json", callback=_remember_json, is_eager=True, help="Print one JSON document, also for an error."),
]


def _set_verbosity(count: int) -> int:
    if count:
        set_up_logging(logging.INFO if count == 1 else logging.DEBUG)
    return count


Verbosity = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, callback=_set_verbosity, help="Log what happens to stderr; -vv logs more."
    ),
]


def set_up_logging(level: int) -> None:
    """Send the log of the package to stderr."""
    logger = logging.getLogger("penstock")
    logger.setLevel(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.handlers = [handler]
