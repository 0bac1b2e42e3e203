"""Random cases with operators above joins: groups, DISTINCT, set operations, SLIDE and sequences."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Case
from penstock.testing.combinations import TooManyRows
from penstock.testing.generate import random_case
from penstock.testing.oracle import expected
from penstock.testing.query_text import random_plan, random_window

FEATURES = ("group", "group", "global", "distinct", "union", "except", "sequence", "sequence", "slide", "nested")
EMITS = ("", "", "ISTREAM", "DSTREAM", "RSTREAM")
ATTEMPTS = 12


def random_operators_case(
    seed: int,
    *,
    feature: str | None = None,
    emit: str | None = None,
    rows: int = 25,
    limit: int = 2000,
    calls: Sequence[str] = (),
    aggregates: Mapping[str, type] | None = None,
    **knobs: Any,
) -> Case:
    """A case whose query has this feature (one of FEATURES; by default the seed chooses).

    `calls` are additional aggregate calls, with {} for an alias; `aggregates` are the classes that they name. Other
    knobs are those of `random_case`.
    """
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"penstock operators {seed}.{attempt}")
        base = random_case(seed * ATTEMPTS + attempt, sources=rng.randint(1, 3), rows=rows, tables=False, limit=None,
                           **knobs)  # fmt: skip
        writer = _QueryWriter(rng, base.declarations, tuple(calls))
        text = writer.write_body(feature or rng.choice(FEATURES))
        how = rng.choice(EMITS) if emit is None else emit
        query = f"{how} ({text})" if how else text
        case = replace(base, seed=seed, query=query, plan="; ".join(writer.plans))
        try:
            answer = expected(query, case.accepted, {}, case.times, limit=limit, aggregates=aggregates)
        except TooManyRows:
            rows = max(3, rows * 2 // 3)
            continue
        if answer.num_rows or attempt > ATTEMPTS - 3:
            vars(case)["expected"] = answer  # fills the cached property
            return case
    raise ValueError(f"seed {seed}: no case within {limit} rows after {ATTEMPTS} attempts")


def random_operators_text(rng: random.Random, streams: Sequence[Stream], feature: str | None = None) -> str:
    """The text of a query over the streams of a generated case."""
    text = _QueryWriter(rng, streams, ()).write_body(feature or rng.choice(FEATURES))
    how = rng.choice(EMITS)
    return f"{how} ({text})" if how else text


@dataclass(frozen=True)
class _FromText:
    """One FROM item."""

    alias: str
    text: str


class _QueryWriter:
    """Writes query texts over some streams, and adds a plan for every join to `plans`."""

    def __init__(self, rng: random.Random, streams: Sequence[Stream], calls: Sequence[str]) -> None:
        self.rng, self.streams, self.calls = rng, streams, calls
        self.unit = "SECONDS" if pt.is_timestamp(streams[0].time_type) else None
        self.plans: list[str] = []

    def write_body(self, feature: str) -> str:
        rng = self.rng
        if feature in ("union", "except", "nested"):
            columns = rng.choice((["x"], ["x", "s"], ["y"], ["v"], ["x", "b"]))
            depth = 2 if feature == "nested" else 1
            return self._write_combined(columns, depth, {"union": "UNION ALL", "except": "EXCEPT"}.get(feature))
        if feature == "sequence":
            return self._write_sequence()
        if feature == "distinct":
            return self._write_plain(rng.choice((["x"], ["x", "s"], ["v"], ["d", "b"], ["dt"])), distinct=True)
        slides = feature == "slide"
        keys: list[str] | None = [] if feature == "global" or (slides and rng.random() < 0.3) else None
        return self._write_grouped(slide=slides, keys=keys)

    def _write_combined(self, columns: list[str], depth: int, operator: str | None) -> str:
        if not depth:
            kind = self.rng.choice(("plain", "plain", "distinct", "grouped", "sequence"))
            if kind == "grouped":
                return self._write_grouped_as(columns)
            if kind == "sequence" and self.rng.random() < 0.5:
                return self._write_sequence(columns)
            return self._write_plain(columns, distinct=kind == "distinct")
        left, right = (self._write_combined(columns, depth - self.rng.choice((1, depth)), None) for _ in range(2))
        return f"({left}) {operator or self.rng.choice(('UNION ALL', 'EXCEPT'))} ({right})"

    # ── single SELECTs ───────────────────────────────────────────────────────────────────────────────────────────

    def _draw_items(self, most: int, kinds: Sequence[str], least: int = 1) -> list[_FromText]:
        rng = self.rng
        found = []
        for alias in ("P", "Q", "R")[: rng.randint(least, most)]:
            stream = rng.choice(self.streams)
            window = random_window(rng, rng.choice(kinds), rng.choice((3, 10)), self.unit)
            found.append(_FromText(alias, f"{stream.name}{window} AS {alias}"))
        return found

    def _write_from(self, items: list[_FromText]) -> str:
        """FROM and WHERE of a join."""
        rng = self.rng
        names = [item.alias for item in items]
        self.plans.append(random_plan(rng, names))
        terms = [f"{a}.{c} = {b}.{c}" for a, b in itertools.pairwise(names) if (c := rng.choice("xysb"))]
        if rng.random() < 0.3:
            terms.append(f"{rng.choice(names)}.x {rng.choice(('> 0', '<> 1', 'IS NOT NULL', '< 3'))}")
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        return f"FROM {', '.join(item.text for item in items)}{where}"

    def _write_plain(self, columns: list[str], *, distinct: bool) -> str:
        items = self._draw_items(2, ("range", "range", "rows", "partition", "now", "unbounded"))
        shown = ", ".join(f"{self.rng.choice(items).alias}.{name} AS c{i}" for i, name in enumerate(columns))
        return f"SELECT {'DISTINCT ' if distinct else ''}{shown} {self._write_from(items)}"

    def _write_grouped_as(self, columns: list[str]) -> str:
        """A GROUP BY with columns of the given types."""
        items = self._draw_items(1, ("range", "rows", "unbounded"))
        alias = items[0].alias
        shown = [f"{alias}.{name}" for name in columns]
        if columns[0] == "x":
            shown[0] = self.rng.choice(("COUNT(*)", f"SUM({alias}.y)", f"MAX({alias}.x)", shown[0]))
        keys = [text for text in shown if "(" not in text]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join(f'{text} AS c{i}' for i, text in enumerate(shown))} {self._write_from(items)}{by}"

    def _write_grouped(self, *, slide: bool, keys: list[str] | None) -> str:
        rng = self.rng
        items = self._draw_items(2, ("range", "range", "rows", "partition", "now", "unbounded", "none"))
        if slide:
            times = [rng.randint(1, 8) for _ in range(2)]
            unit = f" {self.unit}" if self.unit else ""
            stream = rng.choice(self.streams).name
            window = f"RANGE {times[0]}{unit} SLIDE {times[1]}{unit}"
            if rng.random() < 0.3:
                window = f"ROWS {times[0]} SLIDE {times[1]}"
            items[0] = _FromText("P", f"{stream} [{window}] AS P")
        names = [item.alias for item in items]
        if keys is None:
            keys = rng.sample([f"{a}.{c}" for a in names for c in ("x", "y", "s", "b", "v", "dt")], rng.randint(1, 2))
            if rng.random() < 0.1:
                keys.append(f"{names[0]}.y % 2")
        calls = [self._draw_call(names) for _ in range(rng.randint(0 if keys else 1, 3))]
        shown = [*(key for key in keys if rng.random() < 0.9), *calls] or keys
        text = f"SELECT {'DISTINCT ' if rng.random() < 0.1 else ''}"
        text += ", ".join(f"{each} AS c{i}" for i, each in enumerate(shown))
        text += f" {self._write_from(items)}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
        if rng.random() < 0.3 and (keys or calls):
            a = rng.choice(names)
            text += " HAVING " + rng.choice((
                "COUNT(*) > 1", f"MIN({a}.x) < 2", f"SUM({a}.v) > 1", f"COUNT(DISTINCT {a}.s) < 3", f"MAX({a}.b)",
            ))  # fmt: skip
        return text

    def _draw_call(self, names: Sequence[str]) -> str:
        rng = self.rng
        a, b = rng.choice(names), rng.choice(names)
        if self.calls and rng.random() < 0.6:
            return rng.choice(self.calls).replace("{}", a)
        numeric, any_ = rng.choice(("x", "y", "v", "v", "d")), rng.choice(("x", "y", "v", "s", "d", "dt", "b"))
        inside = "DISTINCT " if rng.random() < 0.25 else ""
        return rng.choice((
            "COUNT(*)",
            f"COUNT({inside}{a}.{any_})",
            f"SUM({inside}{a}.{numeric})",
            f"AVG({inside}{a}.{numeric})",
            f"MIN({inside}{a}.{any_})",
            f"MAX({inside}{a}.{any_})",
            f"SUM({a}.v * 0.1e0)",
            f"SUM({a}.v / 3e0 + {b}.x)",
            f"SUM({a}.x) + COUNT(*)",
            f"CASE WHEN COUNT(*) > 2 THEN MIN({a}.s) ELSE MAX({b}.s) END",
        ))  # fmt: skip

    def _write_sequence(self, columns: list[str] | None = None) -> str:
        rng = self.rng
        items = self._draw_items(3, ("range", "range", "none", "none", "unbounded", "now"), least=2)
        names = [item.alias for item in items]
        terms = []
        for place, name in enumerate(names[1:], 1):
            before = rng.choice(names[:place])
            if rng.random() < 0.6:
                column = rng.choice(("x", "x", "y", "s", "b"))
                terms.append(f"{before}.{column} = {name}.{column}")
            if rng.random() < 0.3:
                terms.append(rng.choice((
                    f"{before}.x <= {name}.y", f"{name}.v >= {before}.v", f"{names[0]}.y + {before}.y >= {name}.y",
                )))  # fmt: skip
        if rng.random() < 0.3:
            terms.append(f"{rng.choice(names)}.{rng.choice(('x > 0', 'b', 'y <> 1'))}")
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        mode = rng.choice(("RECENT", "CHRONICLE"))
        source = f"FROM SEQ({', '.join(item.text for item in items)}) MODE {mode}{where}"
        if columns is not None:
            return f"SELECT {', '.join(f'{rng.choice(names)}.{c} AS c{i}' for i, c in enumerate(columns))} {source}"
        kind = rng.random()
        if kind < 0.15:
            return f"SELECT {names[0]}.x AS c0, COUNT(*) AS c1, MAX({names[-1]}.v) AS c2 {source} GROUP BY {names[0]}.x"
        if kind < 0.25:
            return f"SELECT DISTINCT {names[0]}.x AS c0, {names[-1]}.y AS c1 {source}"
        shown = [f"{name}.id" for name in names] + [f"{rng.choice(names)}.{rng.choice('xsv')}"]
        return f"SELECT {', '.join(f'{each} AS c{i}' for i, each in enumerate(shown))} {source}"
