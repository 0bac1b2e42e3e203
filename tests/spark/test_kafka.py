"""Kafka as source and sink of a pipeline, on a real broker."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kafka_support import Broker

import penstock as ps
from penstock.cql import describe_stream
from penstock.spark.kafka import add_connector
from penstock.spark.payloads import Payload
from penstock.spark.sinks import CELL_COLUMN, SEQUENCE_COLUMN, sink_connector
from penstock.spark.worker.unpack import build_numbered_map, unpack_frame
from penstock.state import encode_table
from penstock.testing import difference

SCRIPT = """
CREATE STREAM a (ts TIMESTAMP, k BIGINT, v STRING, place BIGINT, topic STRING) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{a},{more}', startingOffsets 'earliest', payload 'json',
    offsetColumn 'place', topicColumn 'topic');
CREATE STREAM b (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{b}', startingOffsets 'earliest', payload 'csv');
CREATE SINK out TO kafka OPTIONS (kafka.bootstrap.servers '{servers}', topic '{out}', key 'k');
INSERT INTO out SELECT a.k, a.v, b.ts AS other FROM a [RANGE 5 SECONDS] AS a, b [RANGE 5 SECONDS] AS b WHERE a.k = b.k;
"""
ROWS = [{"ts": f"2024-01-01T00:00:{at:02d}Z", "k": at % 3, "v": None if at % 4 else f"v{at}"} for at in range(20)]


def compute_results() -> pa.Table:
    engine = ps.Engine()
    engine.stream("a", {"ts": "timestamp(UTC)", "k": "bigint", "v": "string"}, time="ts")
    engine.stream("b", {"ts": "timestamp(UTC)", "k": "bigint"}, time="ts")
    engine.query("q", "SELECT a.k, a.v, b.ts AS other FROM a [RANGE 5 SECONDS] AS a, b [RANGE 5 SECONDS] AS b "
                      "WHERE a.k = b.k")  # fmt: skip
    table = pa.table({name: [row[name] for row in ROWS] for name in ("ts", "k", "v")})
    table = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
    return engine.push({"a": table, "b": table.select(["ts", "k"])})["q"]


@pytest.mark.services
def test_topics_to_topic_with_restart_and_bad_payloads(spark: Any, tmp_path: Path) -> None:
    broker = Broker(spark)
    names = {name: broker.name(name) for name in ("a", "more", "b", "out")}
    path = tmp_path / "script.cql"
    path.write_text(SCRIPT.format(servers=broker.servers, **names))
    for rows in (slice(0, 10), slice(10, 20)):
        broker.send_rows("a", ROWS[rows][::2])
        broker.send_rows("more", ROWS[rows][1::2])
        broker.send("b", [f"{row['ts']},{row['k']}" for row in ROWS[rows]])
        broker.send("a", ["{broken", ""])
        run = ps.Pipeline.from_script(path, spark).start(tmp_path / "ck", cells=2)
        try:
            run.processAllAvailable()
        finally:
            run.stop()
    written = broker.read("out")
    schema = compute_results().schema
    found = pa.table({name: [row.get(name) for row, _ in written] for name in schema.names})
    found = pa.table([found.column(field.name).cast(field.type) for field in schema], schema=schema)
    assert not difference(found, compute_results())
    marks = {tuple(sorted(headers.items())) for _, headers in written}
    assert len(marks) == len(written)
    assert {key for mark in marks for key, _ in mark} == {
        "penstock-run", "penstock-batch", "penstock-cell", "penstock-sequence"
    }  # fmt: skip
    dead = ds.dataset(next((tmp_path / "ck" / "dead").glob("a*"))).to_table().to_pylist()
    assert sorted(row["_payload"] for row in dead) == [b"", b"", b"{broken", b"{broken"]
    assert {row["_topic"] for row in dead} == {names["a"]}
    assert all(row["_reason"] and row["_offset"] is not None for row in dead)


def test_missing_connector_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=None), version="4.3.0")
    with pytest.raises(ps.ResourceError, match="doctor --fetch") as caught:
        add_connector(session)
    assert "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION" in str(caught.value)


def test_sequence_does_not_depend_on_order() -> None:
    plain = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    marked = pa.schema([*plain, (CELL_COLUMN, pa.int32()), (SEQUENCE_COLUMN, pa.int64())])
    rows = [(2, "b"), (1, None), (2, "b"), (1, "a")]

    def number(parts: list[list[tuple[int, str | None]]]) -> list[tuple[Any, ...]]:
        blobs = [encode_table(pa.table([[r[0] for r in part], [r[1] for r in part]], schema=plain)) for part in parts]
        batch = pa.record_batch({"cell": pa.array([7] * len(blobs), pa.int32()), "data": pa.array(blobs, pa.binary())})
        (found,) = build_numbered_map(plain, marked)(iter([batch]))
        return sorted(map(tuple, (row.values() for row in found.to_pylist())), key=repr)

    assert number([rows]) == number([rows[:1], rows[:0:-1]])


KINDS: dict[str, pa.DataType] = {
    "t": pa.timestamp("us", "UTC"), "n": pa.timestamp("us"), "d": pa.date32(), "f": pa.float64(),
    "m": pa.decimal128(20, 10), "a": pa.list_(pa.string()), 'o "ü".`': pa.string(),
    "s": pa.struct([("x", pa.int32()), ("t", pa.timestamp("us", "UTC"))]),
}  # fmt: skip


@pytest.mark.services
def test_values_survive_a_topic(spark: Any) -> None:
    """Microseconds, digits of decimals, arrays and structs, NULL, odd names: read by the payload of a stream again."""
    broker = Broker(spark)
    instant = datetime(2026, 3, 1, 8, 0, 0, 123456)
    zoned = instant.replace(tzinfo=UTC)
    rows = [
        {"t": zoned, "n": instant, "d": date(2026, 3, 1), "f": 0.1 + 0.2, "m": Decimal("1.0000000001"),
         "a": ["x", None], "s": {"x": 1, "t": zoned}, 'o "ü".`': 'a"\n\x00'},
        dict.fromkeys(KINDS),
        {**dict.fromkeys(KINDS), "a": [], "s": {"x": None, "t": None}, "f": -0.0},
    ]  # fmt: skip
    schema = pa.schema(list(KINDS.items()))
    sink = ps.sinks.kafka(broker.name("t"), kafka_bootstrap_servers=broker.servers)
    sink.open("run", "q", schema)
    blobs = [(0, "result", "q", 3, encode_table(pa.Table.from_pylist(rows, schema)))]
    frame = spark.createDataFrame(blobs, "cell int, kind string, name string, rows long, data binary")
    sink.write(unpack_frame(frame, ("result", "q"), schema, numbered=True), 0)
    values = broker.read_values("t")
    stream = describe_stream("s", pa.schema([("ts", pa.int64()), *schema]), "ts")
    size = len(values)
    records = pa.table({
        "value": pa.array([b'{"ts": 1, ' + bytes(value)[1:] for value in values], pa.binary()),
        "key": pa.nulls(size, pa.binary()), "topic": ["t"] * size, "partition": pa.array([0] * size, pa.int32()),
        "offset": pa.array(range(size), pa.int64()), "timestamp": pa.array([0] * size, pa.timestamp("us", "UTC")),
        "headers": pa.nulls(size, pa.string()),
    })  # fmt: skip
    found, dead = Payload("json").decode(records, stream)
    assert dead.column("_reason").to_pylist() == []
    written = pa.Table.from_pylist(rows, schema).to_pylist()
    assert sorted(map(repr, found.drop_columns(["ts"]).to_pylist())) == sorted(map(repr, written))


def test_changes_are_written_in_the_order_of_time() -> None:
    plain = pa.schema([("c0", pa.list_(pa.int64())), ("c1", pa.string()), ("c2", pa.int64())])
    marked = pa.schema([*plain, (CELL_COLUMN, pa.int32()), (SEQUENCE_COLUMN, pa.int64())])
    rows = [([1], "+", 5), ([2], "-", 5), ([9], "+", 1), (None, "-", 6), ([1], "+", 5)]
    blob = encode_table(pa.table(list(map(list, zip(*rows, strict=True))), schema=plain))
    batch = pa.record_batch({"cell": pa.array([0], pa.int32()), "data": pa.array([blob], pa.binary())})
    order = [("c2", "ascending"), ("c1", "descending")]
    (found,) = build_numbered_map(plain, marked, order)(iter([batch]))
    assert [tuple(row.values())[:3] for row in found.to_pylist()] == [rows[2], rows[1], rows[0], rows[4], rows[3]]


def test_sinks_with_passwords_are_not_described() -> None:
    def describe(**options: str) -> Any:
        return sink_connector(ps.sinks.kafka("t", **{"kafka.bootstrap.servers": "host:9092", **options}))

    assert describe(**{"kafka.compression.type": "zstd", "kafka.ssl.key.password": ps.secret("X")}) is not None
    for name in ("kafka.ssl.keystore.key", "kafka.sasl.jaas.config", "kafka.ssl.key.password"):
        assert describe(**{name: "phrase"}) is None
    for options in ({"password": "x"}, {"sslpassword": "x"}, {"dbname": "postgresql://me:x@host/db"},
                    {"dbname": "host=a password=x"}):  # fmt: skip
        assert sink_connector(ps.sinks.postgres("t", **options)) is None
    assert sink_connector(ps.sinks.postgres("t", password=ps.secret("X"), sslmode="require", passfile="/p")) is not None
