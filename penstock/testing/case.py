"""A reproducible case: declarations, a query, a plan, and every push and advance in order."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.oracle import expected
from penstock.testing.row_evaluator import to_plain
from penstock.testing.row_functions import EPOCH

MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Push:
    """Rows of some streams, in one push."""

    batches: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Advance:
    """The promise that no tuple of `stream` before `value` will arrive; `value` has the type of the time column."""

    stream: str
    value: int | datetime.datetime


Step = Push | Advance


@dataclass(frozen=True, repr=False)
class Case:
    """Everything that a run needs. `random_case` makes cases, `run` plays them, `shrink` makes them small."""

    seed: int
    declarations: tuple[Stream, ...]
    tables: Mapping[str, pa.Table]
    query: str
    plan: str
    steps: tuple[Step, ...]

    @cached_property
    def streams(self) -> dict[str, pa.Table]:
        """Every row of every stream in the order of arrival, late rows and rows without a time included."""
        return {stream.name: _concat_batches(stream, self._list_batches(stream.name)) for stream in self.declarations}

    @cached_property
    def accepted(self) -> dict[str, pa.Table]:
        """The rows that count: those with a time that were not late when they were pushed."""
        return self.accepted_since(0)

    def accepted_since(self, step: int) -> dict[str, pa.Table]:
        """The rows accepted in this step and later: the input of a query that is added just before it."""
        return {
            stream.name: _concat_batches(stream, self._filter_by_lateness(stream, step)) for stream in self.declarations
        }

    @cached_property
    def late(self) -> dict[str, pa.Table]:
        """The rows that were older than the frontier of their stream when they were pushed."""
        return {
            stream.name: _concat_batches(stream, self._filter_by_lateness(stream, 0, late=True))
            for stream in self.declarations
        }

    @cached_property
    def expected(self) -> pa.Table:
        """The answer of the oracle."""
        return expected(self.query, self.accepted, self.tables, self.times)

    @property
    def times(self) -> dict[str, str]:
        """The time column of every stream."""
        return {stream.name: stream.time for stream in self.declarations}

    def _list_batches(self, stream: str) -> Iterator[pa.Table]:
        return (step.batches[stream] for step in self.steps if isinstance(step, Push) and stream in step.batches)

    def _filter_by_lateness(self, stream: Stream, since: int, *, late: bool = False) -> Iterator[pa.Table]:
        """The rows that are in time, or the late ones, of every push from step `since` on."""
        frontier: float = float("-inf")
        for i, step in enumerate(self.steps):
            if isinstance(step, Advance) and step.stream == stream.name:
                frontier = max(frontier, to_ticks(step.value))
            elif isinstance(step, Push) and stream.name in step.batches:
                batch = step.batches[stream.name]
                times = to_plain(batch.column(stream.time))
                if i >= since:
                    chosen = [t is not None and (t < frontier) == late for t in times]
                    yield batch.filter(pa.array(chosen, pa.bool_()))
                in_time = [t for t in times if t is not None and t >= frontier]
                if in_time:
                    frontier = max(frontier, max(in_time) - stream.lateness)

    def __repr__(self) -> str:
        return f"<Case of seed {self.seed}: {self.query}>"

    def __str__(self) -> str:
        """Seed, query, plan and declarations."""
        lines = [f"seed {self.seed}", self.query, f"plan {self.plan}"]
        for stream in self.declarations:
            rows = self.streams[stream.name].num_rows
            lines.append(
                f"{stream.name}: {rows} rows, time {stream.time} {stream.time_type}, lateness {stream.lateness}"
            )
        lines += [f"{name}: {table.num_rows} rows, static" for name, table in self.tables.items()]
        return "\n".join([*lines, f"{len(self.steps)} steps"])

    def script(self, options: str = 'state="eager"') -> str:
        """A Python program that plays the case and compares it with the oracle; `options` go to the Engine."""
        lines = [
            "import datetime",
            "from decimal import Decimal",
            "from math import inf, nan",
            "import pyarrow as pa",
            "import penstock as ps",
            "from penstock.cql.catalog import Stream",
            "from penstock.testing import Advance, Case, Push, run, same_rows",
            "",
            "schemas = {",
            *(f"    {stream.name!r}: {_format_schema(stream.schema)}," for stream in self.declarations),
            "}",
            f"case = Case({self.seed}, (",
            *(
                f"    Stream({s.name!r}, schemas[{s.name!r}], {s.time!r}, lateness={s.lateness}),"
                for s in self.declarations
            ),
            "), {",
            *(
                f"    {name!r}: {_format_table(table, _format_schema(table.schema))},"
                for name, table in self.tables.items()
            ),
            f"}}, {self.query!r}, {self.plan!r}, (",
            *(f"    {_format_step(step)}," for step in self.steps),
            "))",
            f"same_rows(run(lambda: ps.Engine({options}), case, plan=case.plan), case.expected)",
        ]
        return "\n".join(lines) + "\n"


def to_ticks(value: int | datetime.datetime) -> int:
    """A time as an integer: microseconds since 1970, or the tick itself."""
    return value if isinstance(value, int) else (value - EPOCH) // MICROSECOND


def _concat_batches(stream: Stream, batches: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables([stream.schema.empty_table(), *batches])


def _format_schema(schema: pa.Schema) -> str:
    return f"pa.schema([{', '.join(f'({field.name!r}, {_format_type(field.type)})' for field in schema)}])"


def _format_type(kind: pa.DataType) -> str:
    if pt.is_timestamp(kind):
        return f"pa.timestamp({kind.unit!r})"
    if pt.is_decimal(kind):
        return f"pa.decimal128({kind.precision}, {kind.scale})"
    return {"bool": "pa.bool_()", "double": "pa.float64()"}.get(str(kind)) or f"pa.{str(kind).split('[')[0]}()"


def _format_table(table: pa.Table, schema: str) -> str:
    return f"pa.table({table.to_pydict()!r}, schema={schema})"


def _format_step(step: Step) -> str:
    if isinstance(step, Advance):
        return f"Advance({step.stream!r}, {step.value!r})"
    batches = (f"{name!r}: {_format_table(batch, f'schemas[{name!r}]')}" for name, batch in step.batches.items())
    return f"Push({{{', '.join(batches)}}})"
