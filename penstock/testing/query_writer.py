"""Query texts of the whole language: expressions, USING and NATURAL, sequences, slides and nested set operations.

`RelationWriter` writes joins, subqueries and groups, `WindowWriter` windows of time and tops; this adds the rest, and
everything composes: an item of FROM is a stream, a window, a view, a table or any query.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.cql import Stream
from penstock.testing.closing_cases import ClosingWriter
from penstock.testing.query_text import random_window
from penstock.testing.relation_cases import NUMBERS, SET_OPERATIONS, RelationText
from penstock.testing.window_cases import WindowWriter

EQUALITIES = ("=", "=", "=", "<", "IS NOT DISTINCT FROM", "<=>")
USING_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")


class QueryWriter(ClosingWriter):
    """Writes query texts of all forms. Every query has the integer columns k and n."""

    def __init__(self, rng: random.Random, streams: Sequence[Stream], *, plain_sql: bool = False) -> None:
        super().__init__(rng, streams, plain_sql=plain_sql)
        self._relations: dict[str, tuple[str, ...]] = {}
        self._tables: list[str] = []

    def add_relation(self, name: str, columns: Sequence[str]) -> None:
        """Let later items read a view or a table."""
        self._relations[name] = tuple(column for column in columns if column in (*NUMBERS, "k", "n"))

    def add_table(self, name: str) -> None:
        """Let later joins read a static table, on the side whose rows are not kept."""
        self._tables.append(name)

    # ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_body(self, depth: int) -> str:
        rng, drawn = self.rng, self.rng.random()
        if drawn < 0.08:
            return self._write_using(depth)
        if drawn < 0.14:
            return self._write_natural(depth)
        if drawn < 0.24:
            left, right = (self._write_body(max(depth - 1, 0)) for _ in range(2))
            return f"({left}) {rng.choice(SET_OPERATIONS)} ({right})"
        if drawn < 0.5:
            return super()._write_body(depth)
        source = self._write_from(depth)
        return self._write_group(source) if rng.random() < 0.35 else self._write_select(source)

    def _write_using(self, depth: int) -> str:
        """A join that merges a column."""
        left, right = self._write_item(depth), self._write_item(depth)
        shared = [name for name in _list_names(left) if name in _list_names(right)]
        if not shared:
            return self._write_select(self._join([left, right]))
        column, kind = self.rng.choice(shared), self.rng.choice(USING_JOINS)
        alone = [each for each in left.columns if not each.endswith(f".{column}")] or [column]
        other = self.rng.choice((column, self.rng.choice(alone)))
        return f"SELECT {column} AS k, {other} AS n FROM {left.text} {kind} {right.text} USING ({column})"

    def _write_natural(self, depth: int) -> str:
        left, right = (f"({self._write_body(max(depth - 1, 0))}) AS {self._name_alias()}" for _ in range(2))
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        return f"SELECT k, n FROM {left} NATURAL {kind} {right}"

    def _write_group(self, source: RelationText) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return super()._write_group(source)
        key, value = self._draw_columns(source)
        condition = self._write_condition(source)
        call = rng.choice((
            f"COUNT(DISTINCT {value})", f"SUM(DISTINCT {value})", f"COUNT(*) FILTER (WHERE {condition})",
            f"MAX({value}) FILTER (WHERE {condition})", f"MIN({self._write_expression(source)})",
            f"CASE WHEN COUNT(*) > 1 THEN MIN({value}) ELSE MAX({key}) END", f"COALESCE(MAX({value}), -1)",
            f"COUNT(DISTINCT {value}) FILTER (WHERE {condition})",
            f"PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY {value})",
        ))  # fmt: skip
        having = rng.choice(("", "", f" HAVING MAX({value}) > 0", f" HAVING COUNT(DISTINCT {value}) < 3"))
        where = self._write_where(source)
        if rng.random() < 0.3:
            key = self._write_expression(source)
            call = call if "CASE" not in call else "COUNT(*)"
        if rng.random() < 0.15:  # SQL has a total of no rows, which a continuous query does not report
            sets = rng.choice((f"ROLLUP({key})", f"GROUPING SETS (({key}), ())", f"CUBE({key}), {key}"))
            shown = rng.choice((key, f"GROUPING({key})"))
            shown = key if key.isdigit() else shown  # in GROUP BY a number is a position
            total = f"SELECT {shown} AS k, {call} AS n FROM {source.text}{where} GROUP BY {sets}"
            return f"{total} HAVING COUNT(*) > 0"
        return f"SELECT {key} AS k, {call} AS n FROM {source.text}{where} GROUP BY {key}{having}"

    def _write_select(self, source: RelationText, words: str = "") -> str:
        if self.rng.random() < 0.6:
            return super()._write_select(source, words)
        one, other = self._write_expression(source), self._write_expression(source)
        if self.rng.random() < 0.15:
            test = self.rng.choice(("{}", "({}) IS NULL", "NOT ({})")).format(self._write_predicate(source))
            other = f"CASE WHEN {test} THEN {one} ELSE {other} END"
        return f"SELECT {words}{one} AS k, {other} AS n FROM {source.text}{self._write_where(source)}"

    def _write_where(self, source: RelationText) -> str:
        """Conditions, and subqueries below OR and NOT."""
        where = super()._write_where(source)
        if self.rng.random() > 0.12:
            return where
        either = f"{self._write_condition(source)} OR {self._write_predicate(source)}"
        term = self.rng.choice(("({})", "({})", "NOT ({})", "({}) IS NULL")).format(either)
        return f"{where} AND {term}" if where else f" WHERE {term}"

    # ── FROM ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_from(self, depth: int) -> RelationText:
        rng, source = self.rng, super()._write_from(depth)
        if not self._tables or rng.random() < 0.7:
            return source
        kind, alias = rng.choice(("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN")), self._name_alias()
        columns = self._qualify(alias, NUMBERS)
        term = f"{rng.choice(source.columns)} {self._write_equality()} {rng.choice(columns)}"
        text = f"{source.text} {kind} {rng.choice(self._tables)} AS {alias} ON {term}"
        return RelationText(text, source.columns if kind[0] in "SA" else (*source.columns, *columns))

    def _write_item(self, depth: int) -> RelationText:
        rng = self.rng
        if self._relations and rng.random() < 0.35:
            name, alias = rng.choice(list(self._relations)), self._name_alias()
            return RelationText(f"{name} AS {alias}", self._qualify(alias, self._relations[name]))
        drawn = rng.random()
        if drawn < 0.04:
            return self._write_leaf(self._write_sequence())
        if drawn < 0.08:
            return self._write_leaf(self._write_slide())
        if drawn < 0.12:
            return self._write_leaf(self._write_frame())
        return super()._write_item(depth) if drawn < 0.5 else super(WindowWriter, self)._write_item(depth)

    def _write_leaf(self, text: str) -> RelationText:
        """A query that SQL cannot express, as a FROM item."""
        alias = self._name_alias()
        return self._add_leaf(RelationText(f"({text}) AS {alias}", self._qualify(alias, ("k", "n"))))

    def _write_sequence(self) -> str:
        rng, streams = self.rng, [self.rng.choice(self.streams) for _ in range(2)]
        windows = [random_window(rng, rng.choice(("range", "none")), 8, self.unit) for _ in range(2)]
        items = ", ".join(f"{s.name}{w} AS {a}" for s, w, a in zip(streams, windows, "pq", strict=True))
        where = rng.choice(("", " WHERE p.x = q.x", " WHERE p.y <= q.y"))
        return f"SELECT p.id AS k, q.id AS n FROM SEQ({items}) MODE {rng.choice(('RECENT', 'CHRONICLE'))}{where}"

    def _write_slide(self) -> str:
        rng, stream = self.rng, self.rng.choice(self.streams)
        window = f"RANGE {self._write_amount(rng.randint(1, 8))} SLIDE {self._write_amount(rng.randint(1, 5))}"
        column = rng.choice(("x", "y"))
        call = rng.choice(("COUNT(*)", "MAX(y)", "SUM(y)"))
        return f"SELECT {column} AS k, {call} AS n FROM {stream.name} [{window}] GROUP BY {column}"

    def _write_frame(self) -> str:
        """A function over the rows before each row. Its aggregates do not depend on the order of rows of one time."""
        rng, stream = self.rng, self.rng.choice(self.streams)
        call = rng.choice(("COUNT(*)", "MAX(y)", "SUM(y)", "COUNT(DISTINCT x)"))
        by = rng.choice(("", "PARTITION BY x ", "PARTITION BY y "))
        start = rng.choice((f"{self._write_interval(rng.randint(1, 6))} PRECEDING", "UNBOUNDED PRECEDING"))
        frame = f"RANGE BETWEEN {start} AND CURRENT ROW"
        return f"SELECT x AS k, {call} OVER ({by}ORDER BY {stream.time} {frame}) AS n FROM {stream.name}"

    def _write_interval(self, number: int) -> str:
        return f"INTERVAL '{number}' {self.unit}" if self.unit else f"{number}"

    def _write_equality(self) -> str:
        return self.rng.choice(EQUALITIES)

    # ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────

    def _write_expression(self, source: RelationText) -> str:
        """An integer of one row."""
        one, other = self._draw_columns(source)
        return self.rng.choice((
            one, other, f"COALESCE({one}, {other})", f"NULLIF({one}, {other})", f"GREATEST({one}, {other})",
            f"LEAST({one}, {other}, 2)", f"ABS({one})", f"{one} % 3", f"MOD({one}, 2)",
            f"CASE WHEN {self._write_condition(source)} THEN {one} ELSE {other} END", f"IF({one} > 1, {one}, {other})",
            f"LENGTH(CAST({one} AS VARCHAR))", f"IFNULL({one}, 0)", "1",
        ))  # fmt: skip

    def _write_condition(self, source: RelationText) -> str:
        one, other = self._draw_columns(source)
        if self.rng.random() < 0.5:
            return super()._write_condition(source)
        return self.rng.choice((
            f"({one} = {other} OR {other} IS NULL)", f"NOT ({one} > {other})", f"{one} BETWEEN 0 AND 2",
            f"{one} IN (0, 1, 3)", f"{one} NOT IN (1, {other})", f"{one} IS DISTINCT FROM {other}",
            f"({one} > 1) = ({other} > 1)", f"CASE WHEN {one} > 0 THEN {other} > 0 ELSE {other} < 2 END",
        ))  # fmt: skip


def _list_names(item: RelationText) -> list[str]:
    return [column.rpartition(".")[2] for column in item.columns]
