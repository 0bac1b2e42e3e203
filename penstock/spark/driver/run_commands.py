"""The commands of a run: changes of its queries, of engine settings and of event time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.adapt import (
    AddQuery,
    AdvanceStream,
    AlterQuery,
    DropQuery,
    EndStreams,
    Migrate,
    SetBudget,
    SetPolicy,
    SetSchedule,
    decode_order,
)
from penstock.cql import format_type
from penstock.errors import DataError, QueryError, name_arguments
from penstock.ops import to_tick
from penstock.spark.driver.batch_sink import BatchSink
from penstock.spark.driver.command_sender import CommandSender
from penstock.spark.query_warnings import warn_of_query
from penstock.spark.sinks import ConsoleSink, Sink, as_sink


@name_arguments
class RunCommands:
    """A command goes with the next micro-batch, and commands to engines take effect in it.

    Those that add, alter or drop a query take effect with the micro-batch after it, as it has other rows.

    The methods return when the command has taken effect. A command that is refused has changed nothing.
    """

    def __init__(self, batch_sink: BatchSink, sender: CommandSender) -> None:
        self._batch_sink = batch_sink
        self._sender = sender

    def add(self, name: str, text: str, sink: Sink | None = None, plan: str | None = None) -> None:
        """Start another query: it sees the rows that come from now on.

        Of a derived stream or a view it sees what is made of rows that come from now on.
        """
        query = self._sender.bind(text)
        into = ConsoleSink() if sink is None else as_sink(sink)
        self._sender.send_and_wait(AddQuery(name, text, plan), into)
        warn_of_query(name, query, self._batch_sink.layout.spec.tables)

    def alter(self, name: str, text: str, plan: str | None = None) -> None:
        """Replace the text of a query in one step; its sink, its state policy and its budget stay.

        It keeps the rows of its windows if they are all that the new text needs: it reads the same streams on the same
        keys, its windows are not longer, its conditions let no more rows through, and it reads no other columns. Then
        results that become certain from now on are those of the new text over these rows. Otherwise it sees the rows
        that come from now on, and results of the old text that wait for later rows are not written.
        `status["evolved"]` says which. The columns must be the same, because the sink has them.
        """
        query = self._batch_sink.layout.spec.config.find_query(name)
        before = self._batch_sink.layout.spec.bound_queries[query.name].schema
        changed = self._sender.bind(text)
        after = changed.schema
        if after != before:
            message = (
                f"{query.name} has the columns {_format_columns(before)}, the new text has {_format_columns(after)}; "
                "add it as a query of another name with a sink of its own"
            )
            raise QueryError("COLUMNS_DIFFER", message, query=query.name)
        self._sender.send_and_wait(AlterQuery(query.name, text, plan))
        warn_of_query(query.name, changed, self._batch_sink.layout.spec.tables)

    def drop(self, name: str) -> None:
        """Stop a query and free its state."""
        self._sender.send_and_wait(DropQuery(name))

    def migrate(self, name: str, plan: str) -> None:
        """Continue with another plan, without losing or repeating a result."""
        self._sender.send_and_wait(Migrate(name, plan))

    def schedule(self, strategy: str) -> None:
        """Set the strategy by which the cells' engines select their next operator: "dfs", "bfs" or "rr"."""
        self._sender.send_and_wait(SetSchedule(strategy))

    def budget(self, probes: float | str | None, policy: str | None = None, query: str | None = None) -> None:
        """Limit the probes per second of event time, every cell having an equal share; None lifts the limit.

        A time such as "500 ms" is what a cell's engine may take for a micro-batch. With `query` it binds that one only.
        """
        share = (
            probes / self._batch_sink.layout.spec.cells
            if isinstance(probes, int | float) and not isinstance(probes, bool)
            else probes
        )
        chosen = SetBudget(share, query=query) if policy is None else SetBudget(share, policy, query)
        self._sender.send_and_wait(chosen)

    def policy(self, name: str, state: str) -> None:
        """Change the state policy of a query."""
        self._sender.send_and_wait(SetPolicy(name, state))

    def order(self, do: str, **arguments: Any) -> None:
        """Call a method of every cell's engine: schedule, budget or reslice, with the arguments it takes."""
        self._sender.send_and_wait(decode_order(do, arguments))

    def advance(self, name: str, time: int | datetime | pa.Scalar) -> None:
        """No row of the stream before `time` will come: takes effect with the next micro-batch, after its rows."""
        streams = self._batch_sink.layout.spec.streams
        stream = next((s for s in streams if s.name.casefold() == name.casefold()), None)
        if stream is None:
            known = ", ".join(s.name for s in streams)
            raise DataError("UNKNOWN_STREAM", f"there is no stream {name}; declared: {known}", stream=name)
        self._sender.send_time(AdvanceStream(stream.name, to_tick(time, stream)))

    def finish(self) -> None:
        """End every stream: results that wait for more rows become certain with the next micro-batch."""
        self._sender.send_time(EndStreams())


def _format_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {format_type(field.type)}" for field in schema)
