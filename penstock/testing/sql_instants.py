"""The oracle that does not share the engine's binder: the text of a query in DuckDB, at every instant.

Law: the answer of a query at an instant is that of its text over the rows that are valid then. Each FROM item that is a
stream becomes a table of the rows that its window holds at the instant, and DuckDB runs the text. An aggregate without
GROUP BY has no row here while there is no row below it, so the text must say HAVING COUNT(*) > 0. Columns are integers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.cql import Select
from penstock.errors import InternalError
from penstock.testing.duckdb_oracle import connect
from penstock.testing.oracle import ValidTuple, bind_text, compute_lifetimes
from penstock.testing.relation_cases import NUMBERS

Answer = Counter[tuple[Any, ...]]
_LATEST = 2**62


def answers_at_instants(text: str, streams: Mapping[str, pa.Table], times: Mapping[str, str]) -> dict[int, Answer]:
    """The answer of a SELECT at every instant at which a row of some window enters or leaves."""
    items: dict[str, list[ValidTuple]] = {}
    names = "|".join(re.escape(name) for name in streams)

    def replace_item(match: re.Match[str]) -> str:
        item = f"item{len(items)}"
        items[item] = _list_lifetimes(match[0], streams, times)
        return item

    written = re.sub(rf"\b({names})\b( ?\[[^\]]*\])?(?= AS )", replace_item, text)
    limits = {at for rows in items.values() for row in rows for at in (row.born, row.dies)}
    connection, answers = connect(), {}
    for instant in sorted(int(at) for at in limits if abs(at) < _LATEST):
        for item, rows in items.items():
            connection.register(item, _build_table([row for row in rows if row.born <= instant < row.dies]))
        answers[instant] = Counter(tuple(map(_limit, row)) for row in connection.execute(written).fetchall())
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


def _list_lifetimes(item: str, streams: Mapping[str, pa.Table], times: Mapping[str, str]) -> list[ValidTuple]:
    body = bind_text(f"SELECT * FROM {item}", streams, {}, times).body
    if not isinstance(body, Select):
        raise InternalError("NOT_A_SELECT", item)
    source = body.sources[0]
    return compute_lifetimes(source, streams[source.relation.name])


def _build_table(valid: list[ValidTuple]) -> pa.Table:
    """The columns of the generated streams that are integers."""
    return pa.table({name: pa.array([row.row.get(name) for row in valid], pa.int64()) for name in NUMBERS})


def _limit(value: Any) -> Any:
    """A sum that does not fit a bigint is NULL."""
    return None if isinstance(value, int) and not -(2**63) <= value < 2**63 else value
