"""Random cases with relations: subqueries, WITH, and joins of all kinds, nested to any depth."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Case
from penstock.testing.fitting import find_fitting_case
from penstock.testing.generate import random_case
from penstock.testing.query_text import random_window

JOINS = ("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "CROSS JOIN")
SET_OPERATIONS = ("UNION ALL", "EXCEPT", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT ALL")
NUMBERS = ("x", "y", "z", "id")
"""The columns of every generated stream that are integers."""


def random_relations_case(
    seed: int, *, rows: int = 14, limit: int = 1500, depth: int = 2, plain_sql: bool = False, **knobs: Any
) -> Case:
    """A case whose query reads relations, nested up to `depth`; other knobs are those of `random_case`.

    `plain_sql`: SQL has the same answer at every instant, also where an aggregate has no row below it.
    """
    return draw_fitting_case(
        seed,
        "relations",
        lambda rng, streams: random_relations_text(rng, streams, depth, plain_sql=plain_sql),
        rows=rows,
        limit=limit,
        **knobs,
    )


def draw_fitting_case(
    seed: int,
    kind: str,
    write: Callable[[random.Random, Sequence[Stream]], str],
    *,
    rows: int,
    limit: int,
    **knobs: Any,
) -> Case:
    """A case with a query that `write` draws over its streams, whose answer has at most `limit` rows, and some.

    `kind` makes the draws of different generators independent.
    """

    def draw(rng: random.Random, number: int, rows: int) -> Case:
        base = random_case(number, sources=rng.randint(1, 3), rows=rows, tables=False, limit=None, **knobs)
        return replace(base, query=write(rng, base.declarations), plan="")

    return find_fitting_case(seed, kind, draw, rows=rows, limit=limit)


@dataclass(frozen=True)
class ViewsCase:
    """A case whose query reads views. The query of `case` has them in WITH, so that the oracle can answer it."""

    case: Case
    views: Mapping[str, str]
    reader: str
    """The query over the views."""


def random_views_case(seed: int, *, rows: int = 14, limit: int = 1500, **knobs: Any) -> ViewsCase:
    """A case with two views, of which the second may read the first, and a query that reads both."""
    views: dict[str, str] = {}
    reader = ""

    def write(rng: random.Random, streams: Sequence[Stream]) -> str:
        nonlocal reader
        writer = RelationWriter(rng, streams)
        views.update(v1=writer.write_query(1), v2=writer.write_over(("v1",), 1))
        body = writer.write_over(("v1", "v2"), 1)
        how = rng.choice(("", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM"))
        listing = ", ".join(f"{name} AS ({text})" for name, text in views.items())
        reader = write_emit(how, body)
        return write_emit(how, f"WITH {listing} {body}")

    case = draw_fitting_case(seed, "views", write, rows=rows, limit=limit, **knobs)
    return ViewsCase(case, views, reader)


def write_emit(how: str, text: str) -> str:
    """The query with DSTREAM or RSTREAM around it, or with what follows it."""
    return f"{how} ({text})" if how.endswith("STREAM") else text + how


def random_relations_text(
    rng: random.Random, streams: Sequence[Stream], depth: int = 2, *, plain_sql: bool = False
) -> str:
    """The text of a query over the streams of a generated case."""
    writer = RelationWriter(rng, streams, plain_sql=plain_sql)
    text = writer.write_query(depth)
    how = rng.choice(("", " EMIT CHANGES", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM"))
    return write_emit(how, text)


@dataclass(frozen=True)
class RelationText:
    """A FROM item as text, and the integer columns that can be read of it."""

    text: str
    columns: tuple[str, ...]


class RelationWriter:
    """Writes query texts. Every query has the integer columns k, n and, in some forms, m."""

    def __init__(self, rng: random.Random, streams: Sequence[Stream], *, plain_sql: bool = False) -> None:
        self.rng, self.streams = rng, streams
        self.plain_sql = plain_sql
        """Whether an aggregate without GROUP BY is written so that SQL gives no row for it if there is no row below."""
        self.unit = "SECONDS" if pt.is_timestamp(streams[0].time_type) else None
        self.leaves: list[str] = []
        """The FROM items that read streams, with their aliases."""
        self._aliases = 0

    def write_query(self, depth: int) -> str:
        """A query, with a query of WITH before it or not."""
        rng = self.rng
        if depth and rng.random() < 0.2:
            name = self._name_alias()
            shared = RelationText(f"{name}", ("k", "n"))
            inner = self._write_body(depth - 1)
            left, right = self._name_alias(), self._name_alias()
            items = [RelationText(f"{shared.text} AS {left}", self._qualify(left, shared.columns)),
                     RelationText(f"{shared.text} AS {right}", self._qualify(right, shared.columns))]  # fmt: skip
            return f"WITH {name} AS ({inner}) {self._write_select(self._join(items))}"
        return self._write_body(depth)

    def write_over(self, names: Sequence[str], depth: int) -> str:
        """A query that reads relations with the columns k and n, and other items."""
        items = []
        for name in self.rng.sample(names, len(names)):
            alias = self._name_alias()
            items.append(RelationText(f"{name} AS {alias}", self._qualify(alias, ("k", "n"))))
        if self.rng.random() < 0.5:
            items.append(self._write_item(depth))
        source = self._join(items)
        return self._write_group(source) if self.rng.random() < 0.3 else self._write_select(source)

    def _write_body(self, depth: int) -> str:
        rng = self.rng
        kind = rng.choice(("select", "select", "select", "group", "distinct", "set", "set"))
        if kind == "set":
            left, right = (self._write_select(self._write_from(depth)) for _ in range(2))
            return f"{left} {rng.choice(SET_OPERATIONS)} {right}"
        source = self._write_from(depth)
        if kind == "group":
            return self._write_group(source)
        return self._write_select(source, "DISTINCT " if kind == "distinct" else "")

    def _write_select(self, source: RelationText, words: str = "") -> str:
        one, other = self._draw_columns(source)
        if self.rng.random() < 0.08:
            other = self._write_scalar(source)
        return f"SELECT {words}{one} AS k, {other} AS n FROM {source.text}{self._write_where(source)}"

    def _write_where(self, source: RelationText) -> str:
        rng = self.rng
        terms = [self._write_condition(source)] if rng.random() < 0.4 else []
        if rng.random() < 0.25:
            terms.append(self._write_predicate(source))
        if rng.random() < 0.05:
            terms.append(f"{rng.choice(source.columns)} {rng.choice(('=', '<', '>='))} {self._write_scalar(source)}")
        return f" WHERE {' AND '.join(terms)}" if terms else ""

    # ── subqueries in expressions ────────────────────────────────────────────────────────────────────────────────

    def _write_predicate(self, source: RelationText) -> str:
        """IN or EXISTS, negated or not, correlated or not."""
        rng = self.rng
        inner = self._write_item(1) if rng.random() < 0.7 else self._join([self._write_item(0) for _ in range(2)])
        terms = [self._write_condition(inner)] if rng.random() < 0.3 else []
        negated = rng.choice(("", "NOT "))
        if rng.random() < 0.5:
            operator = rng.choice(("=", "=", "<"))
            terms.append(f"{rng.choice(inner.columns)} {operator} {rng.choice(source.columns)}")
            if random.Random(f"far {terms[-1]}").random() < 0.2:
                terms.append(self._write_far_predicate(source, inner))
            return f"{negated}EXISTS (SELECT * FROM {inner.text} WHERE {' AND '.join(terms)})"
        if rng.random() < 0.4:
            terms.append(f"{rng.choice(inner.columns)} = {rng.choice(source.columns)}")
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        value = rng.choice(inner.columns)
        group = f" GROUP BY {value} HAVING COUNT(*) > 1" if rng.random() < 0.2 else ""
        return f"{rng.choice(source.columns)} {negated}IN (SELECT {value} FROM {inner.text}{where}{group})"

    def _write_far_predicate(self, source: RelationText, inner: RelationText) -> str:
        """EXISTS or IN below EXISTS, with columns of both queries around it."""
        rng, below = self.rng, self._write_item(0)
        near = f"{rng.choice(below.columns)} = {rng.choice(inner.columns)}"
        far = f"{rng.choice(below.columns)} {rng.choice(('=', '<', '<>'))} {rng.choice(source.columns)}"
        negated = rng.choice(("", "NOT ", "NOT "))
        if rng.random() < 0.6:
            return f"{negated}EXISTS (SELECT * FROM {below.text} WHERE {near} AND {far})"
        value = rng.choice(below.columns)
        return f"{rng.choice(inner.columns)} {negated}IN (SELECT {value} FROM {below.text} WHERE {far})"

    def _write_scalar(self, source: RelationText) -> str:
        rng, inner = self.rng, self._write_item(1)
        value = rng.choice(inner.columns)
        call = rng.choice(("COUNT(*)", f"MAX({value})", f"SUM({value})", f"COUNT({value}) + 1"))
        where = f" WHERE {rng.choice(inner.columns)} = {rng.choice(source.columns)}" if rng.random() < 0.6 else ""
        return f"(SELECT {call} FROM {inner.text}{where})"

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_group(self, source: RelationText) -> str:
        key, value = self._draw_columns(source)
        call = self.rng.choice(("COUNT(*)", f"COUNT({value})", f"MAX({value})", f"MIN({value})", f"SUM({value})"))
        having = self.rng.choice(("", "", " HAVING COUNT(*) > 1"))
        if self.rng.random() < 0.08:
            inner = self._write_item(0)
            having = f" HAVING COUNT(*) >= (SELECT COUNT(*) FROM {inner.text})"
        if self.rng.random() < 0.2:
            present = " HAVING COUNT(*) > 0" if self.plain_sql else ""
            return f"SELECT {call} AS k, COUNT(*) AS n FROM {source.text}{present}"
        return f"SELECT {key} AS k, {call} AS n FROM {source.text} GROUP BY {key}{having}"

    # ── FROM ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_from(self, depth: int) -> RelationText:
        return self._join([self._write_item(depth) for _ in range(self.rng.choice((1, 2, 2, 3)))])

    def _write_item(self, depth: int) -> RelationText:
        rng, alias = self.rng, self._name_alias()
        if depth and rng.random() < 0.4:
            return RelationText(f"({self._write_body(depth - 1)}) AS {alias}", self._qualify(alias, ("k", "n")))
        stream = rng.choice(self.streams)
        kind = rng.choice(("range", "range", "range", "rows", "partition", "now", "unbounded"))
        window = random_window(rng, kind, rng.choice((3, 8)), self.unit)
        names = [name for name in stream.schema.names if name in NUMBERS]
        return self._add_leaf(RelationText(f"{stream.name}{window} AS {alias}", self._qualify(alias, names)))

    def _add_leaf(self, item: RelationText) -> RelationText:
        self.leaves.append(item.text)
        return item

    def _join(self, items: Sequence[RelationText]) -> RelationText:
        """The items, joined from left to right, with the last two in parentheses or not."""
        if len(items) == 1:
            return items[0]
        if len(items) > 2 and self.rng.random() < 0.3:
            last = self._join(items[-2:])
            return self._join([*items[:-2], RelationText(f"({last.text})", last.columns)])
        joined = items[0]
        for item in items[1:]:
            joined = self._join_pair(joined, item)
        return joined

    def _join_pair(self, left: RelationText, right: RelationText) -> RelationText:
        rng = self.rng
        kind = rng.choice(JOINS)
        both = RelationText(f"{left.text} {kind} {right.text}", (*left.columns, *right.columns))
        if kind == "CROSS JOIN":
            return both
        terms = [f"{rng.choice(left.columns)} {self._write_equality()} {rng.choice(right.columns)}"]
        if rng.random() < 0.3:
            terms.append(self._write_condition(both))
        shown = left.columns if kind in ("SEMI JOIN", "ANTI JOIN") else both.columns
        return RelationText(f"{both.text} ON {' AND '.join(terms)}", shown)

    def _write_equality(self) -> str:
        return self.rng.choice(("=", "=", "=", "<"))

    # ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────

    def _write_condition(self, source: RelationText) -> str:
        one, other = self._draw_columns(source)
        return self.rng.choice(
            (f"{one} > 0", f"{one} IS NULL", f"{one} IS NOT NULL", f"{one} <= {other}", f"{one} <> 2")
        )

    def _draw_columns(self, source: RelationText) -> tuple[str, str]:
        return self.rng.choice(source.columns), self.rng.choice(source.columns)

    def _name_alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def _qualify(self, alias: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{alias}.{name}" for name in names)
