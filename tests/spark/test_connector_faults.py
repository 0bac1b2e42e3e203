"""Kafka to Delta, Iceberg, PostgreSQL and Kafka while the driver is killed and servers restart: every sink is exact.

PENSTOCK_FAULT_ROWS is the number of records of each of the three topics; the soak run has 500,000 in all.
"""

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from iceberg_support import Lake
from kafka_support import Broker
from postgres_support import Database
from services import restart_service

import penstock as ps

pytestmark = [pytest.mark.services, pytest.mark.soak]
ROWS = int(os.environ.get("PENSTOCK_FAULT_ROWS", "4000"))
FULL_ROWS = 166_667
BATCHES = 8
"""Micro-batches that the records of a topic are divided into."""
JOIN = """SELECT a.id AS a, b.id AS b, c.id AS c FROM a [RANGE 300] AS a, b [RANGE 300] AS b, c [RANGE 300] AS c
WHERE a.k = b.k AND b.k = c.k"""
COUNTS = "SELECT k, COUNT(*) AS n FROM b [RANGE 300] GROUP BY k EMIT CHANGES"
STREAM = """CREATE STREAM {name} (ts BIGINT, k BIGINT, id BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{topic}', startingOffsets 'earliest', payload 'json',
    maxOffsetsPerTrigger {limit});
"""
SINKS = """CREATE SINK lake TO delta OPTIONS (path '{folder}/lake');
CREATE SINK ice TO iceberg OPTIONS (table 'db.ice', {iceberg});
CREATE SINK base TO postgres OPTIONS ({postgres}, table '{schema}.base', create true);
CREATE SINK topic TO kafka OPTIONS (kafka.bootstrap.servers '{servers}', topic '{out}');
CREATE SINK once TO kafka OPTIONS (kafka.bootstrap.servers '{servers}', topic '{once}', transactional true);
CREATE SINK lake_counts TO delta OPTIONS (path '{folder}/lake_counts', key 'k');
CREATE SINK ice_counts TO iceberg OPTIONS (table 'db.ice_counts', key 'k', {iceberg});
CREATE SINK base_counts TO postgres OPTIONS ({postgres}, table '{schema}.base_counts', key 'k', create true);
INSERT INTO lake {join}; INSERT INTO ice {join}; INSERT INTO base {join}; INSERT INTO topic {join};
INSERT INTO once {join};
INSERT INTO lake_counts {counts}; INSERT INTO ice_counts {counts}; INSERT INTO base_counts {counts};
"""


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()


def make_rows(name: str, size: int) -> pa.Table:
    keys = np.random.default_rng(ord(name)).integers(0, 400, size)
    return pa.table({"ts": range(size), "k": keys, "id": range(size)})


def as_payloads(rows: pa.Table) -> list[str]:
    return [json.dumps(row) for row in rows.to_pylist()]


def compute_results(size: int) -> tuple[np.ndarray, dict[int, int]]:
    """The rows of the join, sorted, and the counts at the end."""
    engine = ps.Engine()
    for name in "abc":
        engine.stream(name, {"ts": "bigint", "k": "bigint", "id": "bigint"}, time="ts")
    engine.query("join", JOIN)
    engine.query("counts", COUNTS)
    found = engine.push({name: make_rows(name, size) for name in "abc"})
    changes = found["counts"]
    signs = pc.if_else(pc.equal(changes.column("_op"), "+"), 1, -1)
    net = changes.append_column("sign", signs).group_by(["k", "n"]).aggregate([("sign", "sum")])
    left = net.filter(pc.not_equal(net.column("sign_sum"), 0))
    return sort_rows(found["join"]), dict(zip(left["k"].to_pylist(), left["n"].to_pylist(), strict=True))


def sort_rows(table: pa.Table) -> np.ndarray:
    rows = np.stack([table.column(name).to_numpy() for name in "abc"], axis=1)
    return rows[np.lexsort(rows.T[::-1])]


def count_versions(folder: Path) -> int:
    return len(list((folder / "lake" / "_delta_log").glob("*.json")))


def start_driver(script: Path, database: Database, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "run", str(script), "--checkpoint", str(script.parent / "ck"),
               "--cells", "2", *options]  # fmt: skip
    log = (script.parent / "log").open("ab")
    return subprocess.Popen(command, env={**os.environ, "TEST_PHRASE": database.password}, stdout=log, stderr=log)


def wait_for_commits(driver: subprocess.Popen[bytes], folder: Path, commits: int) -> None:
    goal, end = count_versions(folder) + commits, time.monotonic() + 400
    while count_versions(folder) < goal:
        assert driver.poll() is None, (folder / "log").read_text()[-3000:]
        assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
        time.sleep(0.05)


@pytest.mark.parametrize("size", [ROWS, FULL_ROWS])
def test_driver_killed_twice_and_servers_restarted(spark: Any, tmp_path: Path, database: Database, size: int) -> None:
    broker, lake = Broker(spark), Lake(tmp_path)
    text = ""
    for name in "abc":
        broker.send(name, as_payloads(make_rows(name, size)))
        limit = -(-size // BATCHES)
        text += STREAM.format(name=name, servers=broker.servers, topic=broker.name(name), limit=limit)
    text += SINKS.format(folder=tmp_path, schema=database.schema, postgres=database.describe_options("TEST_PHRASE"),
                         servers=broker.servers, out=broker.name("out"), once=broker.name("once"),
                         iceberg=lake.describe_options(), join=JOIN, counts=COUNTS)  # fmt: skip
    script = tmp_path / "script.cql"
    script.write_text(text)
    begun = time.monotonic()
    for commits in (1, 2):
        driver = start_driver(script, database)
        wait_for_commits(driver, tmp_path, commits)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    driver = start_driver(script, database, "--once")
    for service in ("postgres", "kafka"):
        wait_for_commits(driver, tmp_path, 1)
        restart_service(service)
    assert driver.wait(timeout=900) == 0, (tmp_path / "log").read_text()[-3000:]
    print(f"{3 * size} records, {time.monotonic() - begun:.0f} s from the first start to the end of the third")
    join, counts = compute_results(size)
    assert len(join) > size / 10
    assert np.array_equal(sort_rows(DeltaTable(tmp_path / "lake").to_pyarrow_table()), join)
    assert np.array_equal(sort_rows(lake.load("ice").scan().to_arrow()), join)
    rows = np.array(database.read("base", "a, b, c"))
    assert np.array_equal(sort_rows(pa.table(dict(zip("abc", rows.T, strict=True)))), join)
    assert (
        dict(DeltaTable(tmp_path / "lake_counts").to_pyarrow_table(columns=["k", "n"]).to_pandas().to_numpy()) == counts
    )
    assert dict(lake.read("ice_counts", "k", "n")) == counts
    assert dict(database.read("base_counts", "k, n")) == counts
    written = broker.read_distinct("out", "a bigint, b bigint, c bigint")
    print(f"{len(join)} results; {broker.count('out') - len(join)} records of the topic are repetitions")
    assert np.array_equal(sort_rows(written), join)
    assert np.array_equal(sort_rows(broker.read_committed("once", "a bigint, b bigint, c bigint")), join)


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
