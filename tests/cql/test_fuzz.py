"""Mutated texts: every text gives a bound value or a PenstockError.

More texts: PENSTOCK_SEEDS=100000 PENSTOCK_FIRST_SEED=1 pytest tests/cql/test_fuzz.py
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable

import pytest
from cql_catalog import DECLARATIONS, INTERFACE_SCRIPT, build_catalog

import penstock as ps
from penstock.cql import Catalog, CqlError, bind_query, bind_script
from penstock.testing import Case, declare, random_case, random_operators_case, random_operators_text

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "2000"))
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))

TEXTS = [
    INTERFACE_SCRIPT,
    DECLARATIONS,
    "SELECT location, AVG(value) AS m FROM temperature [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY 1 HAVING m > 5",
    "RSTREAM (SELECT value FROM temperature UNION ALL SELECT value FROM humidity EXCEPT SELECT f FROM trades)",
    "SELECT a.value FROM SEQ(temperature [ROWS 5] AS a, humidity AS b) MODE RECENT WHERE a.location = b.location",
    "SELECT CASE n WHEN 1 THEN price ELSE -1.5 END, CAST(At AS DATE), COALESCE(sym, 'x') FROM trades [NOW] "
    "WHERE At + INTERVAL 5 SECONDS BETWEEN '2024-01-01' AND '2025-01-01' AND sym NOT LIKE 'a%' OR n IN (1, 2)",
]
NOISE = [
    "'",
    "`",
    '"',
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ".",
    "..",
    "*",
    "/",
    "%",
    "+",
    "-",
    "::",
    ":=",
    "->",
    "=>",
    "||",
    "<=>",
    "@x",
    "$1",
    "?",
    "\\",
    "\x00",
    "é",
    "1e400",
    "5L",
    "5BD",
    "0x1F",
    "--",
    "/*",
    "NULL",
    "CASE",
    "END",
    "INTERVAL",
    "DATE",
    "TIMESTAMP",
    "CAST",
    "OVER",
    "FILTER",
    "LATERAL",
    "UNNEST",
    "VALUES",
    "ARRAY",
    "STRUCT",
    "MAP",
    "EXISTS",
    "ANY",
    "DISTINCT",
    "ORDER",
    "LIMIT",
]


def mutate_words(text: str, rng: random.Random) -> str:
    words = re.findall(r"\s+|\w+|[^\w\s]", text)
    known = [*words, *NOISE]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 1)] = rng.choice([[], [rng.choice(known)], [" ", rng.choice(known), " "]])
        words = words or [" "]
    return "".join(words)


def mutate_characters(text: str, rng: random.Random) -> str:
    made = list(text)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        any_character = chr(rng.choice((rng.randrange(128), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))
        made[at : at + rng.randint(0, 2)] = rng.choice(
            ("", any_character, rng.choice("()[]{}'\"`;,.*-+/%=<>0123456789"))
        )
    return "".join(made)


def mutate_numbers(text: str, rng: random.Random) -> str:
    other = (
        "0",
        "-1",
        "9223372036854775807",
        "9223372036854775808",
        "1" * 400,
        "1e308",
        "1e-400",
        "0.0000001",
        ".5",
        "",
    )
    return re.sub(r"\d+", lambda found: rng.choice((found[0], rng.choice(other))), text)


def cut(text: str, rng: random.Random) -> str:
    return text[rng.randrange(len(text)) :] if rng.random() < 0.3 else text[: rng.randrange(len(text))]


def repeat(text: str, rng: random.Random) -> str:
    """Repeat a part of the text many times, or put it into many parentheses."""
    start = rng.randrange(len(text))
    end, times = start + rng.randint(1, 30), rng.choice((2, 3, 20, 300))
    if rng.random() < 0.5:
        return text[:start] + text[start:end] * times + text[end:]
    return text[:start] + "(" * times + text[start:end] + ")" * rng.choice((times, times, times - 1)) + text[end:]


def splice(text: str, rng: random.Random) -> str:
    other = rng.choice(TEXTS)
    return text[: rng.randrange(len(text))] + other[rng.randrange(len(other)) :]


KINDS = (mutate_words, mutate_words, mutate_characters, mutate_numbers, cut, repeat, splice)


def mutated(text: str, rng: random.Random) -> str:
    return rng.choice(KINDS)(text or " ", rng)


def answered(bind: Callable[[str, Catalog], object], text: str, names: Catalog) -> str:
    """The bound value or the PenstockError for a text; any other exception fails the test."""
    try:
        bind(text, names)
    except CqlError as error:
        return str(error)
    return "bound"


@pytest.mark.parametrize("part", range(4))
def test_mutated_text_is_bound_or_refused(part: int) -> None:
    names = build_catalog()
    for seed in range(FIRST + part, FIRST + SEEDS, 4):
        rng = random.Random(f"texts {seed}")
        text = mutated(rng.choice(TEXTS), rng)
        try:
            answers = answered(bind_query, text, names), answered(bind_script, text, Catalog())
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
        assert "sqlglot" not in "".join(answers), text


# ── texts that an engine runs ────────────────────────────────────────────────────────────────────────────────────────

CASES = 20
"""The number of cases from which texts are drawn."""


def started(case: Case) -> ps.Engine:
    engine = ps.Engine()
    declare(engine, case)
    return engine


def tried(engine: ps.Engine, text: str, plan: str | None) -> str:
    """The engine's result or error for a text and a plan; the query is dropped afterwards."""
    try:
        engine.query("q", text, plan)
    except (ps.QueryError, ps.UnsupportedError) as error:
        return error.condition
    engine.push({})
    engine.drop("q")
    return "runs"


@pytest.mark.parametrize("part", range(4))
def test_mutated_query_runs_or_is_refused(part: int) -> None:
    """Mutated valid texts with mutated plans: the engine stays usable."""
    makes = (random_case, random_operators_case)
    cases = [makes[number % 2](number, limit=100) for number in range(part * CASES, (part + 1) * CASES)]
    engines = [started(case) for case in cases]
    answers = set()
    for seed in range(FIRST + part, FIRST + SEEDS, 4):
        rng = random.Random(f"queries {seed}")
        place = rng.randrange(CASES)
        case = cases[place]
        whole = case.query if rng.random() < 0.5 else random_operators_text(rng, case.declarations)
        text = whole if rng.random() < 0.2 else mutated(whole, rng)
        plan = rng.choice((None, None, mutated(case.plan, rng)))
        try:
            answers.add(tried(engines[place], text, plan))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}, plan {plan!r}") from error
    assert "runs" in answers
    for engine in engines:
        assert engine.flush() == {}
