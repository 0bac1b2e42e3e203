"""Sinks: where results go. A sink gets the rows of one query, micro-batch by micro-batch.

Law: a micro-batch that is written again (after a failure or a restart) leaves the sink as if it had been written once.
File names contain the run, the query and the number of the micro-batch, so that a second write replaces the first, and
queries that write to one folder do not replace each other's files.
"""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol, cast

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from penstock.cql import Connector
from penstock.errors import PenstockError, QueryError, UnsupportedError
from penstock.spark.storage import Folder, as_file_name


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


def sink_connector(sink: Sink) -> Connector | None:
    """The description from which `from_connector` makes such a sink again; None if there is none.

    It is written to the checkpoint, so a sink whose options contain secrets has none.
    """
    found = getattr(sink, "connector", None)
    return found if isinstance(found, Connector) else None


def open_sink(sink: Sink, run: str, name: str, schema: pa.Schema) -> None:
    """Open a sink; its errors become SINK_FAILED."""
    try:
        sink.open(run, name, schema)
    except Exception as error:
        message = f"the sink of {name} cannot be opened: {type(error).__name__}: {error}"
        raise PenstockError("SINK_FAILED", message, query=name) from error


class FileSink:
    """A folder with one file per query and micro-batch that has rows."""

    def __init__(
        self, path: str, ending: str, save: Callable[[pa.Table, Any], Any], options: Mapping[str, str] | None = None
    ) -> None:
        """`ending`: the extension of the files and the name of their format. `options`: those of the format."""
        self.connector = Connector(ending, (("path", path), *(options or {}).items()))
        self._folder = Folder(path)
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


class ConsoleSink:
    """Prints rows as tab-separated text."""

    connector = Connector("console")

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


class ForeachSink:
    """Calls a function with the rows and the number of the micro-batch, which is the same in a retry."""

    def __init__(self, function: Callable[[pa.Table, int], Any]) -> None:
        self._function = function

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table) -> None:
        self._function(rows, batch)


def parquet(path: str) -> Sink:
    """Parquet files in a folder."""
    return FileSink(str(path), "parquet", pa_parquet.write_table)


def csv(path: str, header: bool = True) -> Sink:
    """CSV files in a folder."""
    options = pa_csv.WriteOptions(include_header=header)
    return FileSink(
        str(path), "csv", lambda rows, file: pa_csv.write_csv(rows, file, options), {"header": str(header).lower()}
    )


def json(path: str) -> Sink:
    """Files with one JSON object per line."""
    return FileSink(str(path), "json", _write_json)


def console() -> Sink:
    """Lines on stdout."""
    return ConsoleSink()


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
    allowed = {"path", "header"} if kind == "csv" else {"path"}
    given = {key.casefold(): value for key, value in options.items()}
    if "path" not in given or set(given) - allowed:
        raise QueryError("SINK_OPTIONS", f"sink {name}: {kind} takes the options {', '.join(sorted(allowed))}")
    if "header" in given:
        return csv(given["path"], header=given["header"].casefold() == "true")
    return makers[kind](given["path"])
