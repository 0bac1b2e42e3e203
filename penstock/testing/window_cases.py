"""Random cases with TUMBLE, HOP, SESSION, ranks and tops, alone, in groups and inside relations of all kinds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from penstock.cql import Stream
from penstock.testing.case import Case
from penstock.testing.relation_cases import RelationText, RelationWriter, draw_fitting_case

_NUMBERS = ("x", "y", "z", "id")


def random_windows_case(seed: int, *, rows: int = 14, limit: int = 1500, depth: int = 1, **knobs: Any) -> Case:
    """A case whose query has time windows or tops; other knobs are those of `random_case`."""
    return draw_fitting_case(
        seed, "windows", lambda rng, streams: random_windows_text(rng, streams, depth), rows=rows, limit=limit, **knobs
    )


def random_windows_text(rng: random.Random, streams: Sequence[Stream], depth: int = 1) -> str:
    """The text of a query over the streams of a generated case."""
    writer = WindowWriter(rng, streams)
    if rng.random() < 0.15:
        return f"{writer.write_closing()} EMIT ON WINDOW CLOSE"
    text = writer.write_query(depth)
    how = rng.choice(("", "", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM"))
    return f"{how} ({text})" if how.endswith("STREAM") else text + how


class WindowWriter(RelationWriter):
    """Writes query texts with window functions and tops."""

    def _write_body(self, depth: int) -> str:
        drawn = self.rng.random()
        if drawn < 0.3:
            return self._write_window_group()
        if drawn < 0.7:
            return self._write_top(self._write_from(depth))
        return super()._write_body(depth)

    def _write_top(self, source: RelationText) -> str:
        """The first rows of partitions or of all rows, with their rank or without it."""
        rng, limit = self.rng, self.rng.randint(1, 3)
        key, value = self._draw_columns(source)
        short = f"{rng.choice(source.columns)}{rng.choice(('', ' DESC', ' DESC NULLS FIRST', ' ASC NULLS LAST'))}"
        ties = self.plain_sql  # SQL leaves the order of ties open
        order = ", ".join([short, *source.columns]) if ties else short
        kind = rng.choice(("limit", "on", "qualify", "where", "where", "rank", "group"))
        if kind == "limit":
            offset = rng.choice(("", "", f" OFFSET {rng.randint(1, 2)}"))
            words = rng.choice(("", "", "DISTINCT "))
            by = ("n, k" if ties else "n") if words else order
            return f"SELECT {words}{key} AS k, {value} AS n FROM {source.text} ORDER BY {by} LIMIT {limit}{offset}"
        if kind == "on":
            return f"SELECT DISTINCT ON ({key}) {key} AS k, {value} AS n FROM {source.text} ORDER BY {order}"
        if kind == "group":
            counts = f"SELECT {key} AS k, COUNT(*) AS n FROM {source.text} GROUP BY {key} ORDER BY COUNT(*) DESC"
            return f"{counts}{', k' if ties else ''} LIMIT {limit}"
        function = rng.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        partition = rng.choice(("", f"PARTITION BY {key} ", f"PARTITION BY {rng.choice(source.columns)} "))
        call = f"{function}() OVER ({partition}ORDER BY {order if function == 'ROW_NUMBER' else short})"
        if kind == "qualify":
            return f"SELECT {key} AS k, {value} AS n FROM {source.text} QUALIFY {call} <= {limit}"
        if kind == "rank":
            return f"SELECT {key} AS k, {call} AS n FROM {source.text}"
        alias = self._name_alias()
        inner = f"SELECT {key} AS p, {value} AS q, {call} AS rn FROM {source.text}"
        shown = rng.choice(("p AS k, q AS n", "q AS k, p AS n", "p AS k, rn AS n"))
        test = rng.choice((f"rn <= {limit}", f"rn < {limit + 1}", f"{limit} >= rn", f"rn = {limit}"))
        return f"SELECT {shown} FROM ({inner}) AS {alias} WHERE {test}"

    def _write_item(self, depth: int) -> RelationText:
        if self.rng.random() < 0.6:
            return self._write_windowed(self._name_alias())
        return super()._write_item(depth)

    def _write_windowed(self, alias: str) -> RelationText:
        stream = self.rng.choice(self.streams)
        names = [name for name in stream.schema.names if name in _NUMBERS]
        return self._add_leaf(RelationText(f"{self._write_call(stream)} AS {alias}", self._qualify(alias, names)))

    def _write_call(self, stream: Stream) -> str:
        rng = self.rng
        slide, more = self._write_amount(rng.randint(1, 4)), rng.randint(0, 5)
        kind = rng.choice(("TUMBLE", "TUMBLE", "HOP", "HOP", "SESSION"))
        if kind == "TUMBLE":
            arguments, by = [self._write_amount(rng.randint(1, 8))], ""
        elif kind == "HOP":
            arguments, by = [slide, self._write_amount(int(slide.split()[0]) + more)], ""
        else:
            by = rng.choice(("", " PARTITION BY x", " PARTITION BY x, y"))
            arguments = [slide]
        inside = ", ".join([f"{stream.name}{by}", stream.time, *arguments])
        if rng.random() < 0.3:
            inside = ", ".join([f"TABLE {stream.name}{by}", f"DESCRIPTOR({stream.time})", *arguments])
            return f"TABLE({kind}({inside}))"
        return f"{kind}({inside})"

    def _write_amount(self, number: int) -> str:
        return f"{number} {self.unit}" if self.unit else f"{number}"

    def write_closing(self) -> str:
        """A query for EMIT ON WINDOW CLOSE: an aggregate of each window, or rows of streams."""
        if self.rng.random() < 0.8:
            return self._write_window_group(("JOIN",))
        item = self._write_windowed(self._name_alias())
        key, value = self._draw_columns(item)
        return f"SELECT {key} AS k, {value} AS n FROM {item.text} WHERE {key} > 0"

    def _write_window_group(self, kinds: Sequence[str] = ("JOIN", "LEFT JOIN", "FULL JOIN")) -> str:
        """An aggregate of each window, over one windowed stream or a join of two in the same window."""
        rng, alias = self.rng, self._name_alias()
        item = self._write_windowed(alias)
        if rng.random() < 0.4:
            other = self._name_alias()
            right = self._add_leaf(replace_alias(item, alias, other))
            kind = rng.choice(kinds)
            text = f"{item.text} {kind} {right.text} ON {alias}.window_start = {other}.window_start"
            text += f" AND {alias}.window_end = {other}.window_end AND {alias}.x = {other}.x"
            item = RelationText(text, (*item.columns, *right.columns))
        value, key = rng.choice(item.columns), rng.choice(item.columns)
        keys = [f"{alias}.window_start", f"{alias}.window_end", *([key] if rng.random() < 0.5 else [])]
        condition = self._write_condition(item)
        shown = rng.choice((
            "COUNT(*)", f"SUM({value})", f"MAX({value})", f"COUNT(*) FILTER (WHERE {condition})",
            f"SUM({value}) FILTER (WHERE {condition})",
        ))  # fmt: skip
        grouped = key if len(keys) == 3 else "COUNT(*)"
        return f"SELECT {grouped} AS k, {shown} AS n FROM {item.text} GROUP BY {', '.join(keys)}"


def replace_alias(item: RelationText, alias: str, other: str) -> RelationText:
    """The same FROM item under another alias."""
    columns = tuple(f"{other}.{column.partition('.')[2]}" for column in item.columns)
    return RelationText(f"{item.text.removesuffix(f' AS {alias}')} AS {other}", columns)
