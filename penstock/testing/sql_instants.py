"""The oracle that does not share the engine's binder: the text of a query in DuckDB, at every instant.

Law: the answer of a query at an instant is that of its text over the rows that are valid then. Each FROM item that is a
stream becomes a table of the rows that its window holds at the instant, and DuckDB runs the text. An aggregate without
GROUP BY has no row here while there is no row below it, so the text must say HAVING COUNT(*) > 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.testing.duckdb_oracle import connect
from penstock.testing.interval_operators import ValidRow
from penstock.testing.oracle import bind_text, compute_rows

Answer = Counter[tuple[Any, ...]]
_LATEST = 2**62


def answers_at_instants(
    text: str,
    streams: Mapping[str, pa.Table],
    times: Mapping[str, str],
    leaves: Iterable[str] | None = None,
    tables: Mapping[str, pa.Table] | None = None,
) -> dict[int, Answer]:
    """The answer of a SELECT at every instant at which a row of some leaf enters or leaves.

    A leaf is a FROM item with its alias; by default these are the streams with their windows. The naive oracle computes
    its rows. The text has `<=>` where DuckDB says IS NOT DISTINCT FROM.
    """
    if leaves is None:
        names = "|".join(re.escape(name) for name in streams)
        leaves = [match[0] for match in re.finditer(rf"\b({names})\b( ?\[[^\]]*\])? AS \w+", text)]
    items: dict[str, _LeafRows] = {}
    for leaf in leaves:
        item, alias = f"item{len(items)}", leaf.rpartition(" AS ")[2]
        if leaf in text:
            items[item] = _LeafRows.compute(leaf, streams, times)
            text = text.replace(leaf, f"{item} AS {alias}")
    text = text.replace("<=>", "IS NOT DISTINCT FROM")
    limits = {at for each in items.values() for row in each.rows for at in (row.born, row.dies)}
    connection, answers = connect(), {}
    connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
    for name, table in (tables or {}).items():
        connection.register(name, table)
    for instant in sorted(int(at) for at in limits if abs(at) < _LATEST):
        for item, each in items.items():
            connection.register(item, each.build_table(instant))
        answers[instant] = Counter(tuple(map(_limit, row)) for row in connection.execute(text).fetchall())
    connection.close()
    return answers


def replay_changes(changes: pa.Table, instants: Iterable[int], to_tick: Any) -> dict[int, Answer]:
    """The answer at some instants, from the results of EMIT CHANGES. `to_tick` makes an integer of a time."""
    rows: Answer = Counter()
    answers: dict[int, Answer] = {}
    waiting = [(to_tick(row.pop("_ts")), row.pop("_op"), tuple(row.values())) for row in changes.to_pylist()]
    for instant in sorted(instants):
        while waiting and waiting[0][0] <= instant:
            _, sign, values = waiting.pop(0)
            rows[values] += 1 if sign == "+" else -1
        answers[instant] = Counter({values: count for values, count in rows.items() if count})
    return answers


@dataclass(frozen=True)
class _LeafRows:
    """The rows of a FROM item with their intervals."""

    schema: pa.Schema
    rows: list[ValidRow]

    @staticmethod
    def compute(leaf: str, streams: Mapping[str, pa.Table], times: Mapping[str, str]) -> _LeafRows:
        query = bind_text(f"SELECT * FROM {leaf}", streams, {}, times)
        fields = [pa.field(item.name, _to_plain_type(item.expr.type)) for item in query.body.items]
        return _LeafRows(pa.schema(fields), compute_rows(query, streams))

    def build_table(self, instant: int) -> pa.Table:
        valid = [row.values for row in self.rows if row.born <= instant < row.dies]
        columns = list(zip(*valid, strict=True)) or [()] * len(self.schema)
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)],
            schema=self.schema,
        )


def _to_plain_type(kind: pa.DataType) -> pa.DataType:
    """Times and dates are integers, as in the naive oracle; integers are bigints, so that no sum overflows."""
    temporal = pt.is_temporal(kind)
    return pa.int64() if temporal or pt.is_integer(kind) else kind


def _limit(value: Any) -> Any:
    """A sum that does not fit a bigint is NULL."""
    return None if isinstance(value, int) and not -(2**63) <= value < 2**63 else value
