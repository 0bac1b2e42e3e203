"""Updating tables against a naive replay of their changes, at every instant and for every event.

A change that the replay refuses, a deletion of a key without a row, must be in the dead letters, and nothing else.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import law_support
import pyarrow as pa
import pytest

import penstock as ps

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "16"))
CHANGE_TYPES = {"ts": pa.int64(), "k": pa.string(), "region": pa.int64(), "price": pa.int64(), "_op": pa.string()}
EVENT_TYPES = {"ts": pa.int64(), "k": pa.string(), "n": pa.int64()}
QUERIES = {
    "enriched": "SELECT e.n, p.price, p.region FROM events [NOW] AS e JOIN prices AS p ON e.k = p.k",
    "rows": "SELECT k, region, price FROM prices EMIT CHANGES",
    "sums": "SELECT region, SUM(price) AS total, COUNT(*) AS n FROM prices GROUP BY region EMIT CHANGES",
    "missing": "SELECT e.n FROM events [NOW] AS e ANTI JOIN prices AS p ON e.k = p.k",
}

Row = dict[str, Any]


def make_rows(rng: random.Random) -> tuple[list[Row], list[Row]]:
    """Changes and events, by time; several may have one time."""
    changes, events = [], []
    for number in range(rng.choice([5, 40, 120])):
        time, k = number * 2 // 3, rng.choice(["a", "b", "c", "dd"])
        op = rng.choice([None, None, "+", "-", "-"])
        price = None if op == "-" else rng.randrange(9)
        changes.append({"ts": time, "k": k, "region": rng.randrange(3), "price": price, "_op": op})
        events.append({"ts": time + rng.randrange(2), "k": rng.choice([k, "a", None]), "n": number})
    return changes, sorted(events, key=lambda row: row["ts"])


def replay(changes: list[Row]) -> tuple[dict[int, dict[str, Row]], int]:
    """The rows of the table after each instant at which it changed, and how many changes are bad."""
    contents: dict[int, dict[str, Row]] = {}
    table: dict[str, Row] = {}
    bad = 0
    for change in changes:
        table = dict(table)
        if change["_op"] == "-":
            bad += table.pop(change["k"], None) is None
        else:
            table[change["k"]] = change
        contents[change["ts"]] = table
    return contents, bad


def read_table(contents: dict[int, dict[str, Row]], time: int) -> dict[str, Row]:
    return contents[max((each for each in contents if each <= time), default=-1)] if min(contents) <= time else {}


def run(rng: random.Random, changes: list[Row], events: list[Row]) -> tuple[dict[str, list[Row]], pa.Table]:
    """The results of every query, of pushes of random sizes with restarts between them; and the dead letters."""
    engine = law_support.make_engine(state=rng.choice(law_support.STATES), batch=rng.choice(law_support.BATCHES))
    engine.stream("events", pa.schema(EVENT_TYPES.items()), time="ts")
    schema = {name: kind for name, kind in CHANGE_TYPES.items() if name != "_op"}
    engine.table("prices", pa.schema(schema.items()), key="k", time="ts")
    for name, text in QUERIES.items():
        engine.query(name, text)
    results: dict[str, list[Row]] = {name: [] for name in QUERIES}

    def collect(out: Any) -> None:
        for name, rows in results.items():
            rows.extend(out[name].to_pylist())

    at = {"prices": 0, "events": 0}
    data = {"prices": (changes, CHANGE_TYPES), "events": (events, EVENT_TYPES)}
    while any(at[name] < len(rows) for name, (rows, _) in data.items()):
        name = rng.choice(list(data))
        rows, types = data[name]
        size = rng.choice([1, 3, 50])
        part = rows[at[name] : at[name] + size]
        at[name] += size
        columns = {column: [row[column] for row in part] for column in types}
        if name == "prices" and not any(columns["_op"]):
            del columns["_op"]
        collect(engine.push({name: pa.table({each: pa.array(columns[each], types[each]) for each in columns})}))
        if rng.random() < 0.1:
            engine = ps.Engine.restore(engine.snapshot())
    collect(engine.flush())
    return results, engine.dead_letters("prices")


def apply_changes(rows: list[Row], time: int) -> Counter[tuple[Any, ...]]:
    """The answer after an instant, from the changes of it."""
    answer: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        if row["_ts"] <= time:
            values = tuple(value for name, value in row.items() if name not in ("_op", "_ts"))
            answer[values] += 1 if row["_op"] == "+" else -1
    return +answer


@pytest.mark.parametrize("seed", range(SEEDS))
def test_updating_table(seed: int) -> None:
    rng = random.Random(seed)
    changes, events = make_rows(rng)
    contents, bad = replay(changes)
    results, dead = run(rng, changes, events)
    assert dead.num_rows == bad
    for time, table in contents.items():
        rows = Counter((row["k"], row["region"], row["price"]) for row in table.values())
        assert apply_changes(results["rows"], time) == rows
        regions = {row["region"] for row in table.values()}
        parts = {region: [row["price"] for row in table.values() if row["region"] == region] for region in regions}
        assert apply_changes(results["sums"], time) == Counter(
            (region, sum(prices), len(prices)) for region, prices in parts.items()
        )
    found = [(event, read_table(contents, event["ts"]).get(event["k"])) for event in events]
    assert Counter((row["n"], row["price"], row["region"], row["_ts"]) for row in results["enriched"]) == Counter(
        (event["n"], row["price"], row["region"], event["ts"]) for event, row in found if row is not None
    )
    # An event without a price at its instant may be reported once; one that has a price then never is.
    assert {row["n"] for row in results["missing"]} == {event["n"] for event, row in found if row is None}


def test_script_declares_updating_table() -> None:
    script = """
        CREATE TABLE prices (ts BIGINT, k STRING, price DOUBLE, PRIMARY KEY (k)) TIMESTAMP BY ts LATENESS 2;
        CREATE STREAM events (ts BIGINT, k STRING) TIMESTAMP BY ts;
        SELECT e.k, p.price FROM events [NOW] AS e JOIN prices AS p ON e.k = p.k;
    """
    engine = ps.Engine.from_script(script)
    engine.push({"prices": [{"ts": 1, "k": "a", "price": 1.0}, {"ts": 5, "k": "a", "price": 2.0}]})
    engine.push({"events": [{"ts": 4, "k": "a"}, {"ts": 5, "k": "a"}]})
    assert [row["price"] for row in engine.flush()["query"].to_pylist()] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("CREATE TABLE t (ts BIGINT, k INT) TIMESTAMP BY ts", "KEY_NEEDED"),
        ("CREATE TABLE t (ts BIGINT, k INT, PRIMARY KEY (k))", "SYNTAX_ERROR"),
        ("CREATE TABLE t (ts BIGINT, k INT, PRIMARY KEY (q)) TIMESTAMP BY ts", "UNKNOWN_COLUMN"),
        ("CREATE TABLE t (ts BIGINT, k INT PRIMARY KEY, _op INT) TIMESTAMP BY ts", "OP_TYPE"),
        ("CREATE STREAM t_changes (ts BIGINT) TIMESTAMP BY ts; "
         "CREATE TABLE t (ts BIGINT, k INT PRIMARY KEY) TIMESTAMP BY ts", "DUPLICATE_NAME"),
    ],
)  # fmt: skip
def test_wrong_declaration(statement: str, condition: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        ps.Engine.from_script(statement)
    assert caught.value.condition == condition
