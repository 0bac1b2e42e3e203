"""The examples of connectors, run against real servers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kafka_support import Broker
from postgres_support import Database

import penstock as ps

pytestmark = pytest.mark.services
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()


def write_script(name: str, folder: Path, broker: Broker, database: Database, tables: tuple[str, ...]) -> Path:
    """An example with the servers, topics and tables of a test."""
    text = (EXAMPLES / name).read_text().replace("localhost:9092", broker.servers).replace("'localhost'", "'127.0.0.1'")
    text = text.replace("port 5432", f"port {database.options['port']}")
    phrase = folder / "phrase"  # workers of the session do not see new environment variables
    phrase.write_text(database.password)
    text = text.replace("secret('SHOP_PASSWORD')", f"secret_file('{phrase}')")
    text = text.replace("'out/", f"'{folder}/out/")
    for table in tables:
        text = text.replace(f"table '{table}'", f"table '{database.schema}.{table}'")
    for topic in ("orders", "payments", "shipments", "shop.customers"):
        text = text.replace(f"subscribe '{topic}'", f"subscribe '{broker.name(topic)}'")
    script = folder / name
    script.write_text(text)
    return script


def run_once(spark: Any, script: Path) -> None:
    run = ps.Pipeline.from_script(script, spark).start(script.parent / "ck", trigger={"availableNow": True}, cells=2)
    try:
        assert run.awaitTermination(500)
    finally:
        run.stop()


def stamp(minutes: int) -> str:
    return f"2026-03-01T{8 + minutes // 60:02d}:{minutes % 60:02d}:00Z"


def test_shipments(spark: Any, tmp_path: Path, database: Database) -> None:
    broker = Broker(spark)
    script = write_script("shipments.cql", tmp_path, broker, database, ("lorries",))
    ids = range(60)
    broker.send_rows("orders", [{"ts": stamp(at), "id": at, "item": "book", "amount": 1.5} for at in ids])
    broker.send_rows("payments", [{"ts": stamp(at + 1), "id": at, "paid": 1.5} for at in ids if at % 3])
    late = [(at + 10 - 9 * (at % 2), at) for at in ids]  # every second one is reported nine minutes late
    broker.send("shipments", [f"{stamp(minute)},{at},lorry-{at % 2}" for minute, at in late])
    run_once(spark, script)
    found = DeltaTable(tmp_path / "out" / "shipments" / "delivered").to_pyarrow_table().to_pylist()
    # the largest time of shipments is 09:08, less the lateness of ten minutes
    assert sorted(row["id"] for row in found) == [
        at for minute, at in sorted(late, key=lambda each: each[1]) if at % 3 and max(minute, at + 1) < 58
    ]
    parcels = dict(database.read("lorries", "lorry, parcels"))
    assert parcels == {name: sum(at % 2 == int(name[-1]) and minute < 58 for minute, at in late) for name in parcels}
    assert len(parcels) == 2


START = 1_772_000_000_000
"""Milliseconds."""


def draw_customers(size: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Changes of customers, as rows with `_op` and as records of Debezium."""
    rng, present = random.Random(7), {}
    for at in range(size):
        key, time = rng.randrange(6), START + 60_000 * at
        before = present.get(key)
        if before and rng.random() < 0.3:
            del present[key]
            row, record = {**before, "_op": "-"}, {"before": before, "after": None, "op": "d", "ts_ms": time}
        else:
            present[key] = {"id": key, "name": f"name {at}", "country": rng.choice(["NO", None, "O'Land"])}
            row = {**present[key], "_op": "+"}
            record = {"before": before, "after": present[key], "op": "u" if before else "c", "ts_ms": time}
        yield {**row, "ts_ms": time}, json.dumps(record).encode()


def test_enrichment_with_an_updating_dimension(spark: Any, tmp_path: Path, database: Database) -> None:
    broker = Broker(spark)
    script = write_script("enrichment.cql", tmp_path, broker, database, ("open_orders",))
    changes = list(draw_customers(40))
    orders = [{"ts": START + 60_000 * at + 1000, "id": at, "customer": at % 7, "amount": at / 4} for at in range(40)]
    engine = ps.Engine()
    time = "timestamp(UTC)"
    engine.stream("orders", {"ts": time, "id": "bigint", "customer": "bigint", "amount": "double"}, time="ts")
    columns = {"ts_ms": time, "id": "bigint", "name": "string", "country": "string"}
    engine.table("customers", columns, key="id", time="ts_ms")
    text = script.read_text()
    engine.query("q", text[text.index("SELECT o.id") :].rstrip().rstrip(";"))
    answer: set[tuple[Any, ...]] = set()
    for part in (slice(0, 25), slice(25, 40)):
        broker.send("shop.customers", [record for _, record in changes[part]])
        sent = [{**row, "ts": f"{as_time(row['ts']).as_py().isoformat()}"} for row in orders[part]]
        broker.send_rows("orders", sent)
        run_once(spark, script)
        pushed = {
            "customers": as_table([row for row, _ in changes[part]], "ts_ms"),
            "orders": as_table(orders[part], "ts"),
        }
        for row in engine.push(pushed)["q"].to_pylist():
            values = (row["id"], row["amount"], row["name"], row["country"])
            (answer.add if row["_op"] == "+" else answer.remove)(values)
        assert set(database.read("open_orders", "id, amount, name, country")) == answer
    assert len(answer) == 39  # the last order waits for a later change of a customer
    assert 5 < sum(name is None for _, _, name, _ in answer) < 35


def as_time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(1000 * milliseconds, pa.timestamp("us", "UTC"))


def as_table(rows: list[dict[str, Any]], time: str) -> pa.Table:
    table = pa.Table.from_pylist(rows)
    times = pa.array([1000 * row[time] for row in rows], pa.timestamp("us", "UTC"))
    return table.set_column(table.column_names.index(time), time, times)
