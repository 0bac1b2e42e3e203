"""Sinks: where results go. A sink gets the rows of one query, micro-batch by micro-batch.

Law: a micro-batch that is written again (after a failure or a restart) leaves the sink as if it had been written once.
File names contain the run, the query and the number of the micro-batch, so that a second write replaces the first, and
queries that write to one folder do not replace each other's files.
"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any, Literal, Protocol, cast, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from penstock.errors import DataError, PenstockError, QueryError, UnsupportedError, require_known
from penstock.spark.storage import Folder, as_file_name

FolderMode = Literal["error", "append", "overwrite"]
"""What a run without an earlier checkpoint does with a folder that has result files: refuse, add to them, or replace
them."""
FOLDER_MODES: tuple[FolderMode, ...] = get_args(FolderMode)


class Sink(Protocol):
    """A destination of results."""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        """Called once before the first batch: the run's id, the query's name, the columns."""

    def write(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a micro-batch, in temporal order; there may be none."""


def as_sink(what: object) -> Sink:
    """The argument as a sink; a QueryError says how to make one."""
    if not all(callable(getattr(what, method, None)) for method in ("open", "write")):
        raise QueryError("NOT_A_SINK", f"{what!r} is not a sink; use ps.sinks, such as ps.sinks.parquet(path)")
    return cast(Sink, what)


def open_sink(sink: Sink, run: str, name: str, schema: pa.Schema) -> None:
    """Open a sink; its errors become SINK_FAILED."""
    try:
        sink.open(run, name, schema)
    except Exception as error:
        message = f"the sink of {name} cannot be opened: {type(error).__name__}: {error}"
        raise PenstockError("SINK_FAILED", message, query=name) from error


class FileSink:
    """A folder with one file per query and micro-batch that has rows."""

    def __init__(self, path: str, ending: str, save: Callable[[pa.Table, Any], Any], mode: FolderMode) -> None:
        require_known(mode, FOLDER_MODES, "mode of a folder")
        self._folder = Folder(path)
        self.mode = mode
        self._extension = ending
        self._save = save
        self._prefix = ""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002 - files contain their schema
        self._prefix = f"part-{run[:8]}-{as_file_name(name)}"

    def write(self, batch: int, rows: pa.Table) -> None:
        name = f"{self._prefix}-{batch:08d}.{self._extension}"
        if rows.num_rows:
            self._folder.write_with(name, lambda file: self._save(rows, file))
        else:
            self._folder.remove(name)

    @property
    def path(self) -> str:
        return self._folder.path

    def list_files_of_others(self, run: str | None) -> list[str]:
        """The result files in the folder that were not written by a run."""
        own = f"part-{run[:8]}-" if run else None
        files = (name for name in self._folder.list_names() if name.startswith("part-"))
        return [name for name in files if name.endswith(f".{self._extension}") and not (own and name.startswith(own))]

    def remove_files_of_others(self, run: str | None) -> None:
        """Remove the result files that were not written by a run; files of other kinds stay."""
        for name in self.list_files_of_others(run):
            self._folder.remove(name)

    def __str__(self) -> str:
        return f"{self._extension} files in {self.path}"


def check_folders(sinks: Iterable[Sink], run: str | None = None) -> None:
    """Refuse folders with result files of other runs, except for sinks that append or overwrite."""
    for sink in sinks:
        if isinstance(sink, FileSink) and sink.mode == "error" and sink.list_files_of_others(run):
            message = (
                f"{sink.path} has results of an earlier run that this run does not continue: they would be mixed. "
                "Continue the earlier run with its checkpoint (--checkpoint DIR, or checkpointLocation in Python), add "
                'to the files (--append, or mode="append" of the sink), or replace them (--overwrite, or '
                'mode="overwrite")'
            )
            raise DataError("FOLDER_IN_USE", message, folder=sink.path)


def clear_folders(sinks: Iterable[Sink], run: str | None = None) -> None:
    """Remove the result files of other runs that are to be overwritten."""
    for sink in sinks:
        if isinstance(sink, FileSink) and sink.mode == "overwrite":
            sink.remove_files_of_others(run)


def describe_sink(sink: Sink) -> str:
    """Where the results of a sink go, in words."""
    return str(sink) if type(sink).__str__ is not object.__str__ else type(sink).__name__


class DriverMemorySink:
    """Keeps all rows in the driver, of one run or of several."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, pa.Table]] = {}
        self._batches: dict[int, pa.Table] = {}
        self._schema: pa.Schema | None = None

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002
        self._batches = self._runs.setdefault(run, {})
        self._schema = schema

    def write(self, batch: int, rows: pa.Table) -> None:
        self._batches[batch] = rows

    def table(self) -> pa.Table:
        """All rows so far."""
        if self._schema is None:
            raise QueryError("SINK_NOT_OPEN", "this sink is not part of a started pipeline")
        kept = (run[batch] for run in self._runs.values() for batch in sorted(run))
        return pa.concat_tables([self._schema.empty_table(), *kept])

    def __str__(self) -> str:
        return "memory of the driver"


class ConsoleSink:
    """Prints rows as tab-separated text."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file
        self._name = ""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002
        self._name = name

    def write(self, batch: int, rows: pa.Table) -> None:  # noqa: ARG002
        file = self._file or sys.stdout
        for row in rows.to_pylist():
            print(self._name, *(f"{key}={value}" for key, value in row.items()), sep="\t", file=file)
        file.flush()

    def __str__(self) -> str:
        return "console"


class ForeachSink:
    """Calls a function with the rows and the number of the micro-batch, which is the same in a retry."""

    def __init__(self, function: Callable[[pa.Table, int], Any]) -> None:
        self._function = function

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table) -> None:
        self._function(rows, batch)

    def __str__(self) -> str:
        return f"function {getattr(self._function, '__name__', repr(self._function))}"


def parquet(path: str, mode: FolderMode = "error") -> Sink:
    """Parquet files in a folder. `mode`: what a new run does with files of an earlier one."""
    return FileSink(str(path), "parquet", pa_parquet.write_table, mode)


def csv(path: str, header: bool = True, mode: FolderMode = "error") -> Sink:
    """CSV files in a folder. `mode`: what a new run does with files of an earlier one."""
    options = pa_csv.WriteOptions(include_header=header)
    return FileSink(str(path), "csv", lambda rows, file: pa_csv.write_csv(rows, file, options), mode)


def json(path: str, mode: FolderMode = "error") -> Sink:
    """Files with one JSON object per line. `mode`: what a new run does with files of an earlier one."""
    return FileSink(str(path), "json", _write_json, mode)


def console(file: IO[str] | None = None) -> Sink:
    """Lines on stdout, or in another open file."""
    return ConsoleSink(file)


def memory() -> DriverMemorySink:
    """A table in the driver: `sink.table()`."""
    return DriverMemorySink()


def foreach(function: Callable[[pa.Table, int], Any]) -> Sink:
    """A function of (rows, batch). It may be called twice with the same batch and must then have no further effect."""
    if not callable(function):
        raise QueryError("NOT_CALLABLE", f"foreach takes a function of (rows, batch), not {function!r}")
    return ForeachSink(function)


def _write_json(rows: pa.Table, file: Any) -> None:
    lines = (json_text.dumps(row, default=str, ensure_ascii=False) for row in rows.to_pylist())
    file.write("".join(f"{line}\n" for line in lines).encode())


def from_connector(name: str, format_: str, options: dict[str, str]) -> Sink:
    """The sink of CREATE SINK … TO format OPTIONS (…)."""
    makers: dict[str, Callable[..., Sink]] = {"parquet": parquet, "csv": csv, "json": json}
    kind = format_.casefold()
    if kind in ("console", "memory"):
        return console() if kind == "console" else memory()
    if kind not in makers:
        known = ", ".join([*makers, "console", "memory"])
        if kind in ("delta", "kafka", "postgres"):
            message = f"sink {name}: {format_} cannot be written by this version; {known} can"
            raise UnsupportedError("SINK_NOT_YET", message)
        raise QueryError("UNKNOWN_SINK_FORMAT", f"sink {name}: no format {format_}; known are {known}")
    allowed = ("path", "mode", "header") if kind == "csv" else ("path", "mode")
    given = {key.casefold(): value for key, value in options.items()}
    if "path" not in given or set(given) - set(allowed):
        raise QueryError("SINK_OPTIONS", f"sink {name}: {kind} takes the options {', '.join(allowed)}")
    mode = given.get("mode", "error").casefold()
    if "header" in given:
        return csv(given["path"], header=given["header"].casefold() == "true", mode=cast(FolderMode, mode))
    return makers[kind](given["path"], mode=mode)
