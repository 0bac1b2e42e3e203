"""Where the results of a query are read: in its join, in a buffer, or in the stream that they are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import pyarrow as pa

from penstock.engine.parts import JoinQueryPart
from penstock.engine.streams import StreamNode, ViewNode
from penstock.graph import Reader
from penstock.join import JoinOperator, MatchBatch
from penstock.ops import Batch
from penstock.state import FOREVER, as_times

Matches = Mapping[JoinOperator, Sequence[MatchBatch]]
"""What each join found in a push, for the queries that read their results in it."""


class ResultLayout:
    """The columns of results."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._time_type = schema.field("_ts").type

    def make_table(self, batch: Batch) -> pa.Table:
        """The table of some results."""
        times = as_times(batch.times, self._time_type)
        return pa.Table.from_arrays([*batch.columns.values(), times], schema=self._schema)

    def combine(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One table after another."""
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()


_LAYOUTS: WeakValueDictionary[Hashable, ResultLayout] = WeakValueDictionary()
"""Those of running queries, by what they are made of: queries with the same columns have the same."""


@dataclass(frozen=True)
class PulledOutput:
    """The results are built from the matches of the join when the user reads them."""

    part: JoinQueryPart

    def read(self, matches: Matches, layout: ResultLayout) -> list[pa.Table]:
        """Queries that read the same combinations and columns get the same table, while one of them has it."""
        member, tables = self.part.member, []
        for found in matches.get(self.part.join, ()):
            if found.origin.scope != member.need.scope:
                continue
            rows = layout, member.identify_rows(found)
            table = None if member.failure is not None else found.tables.get(rows)
            if table is None:
                batch = member.build_output(found)
                if batch is None:
                    continue
                table = found.tables[rows] = layout.make_table(batch)
            tables.append(table)
        return tables

    def find_layout(self, schema: pa.Schema) -> ResultLayout:
        """The columns that the member builds, in a schema."""
        outputs = self.part.member.need.outputs
        key = outputs, repr(outputs), tuple(schema.names), tuple(map(str, schema.types))  # 0.0 and -0.0 are equal
        return _LAYOUTS.setdefault(key, ResultLayout(schema))

    def close(self) -> None:
        """Nothing to close: the matches belong to the push."""


@dataclass(frozen=True)
class BufferedOutput:
    """The results wait in a buffer."""

    reader: Reader

    def read(self, matches: Matches, layout: ResultLayout) -> list[pa.Table]:  # noqa: ARG002
        return [layout.make_table(batch) for batch in self.reader.read(int(FOREVER))]

    def find_layout(self, schema: pa.Schema) -> ResultLayout:
        return ResultLayout(schema)

    def close(self) -> None:
        self.reader.close()


@dataclass(frozen=True)
class DerivedOutput:
    """The results are a stream that other queries read; the user reads none."""

    stream: StreamNode

    def read(self, matches: Matches, layout: ResultLayout) -> list[pa.Table]:  # noqa: ARG002
        return []

    def find_layout(self, schema: pa.Schema) -> ResultLayout:
        return ResultLayout(schema)

    def close(self) -> None:
        """Nothing to close: the readers belong to other queries."""


@dataclass(frozen=True)
class ViewOutput:
    """The answer is a view that other queries read; the user reads none."""

    view: ViewNode

    def read(self, matches: Matches, layout: ResultLayout) -> list[pa.Table]:  # noqa: ARG002
        return []

    def find_layout(self, schema: pa.Schema) -> ResultLayout:
        return ResultLayout(schema)

    def close(self) -> None:
        """Nothing to close: the readers belong to other queries."""


QueryOutput = PulledOutput | BufferedOutput | DerivedOutput | ViewOutput
