"""EMIT ON WINDOW CLOSE over outer joins in DuckDB: the SQL join of all tuples, where partners share an instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.cql import OuterJoin, Select, Source, Subquery
from penstock.expr import Expr, find_aliases
from penstock.testing.duckdb_sql import format_duckdb_type, quote, to_duckdb
from penstock.testing.duckdb_transforms import BORN, DIES, MAX_TIME

AT = '" at"'
"""The column with the instant at which a row is final."""


@dataclass(frozen=True)
class DuckDBFinalRows:
    """`store` makes a table of the rows of a query, `store_rows` one of the valid rows of a stream."""

    store: Callable[[str], str]
    store_rows: Callable[[Source], str]

    def format_answer(self, select: Select) -> str:
        """The rows c0, c1, ... of a SELECT, from the instant at which they are final."""
        rows = self.store(self._format_select(select))
        columns = ", ".join(f"c{place}" for place in range(len(select.items)))
        return f"SELECT {columns}, {AT} AS {BORN}, {MAX_TIME} AS {DIES} FROM {rows} WHERE {AT} < {MAX_TIME}"

    def _store_source(self, source: Source) -> str:
        query = source.relation
        if isinstance(query, Subquery) and isinstance(query.body, Select):
            rows = self.store(self._format_select(query.body))
        elif isinstance(query, Subquery) and isinstance(query.body, OuterJoin):
            rows = self.store(self._format_outer(query.body))
        else:
            rows = self.store(f"SELECT *, {BORN} AS {AT} FROM {self.store_rows(source)}")
            return self.store(f'SELECT *, row_number() OVER () AS " n" FROM {rows}')
        names = ", ".join(f"c{place} AS {quote(item.name)}" for place, item in enumerate(query.body.items))
        return self.store(f'SELECT {names}, {BORN}, {DIES}, {AT}, row_number() OVER () AS " n" FROM {rows}')

    def _format_select(self, select: Select) -> str:
        items = [f"{to_duckdb(item.expr)} AS c{place}" for place, item in enumerate(select.items)]
        aliases = [quote(source.alias) for source in select.sources]
        tables = [f"{self._store_source(source)} AS {quote(source.alias)}" for source in select.sources]
        tests = [*_format_overlaps(aliases), *map(to_duckdb, select.where)]
        return f"SELECT {', '.join([*items, *_format_times(aliases)])} FROM {', '.join(tables)} WHERE {_and(tests)}"

    def _format_outer(self, body: OuterJoin) -> str:
        sides = body.left, body.right
        tables = {side.alias: f"{self._store_source(side)} AS {quote(side.alias)}" for side in sides}
        aliases = [quote(side.alias) for side in sides]
        on = _and([*_format_overlaps(aliases), *map(to_duckdb, body.on)])
        parts = []
        if body.kind in ("left", "full"):
            items = [f"{to_duckdb(item.expr)} AS c{place}" for place, item in enumerate(body.items)]
            joined = f"{tables[body.left.alias]} JOIN {tables[body.right.alias]} ON {on}"
            parts.append(f"SELECT {', '.join([*items, *_format_times(aliases)])} FROM {joined}")
        for side, other in (sides, sides[::-1])[: 2 if body.kind == "full" else 1]:
            own = quote(side.alias)
            items = [
                (to_duckdb(item.expr) if find_aliases(item.expr) == {side.alias} else _format_null(item.expr))
                + f" AS c{place}"
                for place, item in enumerate(body.items)
            ]
            partners = f"FROM {tables[other.alias]} WHERE {on}"
            if body.kind == "semi":
                first = f"(SELECT min(greatest({own}.{BORN}, {quote(other.alias)}.{BORN})) {partners})"
                at, test = f"greatest({own}.{AT}, {first})", f"EXISTS (SELECT 1 {partners})"
            else:
                end = BORN if other.is_table else DIES
                at, test = f"greatest({own}.{AT}, {own}.{end})", f"NOT EXISTS (SELECT 1 {partners})"
            times = f"{own}.{BORN} AS {BORN}, {own}.{DIES} AS {DIES}, {at} AS {AT}"
            parts.append(f"SELECT {', '.join([*items, times])} FROM {tables[side.alias]} WHERE {test}")
        return " UNION ALL ".join(parts)


def _format_null(expr: Expr) -> str:
    return f"NULL::{format_duckdb_type(expr.type)}"


def _format_overlaps(aliases: Sequence[str]) -> list[str]:
    return [f"{one}.{BORN} < {other}.{DIES}" for one in aliases for other in aliases if one != other]


def _format_times(aliases: Sequence[str]) -> list[str]:
    def join(function: str, column: str) -> str:
        return f"{function}({', '.join(f'{alias}.{column}' for alias in aliases)}) AS {column}"

    return [join("greatest", BORN), join("least", DIES), join("greatest", AT)]


def _and(tests: Sequence[str]) -> str:
    return " AND ".join(tests) if tests else "TRUE"
