"""Sinks in the driver: a table in memory, the console, and a function."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from penstock.cql import Connector
from penstock.errors import QueryError
from penstock.spark.sinks.protocol import DRIVER_LIMIT

_CONSOLE = threading.Lock()


class DriverMemorySink:
    """Keeps all rows in the driver, of one run or of several. A repeated micro-batch replaces its rows."""

    def __init__(self, limit: int = DRIVER_LIMIT) -> None:
        self.limit = limit
        self._runs: dict[str, dict[int, pa.Table]] = {}
        self._batches: dict[int, pa.Table] = {}
        self._schema: pa.Schema | None = None

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002
        self._batches = self._runs.setdefault(run, {})
        self._schema = schema

    @property
    def is_open(self) -> bool:
        """Whether it is part of a started pipeline."""
        return self._schema is not None

    def write(self, batch: int, rows: pa.Table) -> None:
        self._batches[batch] = rows

    def table(self) -> pa.Table:
        """All rows so far."""
        if self._schema is None:
            raise QueryError("SINK_NOT_OPEN", "this sink is not part of a started pipeline")
        kept = (run[batch] for run in list(self._runs.values()) for batch in sorted(run))
        return pa.concat_tables([self._schema.empty_table(), *kept])

    def __str__(self) -> str:
        return "memory of the driver"


class ConsoleSink:
    """Prints rows as tab-separated text. A repeated micro-batch is printed again."""

    connector = Connector("console", ())

    def __init__(self, file: IO[str] | None = None, limit: int = DRIVER_LIMIT) -> None:
        self.limit = limit
        self._file = file
        self._name = ""

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002
        self._name = name

    def write(self, batch: int, rows: pa.Table) -> None:  # noqa: ARG002
        file = self._file or sys.stdout
        with _CONSOLE:  # lines of two queries do not mix
            for row in rows.to_pylist():
                print(self._name, *(f"{key}={value}" for key, value in row.items()), sep="\t", file=file)
            file.flush()

    def __str__(self) -> str:
        return "console"


class ForeachSink:
    """Calls a function with the rows and the number of the micro-batch, which is the same in a retry."""

    def __init__(self, function: Callable[[pa.Table, int], Any], limit: int = DRIVER_LIMIT) -> None:
        self.limit = limit
        self._function = function

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        pass

    def write(self, batch: int, rows: pa.Table) -> None:
        self._function(rows, batch)

    def __str__(self) -> str:
        return f"function {getattr(self._function, '__name__', repr(self._function))}"
