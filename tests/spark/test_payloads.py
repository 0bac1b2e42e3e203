"""Payloads of records: every record becomes rows or a dead letter with a reason, and the others are not affected."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import describe_stream
from penstock.spark.kafka import list_candidates, split_options
from penstock.spark.payloads import Payload
from penstock.state import encode_table

STREAM = describe_stream("s", {"ts": "timestamp", "k": "bigint", "v": "string", "at": "bigint"}, "ts")
TIME = "2024-01-01T00:00:00"
AVRO = {
    "type": "record", "name": "r",
    "fields": [{"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
               {"name": "k", "type": ["null", "long"]}, {"name": "v", "type": ["null", "string"]}],
}  # fmt: skip


def make_records(payloads: list[bytes | None]) -> pa.Table:
    size = len(payloads)
    return pa.table({
        "value": pa.array(payloads, pa.binary()), "key": pa.array([b"k"] * size), "topic": ["t"] * size,
        "partition": pa.array([3] * size, pa.int32()), "offset": pa.array(range(size), pa.int64()),
        "timestamp": pa.array([0] * size, pa.timestamp("us", "UTC")), "headers": pa.nulls(size, pa.string()),
    })  # fmt: skip


def decode(payload: Payload, payloads: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """(k, v, offset) of the rows, and the reason by the offset of the dead letter."""
    rows, dead = payload.decode(make_records(payloads), STREAM)
    assert rows.schema == STREAM.schema
    found = [(row["k"], row["v"], row["at"]) for row in rows.to_pylist()]
    assert all(row["_topic"] == "t" and row["_partition"] == 3 for row in dead.to_pylist())
    assert [row["_payload"] for row in dead.to_pylist()] == [payloads[row["_offset"]] for row in dead.to_pylist()]
    return found, {row["_offset"]: row["_reason"] for row in dead.to_pylist()}


def build(kind: str, **options: str) -> Payload:
    return Payload(kind, (("at", "offset"),), **options)


def test_json_payloads() -> None:
    text = [f'{{"ts": "{TIME}", "k": 1, "v": "a\\nb", "more": {{"x": []}}}}', f'{{"ts":\n"{TIME}Z"}}', "nonsense", "  ",
            f'{{"ts": "{TIME}", "k": "text"}}', f'{{"ts": "{TIME}"}}{{"ts": "{TIME}"}}', '{"ts": "soon"}', "3",
            f'{{"ts": "{TIME}+01:00", "k": 9}}']  # fmt: skip
    rows, dead = decode(build("json"), [*(each.encode() for each in text), None])
    assert rows == [(1, "a\nb", 0), (None, None, 1), (9, None, 8)]
    assert set(dead) == {2, 3, 4, 5, 6, 7, 9}
    assert dead[9] == "the payload is empty"
    assert "soon" in dead[6]


def test_csv_payloads() -> None:
    text = [f'{TIME},1,"a,\nb"', f"{TIME}Z,,", f"{TIME},x,", "1,2", f'{TIME},2,""', ""]
    rows, dead = decode(build("csv"), [each.encode() for each in text])
    assert rows == [(1, "a,\nb", 0), (None, None, 1), (2, "", 4)]
    assert set(dead) == {2, 3, 5}


def test_arrow_payloads() -> None:
    table = pa.table({"v": ["x", "y"], "k": [1, 2], "ts": pa.array([0, 1], pa.timestamp("us"))})
    rows, dead = decode(build("arrow"), [encode_table(table), b"no", encode_table(table.drop_columns("k"))])
    assert rows == [(1, "x", 0), (2, "y", 0)]
    assert set(dead) == {1, 2}


def test_avro_payloads() -> None:
    def encode(row: dict[str, Any], schema: Any = AVRO) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, schema, row)
        return file.getvalue()

    good = encode({"ts": 5, "k": 1, "v": "x"})
    rows, dead = decode(build("avro", schema=json.dumps(AVRO)), [good, good[:-1], good + b"1", b"\xff" * 20])
    assert rows == [(1, "x", 0)]
    assert set(dead) == {1, 2, 3}


def test_debezium_payloads() -> None:
    stream = describe_stream("s", {"ts_ms": "bigint", "k": "bigint", "v": "string", "_op": "string"}, "ts_ms")
    changes = [
        {"before": None, "after": {"k": 1, "v": "a"}, "op": "c", "ts_ms": 5, "source": {"lsn": 3}},
        {"schema": {"type": "struct"}, "payload": {"before": {"k": 1, "v": "a"}, "after": None, "op": "d", "ts_ms": 6}},
        {"before": {"k": 2}, "after": {"k": 2, "v": None}, "op": "u", "ts_ms": 7},
        {"before": None, "after": None, "op": "d", "ts_ms": 7},
        {"after": {"k": 3}, "op": "x", "ts_ms": 8},
        {"k": 3},
    ]
    records = make_records([*(json.dumps(each).encode() for each in changes), None, b"broken"])
    rows, dead = Payload("debezium").decode(records, stream)
    assert [tuple(row.values()) for row in rows.to_pylist()] == [(5, 1, "a", "+"), (6, 1, "a", "-"), (7, 2, None, "+")]
    assert [row["_offset"] for row in dead.to_pylist()] == [3, 4, 5, 7]


@pytest.mark.parametrize("seed", range(3))
def test_bad_records_do_not_affect_others(seed: int) -> None:
    rng = random.Random(seed)
    expected: list[Any] = []
    payloads: list[bytes | None] = []
    for at in range(300):
        if rng.random() < (0.01, 0.2, 0.9)[seed]:
            payloads.append(rng.choice([b"{", b"", b"\n\n", None, b"[]", b'{"k": {}}', b"\xff\xfe"]))
        else:
            expected.append((at, "v" * rng.randrange(3), at))
            payloads.append(json.dumps({"ts": TIME, "k": at, "v": expected[-1][1]}).encode())
    rows, dead = decode(build("json"), payloads)
    assert rows == expected
    assert len(rows) + len(dead) == len(payloads)


def test_wrong_options() -> None:
    for options in ({"payload": "xml"}, {"payload": "avro"}, {"keyColumn": "k"}):
        with pytest.raises(ps.QueryError):
            split_options(options)
    payload, rest = split_options({"Payload": "JSON", "offsetColumn": "at", "headersColumn": "h", "subscribe": "t"})
    assert payload == Payload("json", (("at", "offset"), ("h", "headers")))
    assert rest == {"subscribe": "t", "includeHeaders": "true"}
    with pytest.raises(ps.QueryError, match="PAYLOAD_OPTIONS"):
        Payload("json", (("nothing", "key"),)).check(STREAM)


def test_connector_versions() -> None:
    assert list_candidates("4.2.0")[:3] == ["4.2.0", "4.1.4", "4.1.3"]
    assert list_candidates("4.3.1")[:2] == ["4.3.1", "4.3.0"]
