"""PostgreSQL as a sink and as a static table, on a real server: exactly once, whatever is repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from postgres_support import Database, as_batches, draw_changes
from services import restart_service
from spark_support import read_stream, write_file

import penstock as ps
from penstock.spark.postgres import PostgresTable, read_rows
from penstock.spark.postgres_values import parse_rows
from penstock.spark.sinks import Attempt

pytestmark = pytest.mark.services
CHANGES = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_op", pa.string()), ("_ts", pa.int64())])
ROWS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.string())])
SEEDS = range(int(os.environ.get("PENSTOCK_SEEDS", "2")))


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()


def write_batch(sink: Any, rng: random.Random, batch: int, rows: list[tuple[Any, ...]]) -> list[Any]:
    """Write rows in two cells, with attempts that do not count."""
    messages = []
    cells: list[list[tuple[Any, ...]]] = [[], []]
    for row in rows:
        cells[crc32(str(row[0]).encode()) % 2].append(row)
    for cell, part in enumerate(cells):
        for number in range(rng.randrange(1, 3)):
            attempt = Attempt(batch, cell, f"{batch}-{cell}-{number}-{rng.random()}")
            message = sink.write(attempt, iter(as_batches(part, CHANGES)))
        messages.append(message)
    return messages


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_applied_once_with_repeats(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    relation: dict[int, str | None] = {}
    sink = database.sink("answer", key="k", create=True)
    log = database.sink("log", create=True)
    logged = []
    for batch in range(8):
        if batch == 0 or rng.random() < 0.3:  # a restart opens the sinks again
            sink.open("run", "q", CHANGES)
            log.open("run", "log", CHANGES)
        rows = draw_changes(rng, relation, 10 * batch)
        logged += rows
        for _ in range(rng.randrange(1, 3)):  # a repeated micro-batch has other attempts
            sink.commit(batch, write_batch(sink, rng, batch, rows))
            log.commit(batch, write_batch(log, rng, batch, rows))
        assert database.read("answer", "k, v") == sorted(relation.items(), key=repr)
    assert database.read("log") == sorted(logged, key=repr)


def test_types_and_names_survive(database: Database) -> None:
    schema = pa.schema([('a "b".c', pa.bool_()), ("select", pa.decimal128(10, 2)), ("d", pa.date32()),
                        ("f", pa.float64()), ("s", pa.int8()), ("z", pa.timestamp("us", "UTC")),
                        ("_ts", pa.timestamp("us"))])  # fmt: skip
    table = pa.table([[True, None], [Decimal("1.25"), None], [3, None], [float("inf"), None], [-7, None],
                      [1_700_000_000_123_456, None], [1, 2]], schema=schema)  # fmt: skip
    sink = database.sink("odd; DROP", create=True)
    sink.open("run", "q", schema)
    sink.commit(0, [sink.write(Attempt(0, 0, "t"), iter(table.to_batches()))])
    found = database.read("odd; DROP", '"a ""b"".c", "select"::text, d::text, f::text, s, extract(epoch from z)::text')
    assert found == sorted([(True, "1.25", "1970-01-04", "Infinity", -7, "1700000000.123456"), (None,) * 6], key=repr)


def test_lost_staging_rows_fail_the_commit(database: Database) -> None:
    sink = database.sink("t", create=True)
    sink.open("run", "q", CHANGES)
    message = sink.write(Attempt(0, 0, "a"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))
    with pytest.raises(ps.DataError, match="SINK_STAGING_LOST"):
        sink.commit(0, [{**message, "rows": 2}])
    sink.commit(0, [message])
    assert database.read("t") == [(1, "x", "+", 1)]


def test_refused_before_the_first_batch(database: Database) -> None:
    database.execute(f"CREATE TABLE {database.schema}.other (k text, v integer, _ts bigint)")
    wrong = {
        "POSTGRES_UNREACHABLE": database.sink("t", password="wrong"),
        "POSTGRES_OPTIONS": database.sink("t", sslmod="require"),
        "SINK_TABLE_MISSING": database.sink("t"),
        "SINK_SCHEMA": database.sink("other"),
        "SINK_KEY": database.sink("t", key="nothing"),
        "SECRET_MISSING": database.sink("t", password=ps.secret("PENSTOCK_NOT_SET")),
    }
    for condition, sink in wrong.items():
        with pytest.raises(ps.PenstockError, match=condition):
            sink.open("run", "q", CHANGES)
    plain = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_ts", pa.int64())])
    with pytest.raises(ps.DataError, match=r'SINK_SCHEMA.*"v" is of type integer'):
        database.sink("other").open("run", "q", plain)
    double = database.sink("double", key="k", create=True)
    double.open("run", "q", CHANGES)
    rows = as_batches([(1, "x", "+", 1), (1, "y", "+", 1)], CHANGES)
    with pytest.raises(ps.DataError, match="SINK_KEY_NOT_UNIQUE"):
        double.commit(0, [double.write(Attempt(0, 0, "a"), iter(rows))])


@pytest.mark.soak  # other tests use the server at the same time
def test_server_restart_between_write_and_commit(database: Database) -> None:
    sink = database.sink("t", create=True)
    sink.open("run", "q", CHANGES)
    messages = [sink.write(Attempt(0, 0, "a"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))]
    restart_service("postgres")
    sink.commit(0, messages)
    assert database.read("t") == [(1, "x", "+", 1)]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_two_pipelines_change_one_table(database: Database, isolation: str) -> None:
    """Deadlocks and conflicts of transactions are tried again: each micro-batch counts once."""
    keys = {0: [1, 2, 3, 4], 1: [4, 3, 2, 1]}
    setting = f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')} -c deadlock_timeout=10ms"
    sinks = [database.sink("t", key="k", create=True, options=setting) for _ in keys]
    logs = [database.sink("log", create=True, options=setting) for _ in keys]
    for number in keys:
        sinks[number].open(f"run{number}", "q", CHANGES)
        logs[number].open(f"run{number}", "log", CHANGES)

    def write(number: int) -> None:
        for batch in range(8):
            rows = [(key, f"{number}", "+", batch) for key in keys[number]]
            for sink, token in ((sinks[number], "a"), (logs[number], "b"), (logs[number], "c")):
                sink.commit(batch, [sink.write(Attempt(batch, 0, token), iter(as_batches(rows, CHANGES)))])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, keys))
    assert [key for key, *_ in database.read("t")] == [1, 2, 3, 4]
    found = database.read("log", "k, v, _ts")
    assert found == sorted((key, f"{number}", at) for number in keys for at in range(8) for key in keys[number])


def test_written_batches_are_known_after_vacuum(database: Database) -> None:
    sink = database.sink("t", create=True)
    sink.open("run", "q", CHANGES)
    messages = [sink.write(Attempt(0, 0, "a"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))]
    sink.commit(0, messages)
    database.vacuum("t", "penstock_batches")
    sink.open("run", "q", CHANGES)
    sink.commit(0, [sink.write(Attempt(0, 0, "b"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))])
    assert database.read("t") == [(1, "x", "+", 1)]


def test_connection_with_tls(database: Database, tmp_path: Path) -> None:
    """The certificate of the server is checked as libpq's options say."""
    if database.certificate is None:
        pytest.skip("the server was started without openssl, so it has no certificate")
    other = tmp_path / "other.crt"
    other.write_text(Path(database.certificate).read_text().replace("MII", "MIJ", 1))
    wrong = {"no.crt": f"{tmp_path}/no.crt", "certificate": str(other)}
    for said, path in wrong.items():
        with pytest.raises(ps.ResourceError, match=f"(?s)POSTGRES_UNREACHABLE.*{said}"):
            database.sink("t", create=True, sslmode="verify-full", sslrootcert=path).open("run", "q", CHANGES)
    sink = database.sink("t", create=True, sslmode="verify-full", sslrootcert=database.certificate)
    sink.open("run", "q", CHANGES)
    sink.commit(0, [sink.write(Attempt(0, 0, "a"), iter(as_batches([(1, "x", "+", 1)], CHANGES)))])
    assert database.read("t") == [(1, "x", "+", 1)]


def test_arrays_and_structs_of_a_static_table(database: Database) -> None:
    database.execute(
        f"CREATE TABLE {database.schema}.t (k bigint, a text[], s jsonb, t timestamptz[], d date);"
        f'INSERT INTO {database.schema}.t VALUES (1, \'{{x,NULL,"q,"}}\', \'{{"x": 1.5, "y": ["2026-01-02"]}}\', '
        "'{2026-03-01 08:00:00.5+02}', '2026-03-01'), (NULL, NULL, NULL, '{}', NULL)"
    )
    schema = pa.schema([("k", pa.int64()), ("a", pa.list_(pa.string())), ("d", pa.date32()),
                        ("s", pa.struct([("x", pa.float64()), ("y", pa.list_(pa.date32()))])),
                        ("t", pa.list_(pa.timestamp("us", "UTC")))])  # fmt: skip
    table = PostgresTable((*database.options.items(), ("password", database.password)), f"{database.schema}.t")
    first, second = read_rows(table, schema).to_pylist()
    assert first == {"k": 1, "a": ["x", None, "q,"], "d": date(2026, 3, 1), "s": {"x": 1.5, "y": [date(2026, 1, 2)]},
                     "t": [datetime(2026, 3, 1, 6, 0, 0, 500000, UTC)]}  # fmt: skip
    assert second == {"k": None, "a": None, "d": None, "s": None, "t": []}
    with pytest.raises(ps.QueryError, match="PAYLOAD_TYPE"):
        read_rows(table, pa.schema([("s", pa.map_(pa.string(), pa.int64()))]))


def test_copy_text_becomes_rows() -> None:
    schema = pa.schema([("b", pa.bool_()), ("s", pa.string()), ("z", pa.timestamp("us", "UTC"))])
    found = parse_rows(b't,"",2024-01-02 03:04:05.5+00\n,,\nf,"a,\n""b""",2024-01-02 03:04:05+00\n', schema, "x")
    assert found.column("s").to_pylist() == ["", None, 'a,\n"b"']
    assert found.column("b").to_pylist() == [True, None, False]
    assert found.column("z").cast(pa.int64()).to_pylist() == [1704164645500000, None, 1704164645000000]


# ── on Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = "SELECT k, COUNT(*) AS n FROM a [RANGE 5] GROUP BY k EMIT CHANGES"


def make_rows(number: int) -> pa.Table:
    return pa.table({"ts": [3 * number + at % 3 for at in range(9)], "k": [at % 4 for at in range(9)],
                     "v": ["v"] * 9}, ROWS)  # fmt: skip


def compute_changes(*numbers: int) -> list[tuple[Any, ...]]:
    engine = ps.Engine()
    engine.stream("a", ROWS, time="ts")
    engine.query("q", TEXT)
    found = pa.concat_tables([engine.push({"a": make_rows(number)})["q"] for number in numbers])
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def test_pipeline_with_restart(spark: Any, tmp_path: Path, database: Database) -> None:
    phrase = tmp_path / "phrase"
    phrase.write_text(database.password + "\n")
    for numbers in (range(2), range(2, 4)):
        for number in numbers:
            write_file(tmp_path / "a" / f"{number}.parquet", make_rows(number), number)
        pipe = ps.Pipeline(spark)
        pipe.stream("a", read_stream(spark, ROWS, tmp_path / "a"), "ts")
        secret = {"password": ps.secret_file(phrase), "create": True}
        pipe.query("log", TEXT, sink=database.sink("log", **secret))
        pipe.query("answer", TEXT, sink=database.sink("answer", key=["k"], **secret))
        run = pipe.start(tmp_path / "ck", cells=2)
        try:
            run.processAllAvailable()
        finally:
            run.stop()
    expected = compute_changes(*range(4))
    assert database.read("log") == expected
    net = {(k, n): sum(1 if op == "+" else -1 for a, b, op, _ in expected if (a, b) == (k, n)) for k, n, *_ in expected}
    assert database.read("answer", "k, n") == sorted((row for row, count in net.items() if count), key=repr)
