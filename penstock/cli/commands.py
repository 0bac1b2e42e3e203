"""The commands of `penstock`. Each one reads its arguments and calls the package that does the work.

Exit codes: 0 success, 1 the run failed, 2 the input was wrong, 130 and 143 the command was interrupted by Ctrl-C or
SIGTERM. A `PenstockError` is printed without a traceback. Packages that load slowly are imported by the commands that
need them, so that help is quick.
"""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from warnings import simplefilter

import typer
from rich.console import Console
from rich.table import Table as RichTable

from penstock import lab as labs
from penstock.cli.ctl import ctl
from penstock.cli.interrupts import explain_interrupt
from penstock.cli.output import INPUT_ERRORS, CommandGroup, JsonFlag, Verbosity, print_json
from penstock.errors import DataError, PenstockWarning, QueryError
from penstock.spark.environment import require_spark
from penstock.web import draw_graph, require_server

if TYPE_CHECKING:
    from penstock.cql import Script

app = typer.Typer(
    name="penstock",
    cls=CommandGroup,
    help="Continuous queries: exact joins of many streams over sliding windows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(ctl, name="ctl")
ScriptFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A CQL script.")]


class PlanFormat(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"
    TABLE = "table"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    _verbose: Verbosity = 0,
) -> None:
    """Continuous queries: exact joins of many streams over sliding windows."""


@app.command()
def demo(
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Run the engine in this process, without Spark.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results; it must not exist.")] = Path("out/demo"),
    ui: Annotated[bool, typer.Option("--ui", help="Show the demo on a page in the browser, until Ctrl-C.")] = False,
    port: Annotated[
        int | None, typer.Argument(min=0, max=65535, help="Port of the page of --ui; a free one by default.")
    ] = None,
) -> None:
    """Run five streams and a dozen queries on local Spark, change them while they run, and verify the results."""
    if port is not None and not ui:
        raise QueryError("BAD_ARGUMENT", f"the port {port} is that of a page; add --ui")
    if ui:
        require_server()
    page = (port or 0) if ui else None
    if embedded and page is not None:
        from penstock.demo.live import run_live_demo  # noqa: PLC0415 (see below)

        with explain_interrupt("the page has ended"):
            run_live_demo(Console(), page)
        return
    if embedded:
        from penstock.demo.embedded import run_demo  # noqa: PLC0415 (compiled kernels load slowly)

        fine = run_demo(Console())
    else:
        if out.exists():
            raise DataError("FOLDER_IN_USE", f"{out} already exists; remove it, or name another folder with --out")
        require_spark("penstock demo --embedded runs without Spark")
        from penstock.demo import on_spark  # noqa: PLC0415

        with explain_interrupt(f"remove {out} before the next demo"):
            fine = on_spark.run_spark_demo(Console(), out, page)
    if not fine:
        raise typer.Exit(1)


@app.command()
def check(script: ScriptFile) -> None:
    """Validate a script and list its declarations, or show the position of the first error."""
    from penstock.plan import list_script_warnings  # noqa: PLC0415 (see the module)

    found = _check_script(script)
    warnings = list_script_warnings(found)
    count = f", {len(warnings)} warning{'s' * (len(warnings) > 1)}" if warnings else ""
    table = RichTable(title=f"{script.name}: fine{count}", title_justify="left", header_style="bold")
    for heading in ("kind", "name", "what"):
        table.add_column(heading)
    for kind, name, what in found.summarize():
        table.add_row(kind, name, what)
    Console().print(table)
    for warning in warnings:
        print(f"warning: {warning.format(found.text)}")


def _check_script(path: Path) -> Script:
    from penstock.cql import read_script  # noqa: PLC0415 (see the module)
    from penstock.spark.sinks import from_connector  # noqa: PLC0415

    script = read_script(path)
    for sink in script.sinks:
        try:
            from_connector(sink.name, sink.connector.format, dict(sink.connector.options))
        except INPUT_ERRORS as error:
            raise script.locate_error(sink, error) from error
    return script


@app.command()
def explain(
    script: ScriptFile,
    form: Annotated[PlanFormat, typer.Option("--format", help="Format of the plans.")] = PlanFormat.TEXT,
    table: Annotated[bool, typer.Option("--table", help="Show the state table; the same as --format table.")] = False,
) -> None:
    """Show the plan of every query of a script."""
    from penstock.cql import read_script  # noqa: PLC0415 (see the module)

    found = read_script(script)
    text = _explain_script(found, PlanFormat.TABLE if table else form)
    print(text)
    _print_warnings(found, known=text)  # the text of a plan ends with the warnings about its query


def _print_warnings(script: Script, known: str = "") -> None:
    """Print the warnings about a script to stderr, except those in a text that was printed."""
    from penstock.plan import list_script_warnings  # noqa: PLC0415 (see the module)

    for warning in list_script_warnings(script):
        if str(warning) not in known:
            print(f"warning: {warning.format(script.text)}", file=sys.stderr)


def _explain_script(script: Script, form: PlanFormat) -> str:
    """Declare the script in an engine without data, and explain its queries."""
    from penstock.engine import Engine  # noqa: PLC0415 (see demo)

    if not script.queries:
        raise QueryError("NO_QUERY", "the script has no query to explain, only declarations")
    no_rows = {table.name: table.schema.empty_table() for table in script.tables}
    engine = Engine.from_script(script, tables=no_rows, clock=_read_zero_clock, warn=False)
    if form is PlanFormat.SVG:
        return draw_graph(engine.status(), {sink.name: sink.connector.describe() for sink in script.sinks})
    heading = "%% {}\n" if form is PlanFormat.MERMAID else ""
    return "\n\n".join(heading.format(name) + engine.explain(name, form.value) for name in script.queries)


def _read_zero_clock() -> int:
    """The clock of an engine that only explains."""
    return 0


@app.command()
def run(
    script: ScriptFile,
    once: Annotated[bool, typer.Option("--once", help="Read the available data, then stop.")] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder or URI of the checkpoint; a later run continues from it."),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Add to the result files of an earlier run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the result files of an earlier run.")] = False,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="A time between micro-batches such as '1 second', or once, or available-now."
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="End the streams at the end of the data; so does --once without --checkpoint."),
    ] = False,
    ui: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Show the run on a page; 0 takes a free port.")
    ] = None,
    cells: Annotated[
        int | None, typer.Option(min=1, help="Number of cells; default: the checkpoint's, or one for each core.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What each cell may hold in memory, such as '512 MB'.")
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Let plans, state policies and budgets follow measurements.")
    ] = False,
    master: Annotated[str, typer.Option(help="Master of Spark.")] = "local[*,4]",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    json: JsonFlag = False,
    _verbose: Verbosity = 0,
    evolve: Annotated[
        bool, typer.Option("--evolve", help="Continue a checkpoint although streams or queries have changed.")
    ] = False,
) -> None:
    """Run a script on Spark. Ctrl-C stops it after the current micro-batch; a run with the checkpoint continues it."""
    from penstock.cli import run_options as given  # noqa: PLC0415 (see the module)
    from penstock.state import parse_size  # noqa: PLC0415

    options = given.RunOptions(
        str(script),
        given.StartOptions(
            checkpoint,
            given.parse_trigger(trigger, once),
            cells,
            adapt,
            evolve,
            ui,
            None if memory is None else parse_size(memory),
        ),
        finish or (once and checkpoint is None),
        given.OutputOptions(given.choose_mode(append, overwrite), json),
        given.SessionOptions(given.check_master(master), given.parse_settings(conf or [])),
    )
    options.check()
    if ui is not None:
        require_server()
    found = _check_script(script)
    found.require_runnable()
    options.check_folders(found)
    _print_warnings(found)
    simplefilter("ignore", PenstockWarning)  # they are printed with their places in the script
    require_spark()
    from penstock.cli.run_script import run_script  # noqa: PLC0415 (see the module)

    console = Console(stderr=True, highlight=False)
    summary = run_script(found, options, console)
    if json:
        print_json(summary.as_json())
    else:
        console.print(*summary.format_lines(), sep="\n", soft_wrap=True, markup=False)
    raise typer.Exit(summary.exit_code)


@app.command()
def ui(
    run_dir: Annotated[str, typer.Argument(metavar="RUN_DIR", help="The checkpoint of a run, active or finished.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 0,
) -> None:
    """Show a run on a page until Ctrl-C: what it saved last and, while it is active, controls."""
    from penstock.web import serve_folder  # noqa: PLC0415 (see the module)

    with serve_folder(run_dir, port) as server, explain_interrupt("the page has ended; the run is not affected"):
        print(f"page: {server.url}", flush=True)
        server.wait()


@app.command()
def rescale(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a stopped run.")],
    new: Annotated[str, typer.Argument(help="Folder of the new checkpoint.")],
    cells: Annotated[int, typer.Option(min=1, help="Number of cells of the new checkpoint.")],
    json: JsonFlag = False,
    _verbose: Verbosity = 0,
) -> None:
    """Write a checkpoint with another number of cells; the run continues from it where it stopped."""
    require_spark()
    from penstock.spark.rescale import rescale as rescale_checkpoint  # noqa: PLC0415 (see the module)
    from penstock.spark.session import create_log_file, local_session  # noqa: PLC0415

    with explain_interrupt(f"{new} was not written, {checkpoint} is as it was"):
        rows = rescale_checkpoint(local_session(log=create_log_file()), checkpoint, new, cells)
    if json:
        print_json({"checkpoint": new, "cells": cells, "baseRows": rows})
    else:
        print(f"{new}: {cells} cells with {rows} base rows; start the pipeline with this checkpoint and cells={cells}")


@app.command()
def doctor(
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Start Spark too, or check only what the engine needs.")
    ] = True,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Copy the jars of Spark's Kafka connector first, from Maven Central.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check Python, packages, Java, Spark and this machine. The exit code is 1 if something must be fixed."""
    from penstock.cli.doctor import diagnose, fetch_connectors, format_json, is_fine, print_findings  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    if fetch:
        fetch_connectors(console)
    findings = diagnose(spark=spark, console=console)
    if json:
        print(format_json(findings))
    else:
        print_findings(findings, Console())
    if not is_fine(findings):
        raise typer.Exit(1)


def _print_labs(wanted: bool) -> None:
    if wanted:
        for name, each in labs.LABS.items():
            print(f"{name:<8} {each.description}")
        raise typer.Exit


@app.command()
def lab(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(labs.LABS)}, or {labs.ALL}.")] = labs.ALL,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less: smaller data and fewer rounds.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the tables and checks to this file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write JSON, figures and a report in HTML into this folder. Labs that are there stay."),
    ] = None,
    _list: Annotated[
        bool, typer.Option("--list", callback=_print_labs, is_eager=True, help="List the labs with a description.")
    ] = False,
) -> None:
    """Measure Penstock and its references. The exit code is 1 if a check misses its goal."""
    from penstock.lab.html_report import build_html  # noqa: PLC0415
    from penstock.lab.report import Report, combine_reports, write_json  # noqa: PLC0415

    console = Console()
    reports = []
    chosen = labs.select_labs(name)
    labs.require_packages()
    begun = time.monotonic()
    for number, each in enumerate(chosen, 1):
        if len(chosen) > 1:  # each lab has a progress bar of its own
            minutes = (time.monotonic() - begun) / 60
            print(f"lab {number}/{len(chosen)}: {each}, after {minutes:.0f} minutes", file=sys.stderr)
        report = labs.run_safely(each, quick) if len(chosen) > 1 else labs.run(each, quick)
        report.show(console)
        reports.append(report)
        if out is not None:
            console.print("written:", *report.write(out), highlight=False, soft_wrap=True)
            command = f"penstock lab {name}{' --quick' if quick else ''} --out {out}"
            known = [found for lab_name in labs.LABS if (found := Report.read(out, lab_name)) is not None]
            (out / "report.html").write_text(build_html(known, command), encoding="utf-8")
    if out is not None:
        console.print("written:", out / "report.html", highlight=False, soft_wrap=True)
    if json is not None:
        console.print("written:", write_json(json, combine_reports(reports)), highlight=False, soft_wrap=True)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
