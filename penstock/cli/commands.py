"""The command `penstock`: a thin door to the rooms behind it.

Exit codes: 0 fine, 1 the run failed, 2 the input was wrong. An error Penstock raises on purpose never shows a
traceback; what a command answers goes to stdout, progress and errors to stderr.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table as RichTable
from typer.core import TyperGroup

from penstock import lab as labs
from penstock.cql.script import Script, read_script
from penstock.errors import DataError, PenstockError, QueryError, ResourceError, UnsupportedError
from penstock.spark.sinks import from_connector

INPUT_ERRORS = (QueryError, DataError, UnsupportedError)


class CommandGroup(TyperGroup):
    """Turns Penstock's errors into a message and an exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(str(error))
            raise typer.Exit(2 if isinstance(error, INPUT_ERRORS) else 1) from error


app = typer.Typer(
    name="penstock",
    cls=CommandGroup,
    help="Continuous queries: exact joins of many streams over sliding windows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
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
) -> None:
    """Continuous queries: exact joins of many streams over sliding windows."""


@app.command()
def demo(
    embedded: Annotated[bool, typer.Option("--embedded", help="Without Spark: the engine in this process.")] = False,
    out: Annotated[Path, typer.Option(help="Where the results go; must be new.")] = Path("out/demo"),
) -> None:
    """A short story: five streams and a dozen queries on local Spark, changed while they run."""
    if embedded:
        from penstock.demo.embedded import run_demo  # noqa: PLC0415 (compiled loops take a moment to load: only when needed)

        fine = run_demo(Console())
    else:
        if out.exists():
            raise DataError("FOLDER_IN_USE", f"{out} is there already; remove it, or name another with --out")
        try:
            from penstock.demo import on_spark  # noqa: PLC0415
        except ModuleNotFoundError as error:
            message = f"the demo needs {error.name}: pip install 'penstock[spark]', or try `penstock demo --embedded`"
            raise ResourceError("SPARK_NOT_INSTALLED", message) from error
        fine = on_spark.run_spark_demo(Console(), out)
    if not fine:
        raise typer.Exit(1)


@app.command()
def check(script: ScriptFile) -> None:
    """Read a script and say what it declares; point at the first mistake."""
    found = _check_script(script)
    table = RichTable(title=f"{script.name}: fine", title_justify="left", header_style="bold")
    for heading in ("kind", "name", "what"):
        table.add_column(heading)
    for kind, name, what in found.summarize():
        table.add_row(kind, name, what)
    Console().print(table)


def _check_script(path: Path) -> Script:
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
    form: Annotated[PlanFormat, typer.Option("--format", help="How the plans are drawn.")] = PlanFormat.TEXT,
    table: Annotated[bool, typer.Option("--table", help="The state table: the same as --format table.")] = False,
) -> None:
    """Show the plan of every query of a script."""
    print(_explain_script(read_script(script), PlanFormat.TABLE if table else form))


def _explain_script(script: Script, form: PlanFormat) -> str:
    """An engine is given the declarations, with no data, and asked for its plans."""
    from penstock.cli.pictures import draw_svg  # noqa: PLC0415 (see demo)
    from penstock.engine import Engine  # noqa: PLC0415

    if not script.queries:
        raise QueryError("NO_QUERY", "the script has no query to explain; it only declares")
    engine = Engine(clock=_read_zero_clock)
    for stream in script.streams:
        engine.declare(stream)
    for table in script.tables:
        engine.table(table.name, table.schema.empty_table())
    for name, query in script.queries.items():
        (engine.derive if name in script.derived_streams else engine.query)(name, query.text)
    if form is PlanFormat.SVG:
        return draw_svg({name: engine.picture(name) for name in script.queries})
    heading = "%% {}\n" if form is PlanFormat.MERMAID else ""
    return "\n\n".join(heading.format(name) + engine.explain(name, form.value) for name in script.queries)


def _read_zero_clock() -> int:
    """The clock of an engine that is only asked for plans."""
    return 0


@app.command()
def run(
    script: ScriptFile,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then stop.")] = False,
    cells: Annotated[int | None, typer.Option(min=1, help="Into how many cells the work is cut [cores].")] = None,
    ui: Annotated[int | None, typer.Option(help="Serve the live page on this port.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where the run keeps its place.")] = None,
) -> None:
    """Run a script on Spark. Without a checkpoint, --once takes the end of the data for the end of the streams."""
    if ui is not None:
        _refuse("run --ui", "the live page", "leave --ui out; the run itself works")
    found = _check_script(script)
    from penstock.cli.run_script import run_script  # noqa: PLC0415 (Spark takes a moment to load: only when needed)

    run_script(found, once=once, cells=cells, checkpoint=checkpoint, console=Console(stderr=True, highlight=False))


@app.command()
def rescale(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint of a run that has been stopped.")],
    new: Annotated[Path, typer.Argument(help="Where the new checkpoint is made.")],
    cells: Annotated[int, typer.Option(min=1, help="Into how many cells the work is cut from then on.")],
) -> None:
    """Make a checkpoint for another number of cells; the run goes on from it where it stopped."""
    from penstock.spark.rescale import rescale as made  # noqa: PLC0415 (see run)
    from penstock.spark.session import create_log_file, local_session  # noqa: PLC0415

    rows = made(local_session(log=create_log_file()), str(checkpoint), str(new), cells)
    print(f"{new}: {cells} cells with {rows} base rows; start the pipeline with this checkpoint and cells={cells}")


@app.command()
def ui(run_dir: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show a run's live page (not in this version)."""
    del run_dir
    _refuse("ui", "the live page", "`penstock demo` shows the engine at work")


def _refuse(command: str, what: str, instead: str) -> NoReturn:
    raise UnsupportedError(
        "COMMAND_NOT_BUILT",
        f"`penstock {command}` needs {what}, which is not in this version; {instead}",
        command=command,
    )


@app.command()
def lab(
    name: Annotated[
        str, typer.Argument(help="core, graph, jit, jisc, jaqpot, adapt, slice, spark, peers, or all.")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, well under a minute.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures and checks to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write JSON and figures into this folder.")] = None,
) -> None:
    """Measure the engine beside its references. Exit code 1 if a check misses its goal."""
    from penstock.lab.report import combine_reports, write_json  # noqa: PLC0415

    console = Console()
    reports = []
    for chosen in labs.select_labs(name):
        report = labs.run(chosen, quick)
        report.show(console)
        reports.append(report)
        if out is not None:
            console.print("written:", *report.write(out), highlight=False, soft_wrap=True)
    if json is not None:
        console.print("written:", write_json(json, combine_reports(reports)), highlight=False, soft_wrap=True)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
