"""Kafka to Delta, PostgreSQL and Kafka while the driver is killed: every sink ends with exactly the results."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kafka_support import Broker
from postgres_support import Database
from services import restart_service

import penstock as ps

pytestmark = [pytest.mark.services, pytest.mark.soak]
ROWS = int(os.environ.get("PENSTOCK_FAULT_ROWS", "4000"))
TEXT = """SELECT a.id AS a, b.id AS b, c.id AS c FROM a [RANGE 300] AS a, b [RANGE 300] AS b, c [RANGE 300] AS c
WHERE a.k = b.k AND b.k = c.k"""
STREAM = """CREATE STREAM {name} (ts BIGINT, k BIGINT, id BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{topic}', startingOffsets 'earliest', payload 'json',
    maxOffsetsPerTrigger {limit});
"""
SINKS = """CREATE SINK lake TO delta OPTIONS (path '{folder}/lake');
CREATE SINK base TO postgres OPTIONS (host '127.0.0.1', port {port}, user 'penstock', dbname 'postgres',
    password secret('TEST_PHRASE'), table '{schema}.base', create true);
CREATE SINK topic TO kafka OPTIONS (kafka.bootstrap.servers '{servers}', topic '{out}');
INSERT INTO lake {text}; INSERT INTO base {text}; INSERT INTO topic {text};
"""


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()


def make_rows(name: str) -> list[dict[str, int]]:
    rng = random.Random(name)
    return [{"ts": at, "k": rng.randrange(200), "id": at} for at in range(ROWS)]


def compute_results() -> list[tuple[int, ...]]:
    engine = ps.Engine()
    for name in "abc":
        engine.stream(name, {"ts": "bigint", "k": "bigint", "id": "bigint"}, time="ts")
    engine.query("q", TEXT)
    found = engine.push({name: pa.Table.from_pylist(make_rows(name)) for name in "abc"})["q"]
    return sorted((row["a"], row["b"], row["c"]) for row in found.to_pylist())


def count_versions(folder: Path) -> int:
    return len(list((folder / "lake" / "_delta_log").glob("*.json")))


def start_driver(script: Path, database: Database, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "run", str(script), "--checkpoint", str(script.parent / "ck"),
               "--cells", "2", *options]  # fmt: skip
    log = (script.parent / "log").open("ab")
    return subprocess.Popen(command, env={**os.environ, "TEST_PHRASE": database.password}, stdout=log, stderr=log)


def wait_for_commits(driver: subprocess.Popen[bytes], folder: Path, commits: int) -> None:
    goal, end = count_versions(folder) + commits, time.monotonic() + 400
    while count_versions(folder) < goal and driver.poll() is None:
        assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
        time.sleep(0.05)


def test_driver_killed_twice_and_server_restarted(spark: Any, tmp_path: Path, database: Database) -> None:
    broker = Broker(spark)
    text = ""
    for name in "abc":
        broker.send_rows(name, make_rows(name))
        text += STREAM.format(name=name, servers=broker.servers, topic=broker.name(name), limit=max(1, ROWS // 6))
    text += SINKS.format(folder=tmp_path, port=database.options["port"], schema=database.schema,
                         servers=broker.servers, out=broker.name("out"), text=TEXT)  # fmt: skip
    script = tmp_path / "script.cql"
    script.write_text(text)
    for commits in (1, 2):
        driver = start_driver(script, database)
        wait_for_commits(driver, tmp_path, commits)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    # one micro-batch each: the one that the killed driver had planned, if any, then the rest
    assert start_driver(script, database, "--once").wait(timeout=500) == 0, (tmp_path / "log").read_text()[-3000:]
    planned = len(list((tmp_path / "ck" / "offsets").glob("[0-9]*")))
    driver = start_driver(script, database, "--once")
    while len(list((tmp_path / "ck" / "offsets").glob("[0-9]*"))) == planned and driver.poll() is None:
        time.sleep(0.05)
    restart_service("postgres")
    assert driver.wait(timeout=500) == 0, (tmp_path / "log").read_text()[-3000:]
    expected = compute_results()
    assert len(expected) > ROWS / 10
    lake = DeltaTable(tmp_path / "lake").to_pyarrow_table(columns=["a", "b", "c"]).to_pylist()
    assert sorted(tuple(row.values()) for row in lake) == expected
    assert sorted(database.read("base", "a, b, c")) == expected
    once = {tuple(sorted(headers.items())): (row["a"], row["b"], row["c"]) for row, headers in broker.read("out")}
    assert sorted(once.values()) == expected


EXAMPLE = Path(__file__).parents[2] / "examples" / "shipments.cql"


def stamp(minutes: int) -> str:
    return f"2026-03-01T{8 + minutes // 60:02d}:{minutes % 60:02d}:00Z"


def test_shipments_example(spark: Any, tmp_path: Path, database: Database) -> None:
    broker = Broker(spark)
    text = EXAMPLE.read_text().replace("localhost:9092", broker.servers).replace("'localhost'", "'127.0.0.1'")
    text = text.replace("port 5432", f"port {database.options['port']}").replace("SHOP_PASSWORD", "TEST_PHRASE")
    text = text.replace("table 'lorries'", f"table '{database.schema}.lorries'").replace("'out/", f"'{tmp_path}/out/")
    for topic in ("orders", "payments", "shipments"):
        text = text.replace(f"subscribe '{topic}'", f"subscribe '{broker.name(topic)}'")
    script = tmp_path / "script.cql"
    script.write_text(text)
    ids = range(60)
    broker.send_rows("orders", [{"ts": stamp(at), "id": at, "item": "book", "amount": 1.5} for at in ids])
    broker.send_rows("payments", [{"ts": stamp(at + 1), "id": at, "paid": 1.5} for at in ids if at % 3])
    late = [(at + 10 - 9 * (at % 2), at) for at in ids]  # every second one is reported nine minutes late
    broker.send("shipments", [f"{stamp(minute)},{at},lorry-{at % 2}" for minute, at in late])
    driver = start_driver(script, database, "--once")
    assert driver.wait(timeout=500) == 0, (tmp_path / "log").read_text()[-3000:]
    found = DeltaTable(tmp_path / "out" / "shipments" / "delivered").to_pyarrow_table().to_pylist()
    # the largest time of shipments is 09:08, less the lateness of ten minutes
    assert sorted(row["id"] for row in found) == [
        at for minute, at in sorted(late, key=lambda each: each[1]) if at % 3 and max(minute, at + 1) < 58
    ]
    parcels = dict(database.read("lorries", "lorry, parcels"))
    assert parcels == {name: sum(at % 2 == int(name[-1]) and minute < 58 for minute, at in late) for name in parcels}
    assert len(parcels) == 2


UPDATING = """CREATE TABLE prices (ts_ms BIGINT, item BIGINT, price DOUBLE, PRIMARY KEY (item)) TIMESTAMP BY ts_ms
    FROM kafka OPTIONS (kafka.bootstrap.servers '{servers}', subscribe '{prices}', startingOffsets 'earliest',
        payload 'debezium');
CREATE STREAM orders (ts BIGINT, item BIGINT, id BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{orders}', startingOffsets 'earliest', payload 'json');
CREATE SINK priced TO delta OPTIONS (path '{folder}/priced');
INSERT INTO priced SELECT o.id, p.price FROM orders [NOW] AS o JOIN prices AS p ON o.item = p.item;
"""


def draw_prices(size: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Changes of prices, as rows with `_op` and as records of Debezium."""
    rng, present = random.Random(7), {}
    for at in range(size):
        item = rng.randrange(5)
        before = present.get(item)
        if before and rng.random() < 0.3:
            del present[item]
            row, record = {**before, "_op": "-"}, {"before": before, "after": None, "op": "d", "ts_ms": at}
        else:
            present[item] = {"item": item, "price": float(rng.randrange(9))}
            row = {**present[item], "_op": "+"}
            record = {"before": before, "after": present[item], "op": "u" if before else "c", "ts_ms": at}
        yield {**row, "ts_ms": at}, json.dumps(record).encode()


def test_updating_table_from_debezium(spark: Any, tmp_path: Path, database: Database) -> None:
    broker = Broker(spark)
    changes = list(draw_prices(60))
    orders = [{"ts": at, "item": at % 5, "id": at} for at in range(60)]
    broker.send("prices", [record for _, record in changes])
    broker.send_rows("orders", orders)
    names = {name: broker.name(name) for name in ("prices", "orders")}
    script = tmp_path / "script.cql"
    script.write_text(UPDATING.format(servers=broker.servers, folder=tmp_path, **names))
    assert start_driver(script, database, "--once").wait(timeout=500) == 0, (tmp_path / "log").read_text()[-3000:]
    engine = ps.Engine()
    engine.table("prices", {"ts_ms": "bigint", "item": "bigint", "price": "double"}, key="item", time="ts_ms")
    engine.stream("orders", {"ts": "bigint", "item": "bigint", "id": "bigint"}, time="ts")
    engine.query("q", "SELECT o.id, p.price FROM orders [NOW] AS o JOIN prices AS p ON o.item = p.item")
    pushed = {"prices": pa.Table.from_pylist([row for row, _ in changes]), "orders": pa.Table.from_pylist(orders)}
    expected = engine.push(pushed)["q"].to_pylist()
    found = DeltaTable(tmp_path / "priced").to_pyarrow_table().to_pylist()
    assert len(found) > 20
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
