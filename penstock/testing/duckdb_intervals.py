"""SQL over tables of rows with validity intervals: groups, counted values, and the rows that a query emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.cql import Emit
from penstock.expr import Aggregate, Column
from penstock.testing.duckdb_sql import to_duckdb
from penstock.testing.duckdb_transforms import BORN, DIES, MAX_TIME, MIN_TIME


def format_slide(instant: str, slides: set[int]) -> str:
    """The first multiple of the slide that is not before an instant."""
    if not slides:
        return instant
    (slide,) = slides
    moved = f"{instant} + ({slide} - {instant} % {slide}) % {slide}"
    return f"CASE WHEN abs({instant}) = {MAX_TIME} THEN {instant} ELSE {moved} END"


def format_over_group(expr: Any, keys: Sequence[Any], shown: Any) -> str:
    """An expression over a group; an expression that is a key is replaced as a whole."""
    if expr in keys:
        return str(shown(expr))
    if isinstance(expr, Column | Aggregate) or not getattr(expr, "args", ()):
        return to_duckdb(expr, shown)
    names = {f"{place}": format_over_group(arg, keys, shown) for place, arg in enumerate(expr.args)}
    held = tuple(Column("", name, arg.type) for name, arg in zip(names, expr.args, strict=True))
    return to_duckdb(replace(expr, args=held), lambda column: names[column.name])  # type: ignore[union-attr]


def format_group(rows: str, outputs: Sequence[str], having: str) -> str:
    """The answers of groups at their instants; equal answers of consecutive instants are merged."""
    columns = [f"c{place}" for place in range(len(outputs))]
    shown = ", ".join(f"{text} AS {name}" for text, name in zip(outputs, columns, strict=True))
    unchanged = [f"lag({c}) OVER w IS NOT DISTINCT FROM {c}" for c in columns]
    same = " AND ".join(["lag(until) OVER w IS NOT DISTINCT FROM instant", *unchanged])
    listed = ", ".join(columns)
    return f"""
        WITH instants AS (
            SELECT g, {BORN} AS instant FROM {rows} UNION SELECT g, {DIES} FROM {rows} WHERE {DIES} < {MAX_TIME}
        ), spans AS (
            SELECT g, instant, coalesce(lead(instant) OVER w, {MAX_TIME}) AS until
            FROM instants WINDOW w AS (PARTITION BY g ORDER BY instant)
        ), answers AS (
            SELECT s.g, s.instant, first(s.until) AS until, {shown}
            FROM spans AS s JOIN {rows} AS r ON r.g = s.g AND r.{BORN} <= s.instant AND s.instant < r.{DIES}
            GROUP BY s.g, s.instant HAVING {having}
        ), marked AS (
            SELECT *, CASE WHEN {same} THEN 0 ELSE 1 END AS fresh
            FROM answers WINDOW w AS (PARTITION BY g ORDER BY instant)
        ), runs AS (
            SELECT *, sum(fresh) OVER (PARTITION BY g ORDER BY instant) AS run FROM marked
        )
        SELECT {", ".join(f"first({c}) AS {c}" for c in columns)}, min(instant) AS {BORN}, max(until) AS {DIES}
        FROM runs GROUP BY g, run ORDER BY {BORN}, {listed}"""


def format_reports(rows: str, outputs: Sequence[str], having: str, slide: int) -> str:
    """The answers of groups at each multiple of the slide."""
    shown = ", ".join(f"{text} AS c{place}" for place, text in enumerate(outputs))
    return f"""
        WITH reports AS (SELECT DISTINCT g, unnest(range({BORN}, {DIES}, {slide})) AS instant FROM {rows})
        SELECT {shown}, instant AS {BORN}, instant + {slide} AS {DIES}
        FROM reports JOIN {rows} USING (g) WHERE {BORN} <= instant AND instant < {DIES}
        GROUP BY g, instant HAVING {having}"""


def format_row_reports(rows: str, outputs: Sequence[str], having: str, times: str) -> str:
    """The answers of groups at given instants, each until the next."""
    shown = ", ".join(f"{text} AS c{place}" for place, text in enumerate(outputs))
    return f"""
        SELECT {shown}, instant AS {BORN}, until AS {DIES}
        FROM {times} JOIN {rows} ON {BORN} <= instant AND instant < {DIES}
        GROUP BY g, instant, until HAVING {having}"""


COPIES = {
    "union": "CASE WHEN here + gone > 0 THEN 1 ELSE 0 END",
    "except": "CASE WHEN here > 0 AND gone = 0 THEN 1 ELSE 0 END",
    "except all": "greatest(here - gone, 0)",
    "intersect": "CASE WHEN here > 0 AND gone > 0 THEN 1 ELSE 0 END",
    "intersect all": "least(here, gone)",
}
"""How often a value is in the answer, if the left has it `here` times and the right `gone` times."""


def format_counted(left: str, right: str | None, columns: Sequence[str], copies: str = COPIES["union"]) -> str:
    """Each value with its copies numbered, while there are so many; DISTINCT has no right."""
    listed = ", ".join(columns)
    sides = [(left, 1, 0)] + ([(right, 0, 1)] if right is not None else [])
    events = " UNION ALL ".join(
        f"SELECT {listed}, {BORN} AS instant, {one} AS l, {other} AS r FROM {side} "
        f"UNION ALL SELECT {listed}, {DIES}, {-one}, {-other} FROM {side} WHERE {DIES} < {MAX_TIME}"
        for side, one, other in sides
    )
    return f"""
        WITH changes AS (
            SELECT {listed}, instant, sum(l) AS l, sum(r) AS r FROM ({events}) GROUP BY {listed}, instant
        ), states AS (
            SELECT {listed}, instant, coalesce(lead(instant) OVER w, {MAX_TIME}) AS until,
                sum(l) OVER w AS here, sum(r) OVER w AS gone
            FROM changes WINDOW w AS (PARTITION BY {listed} ORDER BY instant)
        ), copies AS (
            SELECT *, unnest(range(CAST({copies} AS BIGINT))) AS copy FROM states
        ), marked AS (
            SELECT *, CASE WHEN lag(until) OVER w IS NOT DISTINCT FROM instant THEN 0 ELSE 1 END AS fresh
            FROM copies WINDOW w AS (PARTITION BY {listed}, copy ORDER BY instant)
        ), runs AS (
            SELECT *, sum(fresh) OVER (PARTITION BY {listed}, copy ORDER BY instant) AS run FROM marked
        )
        SELECT {listed}, min(instant) AS {BORN}, max(until) AS {DIES} FROM runs GROUP BY {listed}, copy, run"""


def format_emit(rows: str, columns: Sequence[str], emit: Emit) -> str:
    listed = ", ".join(columns)
    if emit == "istream":
        return f"SELECT {listed}, {BORN} AS instant FROM {rows} WHERE {BORN} > {MIN_TIME}"
    if emit == "changes":
        return (
            f"SELECT {listed}, '+' AS op, {BORN} AS instant FROM {rows} WHERE {BORN} > {MIN_TIME} UNION ALL "
            f"SELECT {listed}, '-', {DIES} FROM {rows} WHERE {DIES} < {MAX_TIME}"
        )
    if emit == "close":
        return f"SELECT {', '.join(columns[:-1])}, {DIES} AS instant FROM {rows} WHERE {columns[-1]} = {DIES}"
    if emit == "dstream":
        return f"SELECT {listed}, {DIES} AS instant FROM {rows} WHERE {DIES} < {MAX_TIME}"
    return f"""
        WITH instants AS (
            SELECT {BORN} AS instant FROM {rows} WHERE {BORN} > {MIN_TIME}
            UNION SELECT {DIES} FROM {rows} WHERE {DIES} < {MAX_TIME}
        )
        SELECT {listed}, instant FROM instants JOIN {rows} ON {BORN} <= instant AND instant < {DIES}"""
