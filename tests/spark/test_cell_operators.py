"""Every kind of query on cells that fail and restart, without a Spark session: aggregates, sets, sequences."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from aggregate_queries import ROWS, make_rows, write_query
from aggregate_queries import SCHEMA as AGGREGATED
from cell_runs import CHUNKS, check, list_pushes, push_until_committed
from cell_support import Cluster, build_spec
from function_calls import COLUMNS, POOLS, TEMPLATES, write_call
from spark_support import merge_pushes, run_embedded

from penstock.cql import Stream
from penstock.spark.worker.cell_state import CellCache, OutputRow
from penstock.state.maintenance import SMALLEST
from penstock.testing import Case, Push, random_case, random_operators_text
from penstock.testing.closing_cases import random_closing_case
from penstock.testing.frame_cases import random_frames_case
from penstock.testing.grammar_cases import random_grammar_case
from penstock.testing.nested_cases import random_nested_case
from penstock.testing.relation_cases import random_relations_case
from penstock.testing.window_cases import random_windows_case

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
KINDS = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM A [RANGE 20] GROUP BY k",
    "SELECT COUNT(*) AS n FROM A [RANGE 20 SLIDE 7]",
    "SELECT k, AVG(v) AS a FROM A [RANGE 30 SLIDE 10] GROUP BY k HAVING COUNT(*) > 2",
    "SELECT k, COUNT(*) AS n FROM A [ROWS 7 SLIDE 4] GROUP BY k EMIT CHANGES",
    "DSTREAM (SELECT COUNT(*) AS n FROM A [ROWS 2 SLIDE 5] WHERE v > 0)",
    "SELECT B.v, COUNT(*) AS n FROM A [ROWS 5 SLIDE 3], B [RANGE 8] WHERE A.k = B.k GROUP BY B.v EMIT CHANGES",
    "SELECT n, COUNT(*) AS c FROM (SELECT COUNT(*) AS n FROM A [ROWS 6 SLIDE 3] GROUP BY k) AS t GROUP BY n",
    "SELECT A.k, COUNT(*) AS n FROM A [RANGE 9], B [ROWS 4] WHERE A.k = B.k GROUP BY A.k",
    "SELECT k % 2 AS odd, v, SUM(k) AS s FROM A [PARTITION BY v, k ROWS 2] GROUP BY k % 2, v",
    "SELECT B.v, COUNT(*) AS n FROM A [ROWS 5], B [RANGE 8] WHERE A.k = B.k GROUP BY B.v",
    "SELECT DISTINCT A.v, B.v AS w FROM A [RANGE 6], B [RANGE 3] WHERE A.k = B.k",
    "SELECT DISTINCT A.k, COUNT(*) AS n FROM A [RANGE 6], B [RANGE 3] WHERE A.k = B.k GROUP BY A.k, B.v",
    "SELECT DISTINCT COUNT(*) AS n FROM A [RANGE 6] GROUP BY k",
    "SELECT DISTINCT k FROM A [RANGE 6]",
    "DSTREAM (SELECT DISTINCT A.k FROM A [RANGE 6], B [RANGE 3] WHERE A.k = B.k)",
    "RSTREAM (SELECT k, COUNT(*) AS n FROM A [ROWS 5] GROUP BY k)",
    "SELECT k FROM A [RANGE 5] UNION ALL SELECT k FROM B [RANGE 5]",
    "SELECT k FROM A [RANGE 9] EXCEPT SELECT k FROM B [RANGE 4]",
    "SELECT v, k FROM A [RANGE 9] EXCEPT SELECT v, k FROM B [ROWS 3]",
    "SELECT k, v FROM A [RANGE 9] EXCEPT SELECT x.k, y.v FROM A [RANGE 5] AS x, B [RANGE 5] AS y WHERE x.k = y.k",
    "DSTREAM (SELECT k FROM A [RANGE 9] EXCEPT SELECT k FROM B [RANGE 4] WHERE v > 0)",
    "SELECT x.k FROM A [RANGE 9] AS x, B [RANGE 3] AS y WHERE x.k = y.k UNION ALL SELECT k FROM A [NOW] GROUP BY k",
    "SELECT k FROM A [RANGE 8] EXCEPT SELECT k FROM B [RANGE 4] UNION ALL SELECT k FROM A [RANGE 2] AS z",
    "SELECT a.k, b.v FROM SEQ(A AS a, B AS b) MODE RECENT WHERE a.k = b.k",
    "SELECT a.v, b.v AS w FROM SEQ(A AS a, B AS b) MODE CHRONICLE WHERE a.k = b.k",
    "SELECT a.v, b.v AS w FROM SEQ(A AS a, B AS b) MODE CHRONICLE",
    "SELECT a.v, c.v AS w FROM SEQ(A [RANGE 15] AS a, B AS b, A AS c) MODE CHRONICLE WHERE a.k = b.k AND c.k = b.k",
    "SELECT a.v, c.v AS w FROM SEQ(A AS a, B AS b, A AS c) MODE RECENT WHERE a.k = c.k AND b.k = c.k",
    "SELECT a.v, b.v AS w FROM SEQ(A AS a, A AS b) MODE CHRONICLE WHERE a.k = b.k AND a.v < b.v",
    "SELECT SUM(v) OVER (w RANGE 9 PRECEDING) AS s, LAG(v) OVER w AS p FROM A WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "SELECT s FROM (SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE 9 PRECEDING) AS s FROM A) AS t WHERE s > 1",
    "SELECT k, COUNT(*) OVER (ORDER BY ts ROWS 5 PRECEDING) AS n FROM A WHERE v > 0",
    "SELECT s, COUNT(*) AS n FROM (SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM A) AS t GROUP BY s",
    "SELECT k, v, LEAD(v) OVER w AS n, LAG(v, 2) OVER w AS p FROM A WINDOW w AS (PARTITION BY k ORDER BY ts)",
    "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS s FROM A",
    "SELECT v, COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN 3 FOLLOWING AND 9 FOLLOWING) AS n FROM A",
    "SELECT v, MAX(v) OVER (ORDER BY ts RANGE BETWEEN 2 PRECEDING AND 4 FOLLOWING) AS m FROM A WHERE k > 0",
    "SELECT n, COUNT(*) AS c FROM (SELECT LEAD(k) OVER (PARTITION BY v ORDER BY ts) AS n FROM A) AS t GROUP BY n",
    "SELECT k, window_start, COUNT(*) AS n FROM SESSION(A PARTITION BY k, ts, 4) GROUP BY k, window_start, window_end",
    "SELECT A.k, A.v, B.v AS w FROM A [RANGE 9] LEFT JOIN B [RANGE 4] ON A.k = B.k EMIT ON WINDOW CLOSE",
    "SELECT A.k, B.v AS w FROM A [RANGE 9] FULL JOIN B [RANGE 4] ON A.k = B.k EMIT CHANGES",
    "SELECT k, v FROM A [RANGE 9] WHERE k IN (SELECT k FROM B [RANGE 4]) EMIT ON WINDOW CLOSE",
    "SELECT k, v, k NOT IN (SELECT k FROM B [RANGE 4]) AS y FROM A [RANGE 9] EMIT CHANGES",
    "SELECT k FROM A [RANGE 9] WHERE v > 1 OR EXISTS (SELECT 1 FROM B [RANGE 4] WHERE B.k = A.k) EMIT CHANGES",
    "SELECT k, v FROM A [RANGE 9] QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) <= 2",
    "DSTREAM (SELECT k FROM A [RANGE 9] ORDER BY v DESC LIMIT 3)",
    "SELECT b.k, COUNT(*) AS n FROM SEQ(A [RANGE 20] AS a, B [RANGE 9] AS b) MODE RECENT WHERE a.k = b.k GROUP BY b.k",
]


def draw_case(rng: random.Random, query: str) -> Case:
    streams = tuple(Stream(name, SCHEMA, "ts", lateness=3) for name in "AB")
    steps = []
    for at in range(0, 120, 6):
        batch = {}
        for stream in streams:
            rows = [
                (at + rng.randint(-2, 6), rng.choice((None, 0, 1, 2, 3)), rng.choice((None, 0.0, 0.5, 1.5, 3.5)))
                for _ in range(rng.randint(0, 8))
            ]
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            batch[stream.name] = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)
        steps.append(Push(batch))
    return Case(0, streams, {}, query, "", tuple(steps))


@pytest.mark.parametrize("query", KINDS)
def test_faults_and_restarts_lose_nothing(query: str) -> None:
    for seed in range(3):
        rng = random.Random(seed)
        case = draw_case(rng, query)
        cluster = Cluster(build_spec(case, {"q": query}, 3), workers=2)
        outputs: list[OutputRow] = []
        for step in list_pushes(case):
            outputs += push_until_committed(cluster, step, rng)
        assert run_embedded(case, {"q": query})["q"].num_rows
        check(seed, case, cluster, outputs, {"q": query})


@pytest.mark.parametrize("query", [query for query in KINDS if "ROWS" in query and "SLIDE" in query])
def test_row_slides_of_cells_that_are_always_rebuilt(query: str) -> None:
    """A rebuilt cell counts on, and knows the rows of its last report, although dead rows are dropped."""
    for seed in range(4):
        case = draw_case(random.Random(seed), query)
        cluster = Cluster(replace(build_spec(case, {"q": query}, 2), maintenance=SMALLEST))
        outputs: list[OutputRow] = []
        for step in list_pushes(case):
            cluster.caches[0] = CellCache()
            outputs += cluster.push(step, lambda: 0)
        check(seed, case, cluster, outputs, {"q": query})


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_operator_queries_on_cells(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        case = merge_pushes(random_case(seed, limit=1000), 12)
        check_on_cells(case, random_operators_text(random.Random(f"cells {seed}"), case.declarations))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_frames_on_cells(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        case = merge_pushes(random_frames_case(seed), 12)
        check_on_cells(case, case.query)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_nested_values_on_cells(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        case = merge_pushes(random_nested_case(seed), 12)
        check_on_cells(case, case.query)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_aggregates_on_cells(chunk: int) -> None:
    for seed in range(chunk, chunk + 10):
        chance = random.Random(seed)
        rows = {"A": make_rows(chance, ROWS), "B": make_rows(chance, ROWS // 2)}
        streams = tuple(Stream(name, AGGREGATED, "ts") for name in rows)
        check_on_cells(Case(seed, streams, {}, "", "", split_pushes(rows, 4)), write_query(chance))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_functions_on_cells(chunk: int) -> None:
    """Functions in SELECT and in WHERE, over the values of the expression tests."""
    schema = pa.schema([("at", pa.int64()), *((name, kind) for name, (kind, _) in POOLS.items())])
    for seed in range(chunk, chunk + 10):
        chance = random.Random(f"functions {seed}")
        columns = {name: chance.choices(pool, k=24) for name, (_, pool) in POOLS.items()}
        rows = {"A": pa.table({"at": [place // 3 for place in range(24)], **columns}, schema)}
        case = Case(seed, (Stream("A", schema, "at"),), {}, "", "", split_pushes(rows, 4))
        check_on_cells(case, write_functions(chance))


def write_functions(chance: random.Random) -> str:
    """A query with calls of functions."""

    def draw(kind: str) -> str:
        return chance.choice(COLUMNS[kind])

    kinds = [kind for kind in TEMPLATES if kind != "bool"]
    shown = ", ".join(f"{write_call(chance, chance.choice(kinds), draw)} AS c{place}" for place in range(3))
    return f"SELECT {shown} FROM A [RANGE 5] WHERE {write_call(chance, 'bool', draw)} OR j = 1"


def split_pushes(rows: dict[str, pa.Table], count: int) -> tuple[Push, ...]:
    size = 1 + max(table.num_rows for table in rows.values()) // count
    return tuple(
        Push({name: table.slice(place * size, size) for name, table in rows.items()}) for place in range(count)
    )


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_relations_on_cells(chunk: int) -> None:
    """Joins of all kinds, subqueries, windows of time, tops, final rows, and the whole language."""
    for seed in range(chunk, chunk + 10, 2):
        case = (random_relations_case, random_windows_case, random_closing_case, draw_grammar)[seed // 2 % 4](seed)
        case = merge_pushes(case, 12)
        check_on_cells(case, case.query)


def draw_grammar(seed: int) -> Case:
    return random_grammar_case(seed).case


def check_on_cells(case: Case, query: str) -> None:
    """The results of a query on cells that fail and restart are those of the engine."""
    rng = random.Random(case.seed)
    cluster = Cluster(build_spec(case, {"q": query}, rng.randint(2, 5)), workers=2)
    outputs = [row for step in list_pushes(case) for row in push_until_committed(cluster, step, rng)]
    check(case.seed, case, cluster, outputs, {"q": query})
