"""Random query texts over the generators' streams."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

SHAPES = ("chain", "star", "clique", "cycle", "shared", "mixed", "theta", "cross")
WINDOWS = ("range", "rows", "partition", "now", "unbounded", "none")
KEYS = ("x", "y", "z", "v", "s", "d", "dt", "b")  # the columns of every generated stream and table, besides its id
UNITS = {"SECONDS": 1_000_000, "MINUTES": 60_000_000, "MILLISECONDS": 1_000}


@dataclass(frozen=True)
class FromItem:
    """One FROM item as text: its alias, whether the text has the alias, and its window."""

    alias: str
    relation: str
    time: str | None  # the time column; None for a static table
    window: str = ""

    @property
    def text(self) -> str:
        alias = "" if self.alias == self.relation else f" AS {self.alias}"
        return f"{self.relation}{self.window}{alias}"


@dataclass(frozen=True)
class Predicate:
    """A conjunct as text and the aliases it reads."""

    text: str
    aliases: frozenset[str]


def random_plan(rng: random.Random, aliases: Sequence[str]) -> str:
    """Any binary tree over the aliases, in any order.

    >>> random_plan(random.Random(3), ["A", "B", "C"])
    '((A C) B)'
    """
    parts = list(aliases)
    while len(parts) > 1:
        a, b = rng.sample(range(len(parts)), 2)
        joined = f"({parts[a]} {parts[b]})"
        parts = [part for i, part in enumerate(parts) if i not in (a, b)] + [joined]
    return parts[0]


def random_window(rng: random.Random, kind: str, span: int, unit: str | None) -> str:
    """A window of this kind, in the text form `[...]`; `unit` is None for integer ticks."""
    if kind == "range":
        return f" [RANGE {_draw_duration(rng, span, unit)}]"
    rows = rng.choice((1, 1, 2, 3, 5, 10))
    if kind == "rows":
        return f" [ROWS {rows}]"
    if kind == "partition":
        keys = ", ".join(rng.sample(("x", "y", "s", "b", "v"), rng.choice((1, 1, 2))))
        return f" [PARTITION BY {keys} ROWS {rng.choice((1, 1, 2, 3))}]"
    return {"now": " [NOW]", "unbounded": " [UNBOUNDED]", "none": ""}[kind]


def random_text(
    rng: random.Random, items: Sequence[FromItem], shape: str, emit: str, window: tuple[int, str | None] | None
) -> str:
    """A query over these FROM items. `window`: span and unit for the WINDOW shorthand, or None for no such clause."""
    predicates = _draw_predicates(rng, items, shape)
    joined = _write_join_clause(rng, items, predicates) if rng.random() < 0.3 else None
    if joined is None:
        clause, remaining = "FROM " + ", ".join(item.text for item in items), predicates
    else:
        clause, remaining = joined
    text = f"SELECT {_draw_select_list(rng, items)} {clause}"
    if remaining:
        text += " WHERE " + " AND ".join(predicate.text for predicate in remaining)
    if window is not None:
        text += f" WINDOW {_draw_duration(rng, *window)}"
    return text if emit == "" else f"{emit} ({text})"


def _draw_duration(rng: random.Random, span: int, unit: str | None) -> str:
    length = rng.randint(1, max(1, span))
    if unit == "MILLISECONDS":
        length *= 1000  # then ticks are seconds
    return f"{length} {unit}" if unit else f"{length}"


def _write_join_clause(
    rng: random.Random, items: Sequence[FromItem], predicates: list[Predicate]
) -> tuple[str, list[Predicate]] | None:
    """FROM a JOIN b ON ... and the remaining predicates for WHERE; None if a join would have no condition."""
    text, bound, remaining = f"FROM {items[0].text}", {items[0].alias}, list(predicates)
    for item in items[1:]:
        bound.add(item.alias)
        here = [p for p in remaining if item.alias in p.aliases and p.aliases <= bound]
        if not here:
            return None
        here = here[: rng.randint(1, len(here))]
        remaining = [p for p in remaining if p not in here]
        text += f" {rng.choice(('JOIN', 'JOIN', 'INNER JOIN'))} {item.text} ON {' AND '.join(p.text for p in here)}"
    return text, remaining


def _draw_edges(rng: random.Random, aliases: Sequence[str], shape: str) -> list[tuple[str, str]]:
    pairs = list(itertools.pairwise(aliases))
    if shape == "chain":
        return pairs
    if shape == "star":
        return [(aliases[0], other) for other in aliases[1:]]
    if shape == "clique":
        return [(a, b) for i, a in enumerate(aliases) for b in aliases[i + 1 :]]
    if shape == "cycle":
        return [*pairs, (aliases[-1], aliases[0])] if len(aliases) > 2 else pairs
    if shape == "cross":
        return []
    return [(aliases[rng.randrange(i)], aliases[i]) for i in range(1, len(aliases))]  # any tree


def _draw_predicates(rng: random.Random, items: Sequence[FromItem], shape: str) -> list[Predicate]:
    aliases = [item.alias for item in items]
    edges = _draw_edges(rng, aliases, shape)
    one = rng.choice((*KEYS, "x", "x"))  # the column of a shared class
    found: list[Predicate] = []
    for a, b in edges:
        pair = frozenset((a, b))
        if shape == "shared" or (shape == "clique" and rng.random() < 0.3):
            found.append(Predicate(f"{a}.{one} = {b}.{one}", pair))
        elif shape == "theta" or (shape == "mixed" and rng.random() < 0.3):
            found.append(Predicate(_draw_theta(rng, a, b), pair))
        else:
            found.append(Predicate(_draw_equality(rng, a, b), pair))
        if shape != "theta" and rng.random() < 0.15:
            found.append(Predicate(_draw_equality(rng, a, b), pair))
        if rng.random() < (0.5 if shape == "mixed" else 0.05):
            found.append(Predicate(_draw_theta(rng, a, b), pair))
    if len(aliases) > 1 and rng.random() < (0.4 if shape == "mixed" else 0.08):
        chosen = rng.sample(aliases, rng.randint(2, min(3, len(aliases))))
        found.append(Predicate(_draw_residual(rng, chosen[0], chosen[1], chosen[-1]), frozenset(chosen)))
    for alias in aliases:
        if rng.random() < (0.6 if len(aliases) == 1 else 0.12):
            found.append(Predicate(_draw_filter(rng, alias), frozenset((alias,))))
        if rng.random() < 0.05:
            found.append(Predicate(f"{alias}.x = {alias}.y", frozenset((alias,))))
    times = [item for item in items if item.time is not None]
    if len(times) > 1 and rng.random() < 0.05:
        early, late = rng.sample(times, 2)
        comparison = rng.choice(("=", "<=", "<"))
        text = f"{early.alias}.{early.time} {comparison} {late.alias}.{late.time}"
        found.append(Predicate(text, frozenset((early.alias, late.alias))))
    rng.shuffle(found)
    return found


def _draw_equality(rng: random.Random, a: str, b: str) -> str:
    if rng.random() < 0.55:
        column = rng.choice(("x", "x", "x", "y", "z", "s", "v", "d", "dt", "b"))
        return f"{a}.{column} = {b}.{column}"
    return rng.choice(
        (
            f"{a}.x = {b}.y",
            f"{a}.z = {b}.x",
            f"{a}.x = {b}.v",
            f"{a}.v = {b}.y",
            f"{a}.d = {b}.x",
            f"{a}.x + 1 = {b}.y",
            f"{a}.x * 2 = {b}.y + {b}.z",
            f"{a}.x % 3 = {b}.y % 3",
            f"{a}.x - {a}.y = {b}.z",
            f"CAST({a}.v AS BIGINT) = {b}.x",
            f"ABS({a}.x) = {b}.y",
            f"COALESCE({a}.x, 0) = COALESCE({b}.x, 0)",
            f"{b}.X = {a}.X",
        )
    )


def _draw_theta(rng: random.Random, a: str, b: str) -> str:
    column = rng.choice(("x", "y", "v", "s", "d", "dt"))
    return rng.choice(
        (
            f"{a}.{column} {rng.choice(('<', '<=', '>', '>=', '<>'))} {b}.{column}",
            f"{a}.x {rng.choice(('<', '<=', '>', '>='))} {b}.y",
            f"ABS({a}.x - {b}.y) <= 1",
            f"{a}.x BETWEEN {b}.y - 1 AND {b}.y + 1",
            f"{a}.v >= {b}.x",
            f"{a}.x + {b}.y > 2",
        )
    )


def _draw_residual(rng: random.Random, a: str, b: str, c: str) -> str:
    return rng.choice(
        (
            f"{a}.x + {b}.y >= {c}.z",
            f"({a}.x = {b}.x OR {b}.y <> {c}.y)",
            f"{a}.x + {b}.y + {c}.z IN (0, 1, 2, 3, 5)",
            f"CASE WHEN {a}.b THEN {b}.x ELSE {c}.x END <= {c}.y",
            f"NOT ({a}.x = {b}.y AND {b}.x = {c}.z)",
            f"({a}.s LIKE 'k%' OR {b}.v > {c}.v)",
            f"({a}.x - {b}.x) * 2 < {c}.z + 3",
        )
    )


def _draw_filter(rng: random.Random, a: str) -> str:
    return rng.choice(
        (
            f"{a}.x > 0",
            f"{a}.x <> 1",
            f"{a}.y IN (0, 1, 3)",
            f"{a}.x NOT IN (1, 2)",
            f"{a}.s LIKE 'k_'",
            f"{a}.x IS NOT NULL",
            f"{a}.v IS NULL",
            f"{a}.b",
            f"NOT {a}.b",
            f"{a}.d >= 0.5",
            f"{a}.x BETWEEN 0 AND 2",
            f"{a}.x / {a}.y >= 1",
            f"{a}.x = 1",
            f"({a}.x = {a}.y OR {a}.s = 'k1')",
        )
    )


def _draw_select_list(rng: random.Random, items: Sequence[FromItem]) -> str:
    aliases = [item.alias for item in items]
    if rng.random() < (0.2 if len(aliases) == 1 else 0.05):
        return rng.choice(("*", f"{aliases[0]}.*, {aliases[-1]}.x + 1 AS more"))
    chosen = [f"{alias}.id" for alias in aliases] if rng.random() < 0.75 else []
    columns = [f"{a}.{c}" for a in aliases for c in KEYS] + [f"{i.alias}.{i.time}" for i in items if i.time is not None]
    chosen += rng.sample(columns, rng.randint(1, 3))
    a, b = rng.choice(aliases), rng.choice(aliases)
    expressions = (
        f"{a}.x + {b}.y",
        f"{a}.x * 2 - {b}.z",
        f"{a}.v / {b}.v",
        f"{a}.x / {b}.x",
        f"{a}.x % {b}.y",
        f"CASE WHEN {a}.x > {b}.x THEN {a}.s ELSE {b}.s END",
        f"COALESCE({a}.s, {b}.s, 'none')",
        f"{a}.x IS NULL",
        f"{a}.x > {b}.y AND {b}.b",
        f"CAST({a}.v AS BIGINT)",
        f"ABS({a}.v - {b}.v)",
        "42",
    )
    if rng.random() < 0.5:
        chosen += rng.sample(expressions, rng.randint(1, 2))
    rng.shuffle(chosen)
    return ", ".join(f"{text} AS c{i}" for i, text in enumerate(chosen))
