"""Payloads of records: every record becomes rows or a dead letter with a reason, and the others are not affected."""

from __future__ import annotations

import io
import json
import math
import random
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import describe_stream
from penstock.spark.avro import fetch_schema
from penstock.spark.kafka import list_candidates, split_options
from penstock.spark.payloads import Payload
from penstock.state import encode_table

STREAM = describe_stream("s", {"ts": "timestamp", "k": "bigint", "v": "string", "at": "bigint"}, "ts")
NEWER = {
    "type": "record", "name": "r",
    "fields": [{"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
               {"name": "k", "type": "long"}, {"name": "more", "type": "double"}],
}  # fmt: skip
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
    good = encode_avro({"ts": 5, "k": 1, "v": "x"})
    rows, dead = decode(build("avro", schema=json.dumps(AVRO)), [good, good[:-1], good + b"1", b"\xff" * 20])
    assert rows == [(1, "x", 0)]
    assert set(dead) == {1, 2, 3}


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a schema registry that asks for a user and a password."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            schemas = {"/sr/schemas/ids/7": AVRO, "/sr/schemas/ids/8": NEWER, "/sr/schemas/ids/9": {"type": "string"}}
            allowed = self.headers["Authorization"] == f"Basic {b64encode(b'me:p@ss').decode()}"
            status = 401 if not allowed else 200 if self.path in schemas else 404
            self.send_response(status)
            self.end_headers()
            if status == 200:
                self.wfile.write(json.dumps({"schema": json.dumps(schemas[self.path])}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}/sr"
        server.shutdown()


def encode_avro(row: dict[str, Any], schema: Any = AVRO, number: int | None = None) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, row)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + file.getvalue()


def test_schemas_of_a_registry(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", f"http://me:p%40ss@{registry}/")
    payload = build("avro", registry=ps.secret("REGISTRY"))
    good = encode_avro({"ts": 5, "k": 1, "v": "x"}, AVRO, 7)
    newer = encode_avro({"ts": 6, "k": 2, "more": 1.5}, NEWER, 8)  # it has no field v, and another one
    other, unknown = b"\0" + (9).to_bytes(4, "big") + b"\2x", b"\0" + (12).to_bytes(4, "big") + good[5:]
    huge = b"\0" + (7).to_bytes(4, "big") + b"\x02\x02\x02\x02" + b"\xfe" * 9
    rows, dead = decode(payload, [good, newer, good[5:], other, unknown, b"\0\0", huge, None, good])
    assert rows == [(1, "x", 0), (2, None, 1), (1, "x", 8)]
    assert set(dead) == {2, 3, 4, 5, 6, 7}
    assert dead[4] == "the registry has no schema 12"
    for address in (f"http://me:wrong@{registry}", f"http://me:p%40ss@{registry.replace('/sr', '1')}"):
        monkeypatch.setenv("REGISTRY", address)
        fetch_schema.cache_clear()
        with pytest.raises(ps.ResourceError, match="REGISTRY_UNREACHABLE") as caught:
            decode(payload, [good])
        assert not any(word in str(caught.value) for word in ("wrong", "p%40ss", "p@ss"))


def test_avro_schema_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "ts", "type": "long"}]}))
    cases = {
        "has no field k, v; it has ts": str(file),
        "is not that of a record": '"string"',
        "cannot be used": '{"type": "recrd"}',
        "neither JSON nor a file": str(tmp_path / "nothing.avsc"),
    }
    for said, schema in cases.items():
        with pytest.raises(ps.QueryError, match=f"PAYLOAD_SCHEMA.*{said}"):
            build("avro", schema=schema).check(STREAM)
    build("avro", schema=json.dumps(AVRO)).check(STREAM)
    text = json.dumps({**AVRO, "fields": [*AVRO["fields"][:2], {"name": "v", "type": "long"}]})
    with pytest.raises(
        ps.QueryError, match=r"PAYLOAD_SCHEMA.*the field v of type \"long\", but it is declared as string"
    ):
        build("avro", schema=text).check(STREAM)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_payloads_that_continue_one_another(kind: str) -> None:
    """Two payloads are parts of one row, and a third one has two rows: their number is as it should be."""
    row = {"json": f'{{"ts": "{TIME}", "k": 1, "v": "a"}}', "csv": f"{TIME},1,a"}[kind]
    parts = {
        "json": [f'{{"ts": "{TIME}", "k": 2', ', "v": "b"}', f"{row}{row}", '{"k": {}', '{"v": "b"}}'],
        "csv": [f'{TIME},2,"a', 'b"', f"{row}\n{row}", f'{TIME},"2', f'","{row}"', f'{TIME},2,"a"b"'],
    }[kind]
    rng = random.Random(7)
    drawn = [[rng.choice([row, *parts]) for _ in range(rng.randrange(1, 9))] for _ in range(60)]
    for payloads in (parts[:3], [row, parts[2], *parts[:2], row], *drawn):
        rows, dead = decode(build(kind), [each.encode() for each in payloads])
        good = [at for at, each in enumerate(payloads) if each == row]
        assert rows == [(1, "a", at) for at in good], payloads
        assert sorted(dead) == [at for at in range(len(payloads)) if at not in good]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_random_texts_decode_as_they_do_alone(kind: str) -> None:
    """Payloads of the marks of a format: what one becomes does not depend on the others."""
    marks = {"json": ['{"v":"', '"}', "{", "}", ',"k":1', "[", "]", '"', "x", "\n"],
             "csv": ['"', '""', ",", "x", "\n", "\r\n", f"{TIME},1,", " "]}[kind]  # fmt: skip
    row = {"json": f'{{"ts": "{TIME}", "k": 3}}', "csv": f"{TIME},3,"}[kind]
    rng = random.Random(11)
    for _ in range(150):
        texts = ["".join(rng.choices(marks, k=rng.randrange(1, 7))) for _ in range(rng.randrange(1, 7))]
        payloads: list[bytes | None] = [each.encode() for each in (*texts, row)]
        rows, dead = decode(build(kind), payloads)
        alone = [decode(build(kind), [each]) for each in payloads]
        assert rows == [(*row[:2], at) for at, (found, _) in enumerate(alone) for row in found], payloads
        assert sorted(dead) == [at for at, (found, _) in enumerate(alone) if not found]
        assert rows[-1][2] == len(texts)


def test_times_and_dates_in_parts() -> None:
    kinds = {
        "ts": "timestamp",
        "d": "date",
        "a": "array<timestamp>",
        "s": "struct<d: date, a: array<struct<t: timestamp>>>",
    }
    stream = describe_stream("s", kinds, "ts")
    text = {"ts": TIME, "d": "2024-02-29", "a": [f"{TIME}+01:00", None],
            "s": {"d": None, "a": [{"t": TIME}, None, {}]}}  # fmt: skip
    bad = [{"d": "2024-02-30"}, {"d": 3}, {"a": ["soon"]}, {"s": {"a": 1}}]
    empty = [{"ts": TIME, "a": [], "s": None}]
    rows, dead = Payload("json").decode(
        make_records([json.dumps(each).encode() for each in (text, *bad, *empty)]), stream
    )
    time, date = datetime.fromisoformat(TIME), datetime(2024, 2, 29).date()
    assert rows.to_pylist() == [
        {
            "ts": time,
            "d": date,
            "a": [time - timedelta(hours=1), None],
            "s": {"d": None, "a": [{"t": time}, None, {"t": None}]},
        },
        {"ts": time, "d": None, "a": [], "s": None},
    ]
    assert dead.column("_offset").to_pylist() == [1, 2, 3, 4]
    plain = describe_stream("s", {"ts": "timestamp", "d": "date"}, "ts")
    rows, _ = Payload("csv").decode(make_records([f"{TIME},2024-02-29".encode()]), plain)
    assert rows.column("d").to_pylist() == [date]


def test_types_that_texts_do_not_have() -> None:
    for kind, column in (
        ("json", "map<string, int>"),
        ("debezium", "struct<a: map<string, int>>"),
        ("csv", "array<int>"),
    ):
        stream = describe_stream("s", {"ts": "bigint", "v": column}, "ts")
        with pytest.raises(ps.QueryError, match=r"PAYLOAD_TYPE.*column v"):
            Payload(kind).check(stream)
    for delimiter in ("", "ab", '"', "\n", "ü"):
        with pytest.raises(ps.QueryError, match=r"PAYLOAD_OPTIONS.*delimiter"):
            build("csv", delimiter=delimiter)


def test_avro_types() -> None:
    def read(column: str, kind: Any, values: list[Any]) -> tuple[list[Any], set[int]]:
        stream = describe_stream("s", {"ts": "bigint", "v": column}, "ts")
        schema = {
            "type": "record",
            "name": "r",
            "fields": [{"name": "ts", "type": "long"}, {"name": "v", "type": kind}],
        }
        payload = Payload("avro", schema=json.dumps(schema))
        payload.check(stream)
        rows, dead = payload.decode(
            make_records([encode_avro({"ts": 1, "v": each}, schema) for each in values]), stream
        )
        return rows.column("v").to_pylist(), set(dead.column("_offset").to_pylist())

    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    number = UUID("12345678-1234-5678-1234-567812345678")
    assert read("bigint", "double", [1.0, 1.5, math.inf]) == ([1], {1, 2})
    assert read("int", "long", [7, 2**40]) == ([7], {1})
    assert read("decimal(9, 2)", money, [Decimal("1.25")]) == ([Decimal("1.25")], set())
    assert read("string", {"type": "string", "logicalType": "uuid"}, [number]) == ([str(number)], set())
    assert read("date", {"type": "int", "logicalType": "date"}, [19782]) == ([datetime(2024, 2, 29).date()], set())
    assert read("map<string, bigint>", {"type": "map", "values": "long"}, [{"a": 1}]) == ([[("a", 1)]], set())
    assert read("string", ["null", "long", "string"], [1, "a", None]) == (["a", None], {0})
    time = {"type": "long", "logicalType": "timestamp-millis"}
    for column, kind in (
        ("string", "long"),
        ("bigint", "string"),
        ("bigint", time),
        ("timestamp", "long"),
        ("int", "null"),
    ):
        with pytest.raises(ps.QueryError, match=r"PAYLOAD_SCHEMA.*field v of type .* declared as"):
            read(column, kind, [])


def test_large_payloads_and_null_keys() -> None:
    text = "x" * 5_000_000
    large = json.dumps({"ts": TIME, "k": 1, "v": text}).encode()
    keyed = Payload("json", (("at", "offset"), ("v", "key")))
    records = make_records([large, b'{"k": 2', large, None])
    rows, dead = build("json").decode(records, STREAM)
    assert [len(row["v"]) for row in rows.to_pylist()] == [len(text)] * 2
    assert dead.column("_offset").to_pylist() == [1, 3]
    no_keys = records.set_column(1, "key", pa.array([None, b"b", b"\xff\xfe", b"d"]))
    rows, dead = keyed.decode(no_keys, STREAM)
    assert [(row["at"], row["v"]) for row in rows.to_pylist()] == [(0, None), (2, None)]
    numbered = Payload("json", (("at", "offset"), ("k", "key")))
    keys = records.set_column(1, "key", pa.array([b"text", b"b", b"-7", b"d"]))
    assert numbered.decode(keys, STREAM)[0].column("k").to_pylist() == [None, -7]


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
    timed = describe_stream("s", {"ts_ms": "timestamp", "k": "bigint", "v": "string", "_op": "string"}, "ts_ms")
    found, _ = Payload("debezium").decode(records, timed)
    assert found.column("ts_ms").cast(pa.int64()).to_pylist() == [5000, 6000, 7000]


@pytest.mark.parametrize("seed", range(3))
def test_bad_records_do_not_affect_others(seed: int) -> None:
    rng = random.Random(seed)
    expected: list[Any] = []
    payloads: list[bytes | None] = []
    for at in range(300):
        if rng.random() < (0.01, 0.2, 0.9)[seed]:
            payloads.append(rng.choice([b"{", b"", b"\n\n", b'{"v": "\xff"}', None, b"[]", b'{"k": {}}', b"\xff\xfe"]))
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
