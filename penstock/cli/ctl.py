"""`penstock ctl RUN_DIR ...`: change a running pipeline from another process, and look at it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from penstock.cli.output import JsonFlag, print_json
from penstock.errors import QueryError, ResourceError

if TYPE_CHECKING:
    from penstock.spark.requests import Request, RequestClient

ctl = typer.Typer(help="Change or inspect a running pipeline from another process.", no_args_is_help=True)
QueryName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the query.")]
QueryText = Annotated[str, typer.Argument(metavar="QUERY", help="Text of the query.")]
PlanOption = Annotated[str | None, typer.Option(help="Shape of the join tree by alias, such as '((a b) c)'.")]


@ctl.callback()
def choose_run(
    ctx: typer.Context,
    run_dir: Annotated[
        str, typer.Argument(metavar="RUN_DIR", help="Checkpoint of the run; `penstock run` prints it at its start.")
    ],
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 120,
) -> None:
    """Change or inspect a running pipeline from another process."""
    ctx.obj = (run_dir, timeout)


def _connect(ctx: typer.Context) -> tuple[RequestClient, float]:
    from penstock.spark.requests import RequestClient  # noqa: PLC0415 (loads slowly)

    run_dir, timeout = ctx.obj
    return RequestClient(run_dir), timeout


def _send(ctx: typer.Context, request: Request) -> dict[str, Any]:
    client, timeout = _connect(ctx)
    return client.send(request, timeout)


def _report(result: dict[str, Any], json: bool, text: str) -> None:
    if json:
        print_json(result)
    else:
        print(text)


@ctl.command()
def add(
    ctx: typer.Context,
    script: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="A script with CREATE SINK and INSERT INTO statements."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of a single query.")] = None,
    query: Annotated[str | None, typer.Option(help="Text of the single query.")] = None,
    sink: Annotated[str, typer.Option(help="Its sink: parquet:PATH, csv:PATH, json:PATH or console.")] = "console",
    plan: PlanOption = None,
    append: Annotated[bool, typer.Option("--append", help="Add to the result files of an earlier run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the result files of an earlier run.")] = False,
    json: JsonFlag = False,
) -> None:
    """Add queries: those of a script, or one with --name and --query. They see the rows that come from now on."""
    from penstock.cli.run_options import choose_mode  # noqa: PLC0415 (loads slowly)
    from penstock.spark.requests import Add, AddOne  # noqa: PLC0415

    mode = choose_mode(append, overwrite)
    request: Request
    if script is not None and name is None and query is None:
        request = Add(_read_text(script), mode)
    elif script is None and name is not None and query is not None:
        request = AddOne(name, query, *_split_sink(sink), plan, mode)
    else:
        raise QueryError("BAD_ARGUMENTS", "give a script, or --name and --query")
    result = _send(ctx, request)
    _report(result, json, f"added: {', '.join(result['added'])}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise QueryError("SCRIPT_NOT_UTF8", f"{path.name} is not UTF-8 text: {error.reason}") from error


def _split_sink(sink: str) -> tuple[str, str | None]:
    """The format and the path; a relative path is one of this process, not of the run."""
    kind, _, path = sink.partition(":")
    if path and "://" not in path:
        path = str(Path(path).absolute())
    return kind, path or None


@ctl.command()
def drop(ctx: typer.Context, name: QueryName, json: JsonFlag = False) -> None:
    """Stop a query and free its state."""
    from penstock.spark.requests import Drop  # noqa: PLC0415 (loads slowly)

    _report(_send(ctx, Drop(name)), json, f"dropped: {name}")


@ctl.command()
def alter(
    ctx: typer.Context, name: QueryName, query: QueryText, plan: PlanOption = None, json: JsonFlag = False
) -> None:
    """Replace the text of a query; the new query sees the rows that come from now on. Its columns stay."""
    from penstock.spark.requests import Alter  # noqa: PLC0415 (loads slowly)

    _report(_send(ctx, Alter(name, query, plan)), json, f"altered: {name}")


@ctl.command()
def migrate(
    ctx: typer.Context,
    name: QueryName,
    plan: Annotated[str, typer.Argument(help="Shape of the join tree by alias, such as '((a b) c)'.")],
    json: JsonFlag = False,
) -> None:
    """Continue a query with another plan, without losing or repeating a result."""
    from penstock.spark.requests import MigratePlan  # noqa: PLC0415 (loads slowly)

    _report(_send(ctx, MigratePlan(name, plan)), json, f"migrated: {name} to {plan}")


@ctl.command()
def budget(
    ctx: typer.Context,
    probes: Annotated[
        str, typer.Argument(help="Probes per second of event time, a time per micro-batch such as '500 ms', or none.")
    ],
    policy: Annotated[str | None, typer.Option(help="How the budget is divided, such as jaqpot.")] = None,
    query: Annotated[str | None, typer.Option(help="The query that it binds; default: all.")] = None,
    json: JsonFlag = False,
) -> None:
    """Limit the work of joins, or lift the limit."""
    from penstock.spark.requests import ChangeBudget  # noqa: PLC0415 (loads slowly)

    result = _send(ctx, ChangeBudget(_parse_probes(probes), policy, query))
    limits = "; ".join(f"{name} {limit}" for name, limit in result["budgets"].items())
    _report(result, json, f"budgets: {limits or 'none'}")


def _parse_probes(text: str) -> float | str | None:
    if text.casefold() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


@ctl.command()
def schedule(
    ctx: typer.Context,
    strategy: Annotated[str, typer.Argument(help="dfs, bfs or rr.")],
    json: JsonFlag = False,
) -> None:
    """Set the strategy by which engines select their next operator."""
    from penstock.spark.requests import Schedule  # noqa: PLC0415 (loads slowly)

    _report(_send(ctx, Schedule(strategy)), json, f"schedule: {strategy}")


@ctl.command()
def policy(
    ctx: typer.Context,
    name: QueryName,
    state: Annotated[str, typer.Argument(help="auto, eager, lazy, jit or none.")],
    json: JsonFlag = False,
) -> None:
    """Change the state policy of a query."""
    from penstock.spark.requests import Policy  # noqa: PLC0415 (loads slowly)

    _report(_send(ctx, Policy(name, state)), json, f"policy of {name}: {state}")


@ctl.command()
def stop(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Stop the run after its current micro-batch, and wait for its end."""
    from penstock.spark.requests import Stop  # noqa: PLC0415 (loads slowly)

    client, timeout = _connect(ctx)
    result = client.send(Stop(), timeout)
    if not client.wait_for_end(timeout):
        raise ResourceError(
            "NO_ANSWER", f"the run has not ended after {timeout:g} seconds; it is in a long micro-batch"
        )
    _report({"stopped": result["stopping"]}, json, f"stopped: {result['stopping']}")


@ctl.command()
def status(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Show queries, rates, rejected rows, budgets and how far streams are behind the clock."""
    from penstock.spark.requests import Status  # noqa: PLC0415 (loads slowly)

    result = _send(ctx, Status())
    if json:
        print_json(result)
    else:
        _print_status(result, Console())


def _print_status(status: dict[str, Any], console: Console) -> None:
    rates = ", ".join(
        f"{status[key]:,.0f} rows/s {what}"
        for key, what in (("inputRowsPerSecond", "read"), ("processedRowsPerSecond", "possible"))
        if status[key] is not None
    )
    seconds = "" if status["batchSeconds"] is None else f" in {status['batchSeconds']:.1f} s"
    console.print(f"{status['checkpoint']}: {status['message']}", markup=False, soft_wrap=True, highlight=False)
    console.print(f"micro-batch {status['batch']}{seconds}, {status['cells']} cells. {rates}", highlight=False)
    queries = [
        (name, f"{each['rows']:,}", f"{each['windowRows']:,.0f}", each["budget"] or "", each["sink"] or "")
        for name, each in status["queries"].items()
    ]
    _print_table(console, ("query", "results", "rows in windows", "budget", "sink"), queries)
    streams = [
        (name, f"{each['late']:,}", f"{each['dead']:,}", str(each["frontier"] or ""), _format_lag(each["lagSeconds"]))
        for name, each in status["streams"].items()
    ]
    _print_table(console, ("stream", "late", "dead", "frontier", "behind the clock"), streams)


def _print_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = RichTable(header_style="bold")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _format_lag(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f} s"
