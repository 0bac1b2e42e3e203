"""Random cases of the whole language: every form of a query inside every other one, over views and updating tables.

A case has a text that the oracles answer, with its views in WITH, and the same query over declared views. For most
cases `instants_text` is the text that DuckDB can run itself at every instant (`penstock.testing.sql_instants`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.cql import OPERATION, Stream, make_changes, name_changes
from penstock.errors import UnsupportedError
from penstock.testing.case import Case, Push, Step
from penstock.testing.combinations import TooManyRows
from penstock.testing.generate import random_case
from penstock.testing.oracle import expected
from penstock.testing.query_writer import QueryWriter
from penstock.testing.relation_cases import NUMBERS, write_emit

ATTEMPTS = 15
EMITS = ("", "", " EMIT CHANGES", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM")
SMALL_OFFSETS = (0, 0, -1)


@dataclass(frozen=True)
class GrammarCase:
    """One case. `case.query` has the views in WITH, so that the oracles can answer it; `reader` reads `views`."""

    case: Case
    views: Mapping[str, str]
    reader: str
    instants_text: str | None
    """The SELECT of the query, if it is SQL over its leaves."""
    leaves: tuple[str, ...]
    """Its FROM items that read streams, which the oracle of instants replaces by tables of their rows."""

    def __str__(self) -> str:
        views = "".join(f"\n{name}: {text}" for name, text in self.views.items())
        return f"{self.case}{views}\nreader: {self.reader}"


def random_grammar_case(seed: int, *, rows: int = 10, limit: int = 1200, **knobs: Any) -> GrammarCase:
    """A case of the whole language; other knobs are those of `random_case`. A query that is refused is drawn anew."""
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"penstock grammar {seed}.{attempt}")
        plain_sql = rng.random() < 0.8
        knobs["offset"] = rng.choice(SMALL_OFFSETS) if plain_sql else None
        base = random_case(seed * ATTEMPTS + attempt, sources=rng.randint(1, 3), rows=rows, tables=False, limit=None,
                           **knobs)  # fmt: skip
        base, tables = _make_updating(rng, base)
        if rng.random() < 0.2:
            base = replace(base, tables={"t1": next(iter(base.streams.values())).select(NUMBERS)})
        found = _draw_case(rng, replace(base, seed=seed), tables, plain_sql=plain_sql)
        try:
            case = found.case
            answer = expected(case.query, case.accepted, case.tables, case.times, limit=limit)
        except TooManyRows:
            rows = max(3, rows * 2 // 3)
            continue
        except UnsupportedError:
            continue
        if answer.num_rows or attempt > ATTEMPTS - 5:
            vars(case)["expected"] = answer  # fills the cached property
            return found
    raise ValueError(f"seed {seed}: no case within {limit} rows after {ATTEMPTS} attempts")


def _draw_case(rng: random.Random, base: Case, tables: Mapping[str, str], *, plain_sql: bool) -> GrammarCase:
    """The texts of a case over the streams of `base` and the texts of its updating tables."""
    streams = [stream for stream in base.declarations if not stream.key]
    writer = QueryWriter(rng, streams, plain_sql=plain_sql)
    if rng.random() < 0.1:
        query = f"{rng.choice((writer.write_closing, writer.write_joins))()} EMIT ON WINDOW CLOSE"
        return GrammarCase(replace(base, query=query, plan=""), {}, query, None, ())
    for name, text in tables.items():
        writer.add_relation(name, base.declarations[-1].schema.names)
        writer.leaves.append(text)
    for name in base.tables:
        writer.add_table(name)
    views: dict[str, str] = {}
    for number in range(rng.choice((0, 0, 1, 2))):
        name = f"v{number + 1}"
        views[name] = writer.write_query(rng.randint(0, 1))
        writer.add_relation(name, ("k", "n"))
    body = writer.write_query(rng.randint(0, 2))
    listed = {**{name: _write_table_text(text) for name, text in tables.items()}, **views}
    whole = body
    if listed:
        joined = ", ".join(f"{name} AS ({text})" for name, text in listed.items())
        whole = f"WITH {joined}, {body.removeprefix('WITH ')}" if body.startswith("WITH ") else f"WITH {joined} {body}"
    how = rng.choice(EMITS)
    case = replace(base, query=write_emit(how, whole), plan="")
    return GrammarCase(case, views, write_emit(how, body), whole if plain_sql else None, tuple(writer.leaves))


def _write_table_text(leaf: str) -> str:
    """The query of an updating table over its changes."""
    return f"SELECT * FROM {leaf} WHERE c.{OPERATION} IS NULL OR c.{OPERATION} <> '-'"


def _make_updating(rng: random.Random, base: Case) -> tuple[Case, dict[str, str]]:
    """The case with its last stream as an updating table in some cases, and its leaf."""
    if rng.random() > 0.35 or len(base.declarations) == 1:
        return base, {}
    *others, stream = base.declarations
    key = rng.choice(("x", "y", "s"))
    changes = make_changes(replace(stream, name=name_changes(stream.name)), [key])
    steps = tuple(_change_step(rng, step, stream, changes) for step in base.steps)
    leaf = f"{changes.name} [PARTITION BY {key} ROWS 1] AS c"
    return replace(base, declarations=(*others, changes), steps=steps), {stream.name: leaf}


def _change_step(rng: random.Random, step: Step, stream: Stream, changes: Stream) -> Step:
    if not isinstance(step, Push):
        return replace(step, stream=changes.name) if step.stream == stream.name else step
    if stream.name not in step.batches:
        return step
    batches = {name: batch for name, batch in step.batches.items() if name != stream.name}
    batch = step.batches[stream.name]
    batch = batch.filter(batch.column(changes.key[0]).is_valid())
    operations = [rng.choice((None, None, "+", "-")) for _ in range(batch.num_rows)]
    batches[changes.name] = batch.append_column(OPERATION, pa.array(operations, pa.string())).cast(changes.schema)
    return Push(batches)
