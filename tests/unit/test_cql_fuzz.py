"""Mutated texts: whatever is written, the answer is a bound value or an error of ours."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from cql_catalog import DECLARATIONS, catalog
from test_cql_script import INTERFACE

from penstock.cql import Catalog, CqlError, bind_query, bind_script

TEXTS = [
    INTERFACE,
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


def mutated(text: str, rng: random.Random) -> str:
    words = re.findall(r"\s+|\w+|[^\w\s]", text)
    known = [*words, *NOISE]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 1)] = rng.choice([[], [rng.choice(known)], [" ", rng.choice(known), " "]])
        words = words or [" "]
    return "".join(words)


def answered(bind: Callable[[str, Catalog], object], text: str, names: Catalog) -> str:
    """What a text is answered with; anything but our own error passes through and fails the test."""
    try:
        bind(text, names)
    except CqlError as error:
        return str(error)
    return "bound"


@pytest.mark.parametrize("seed", range(4))
def test_only_our_errors(seed: int) -> None:
    rng = random.Random(seed)
    names = catalog()
    for _ in range(150):
        text = mutated(rng.choice(TEXTS), rng)
        answers = answered(bind_query, text, names), answered(bind_script, text, Catalog())
        assert "sqlglot" not in "".join(answers), text
