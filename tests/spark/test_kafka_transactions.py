"""Topics that are written in transactions: readers of committed records have each micro-batch once."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from transaction_support import ROWS, EndedError, Topic, break_producer, restart_broker_before

import penstock as ps

pytestmark = pytest.mark.services
SEEDS = range(int(os.environ.get("PENSTOCK_SEEDS", "2")))


def make_rows(rng: random.Random, batch: int) -> pa.Table:
    size = rng.randrange(30)
    rows = {"k": [rng.randrange(5) for _ in range(size)], "v": [f"{batch}-{at}" for at in range(size)],
            "_ts": [batch] * size}  # fmt: skip
    return pa.table(rows, ROWS)


def as_rows(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    found = pa.concat_tables([ROWS.empty_table(), *tables])
    return sorted(
        (row["k"], row["v"], f"{row['_ts'].isoformat(timespec='microseconds')[:-6]}Z") for row in found.to_pylist()
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_each_batch_once_with_failures(seed: int) -> None:
    rng, topic = random.Random(seed), Topic()
    written, older = [], []
    sink = topic.sink()
    for batch in range(6):
        rows = make_rows(rng, batch)
        written.append(rows)
        for _ in range(rng.randrange(3)):
            if not rows.num_rows:
                break
            break_producer(rng, sink)
            with suppress(EndedError):  # a micro-batch that was committed before its end is not written again
                sink.write(batch, rows)
            older.append(sink)  # it is not closed: a process that hangs may go on
            sink = topic.sink()
        for _ in range(rng.randrange(1, 3)):
            sink.write(batch, rows)
        if rng.random() < 0.3:
            sink = topic.sink()
            sink.write(batch, rows)
    assert topic.read_rows() == as_rows(written)
    assert len(topic.read_rows("read_uncommitted")) >= len(as_rows(written))


def test_older_run_is_fenced() -> None:
    topic, rng = Topic(), random.Random(1)
    old = topic.sink()
    first, second = make_rows(rng, 1), make_rows(rng, 2)
    old.write(0, first)
    new = topic.sink()
    with pytest.raises(ps.DataError, match="SINK_FENCED"):
        old.write(1, second)
    new.write(1, second)
    assert topic.read_rows() == as_rows([first, second])


def test_keys_headers_and_options() -> None:
    topic = Topic()
    rows = pa.table({"k": [1, None, 1], "v": ['ü"\n', None, ""], "_ts": [1, 2, 3]}, ROWS)
    login = {
        "kafka_bootstrap_servers": f"127.0.0.1:{topic.entry['guarded']}", "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
    }  # fmt: skip
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="penstock" password="{}";'
    topic.sink(**login, kafka_sasl_jaas_config=jaas.format(topic.entry["password"])).write(4, rows)
    found = topic.read()
    assert sorted((each.key(), each.value().decode(), dict(each.headers())["penstock-sequence"]) for each in found) == [
        (b"", '{"k": null, "v": null, "_ts": "1970-01-01T00:00:00.000002Z"}', b"1"),
        (b"1", '{"k": 1, "v": "", "_ts": "1970-01-01T00:00:00.000003Z"}', b"2"),
        (b"1", '{"k": 1, "v": "ü\\"\\n", "_ts": "1970-01-01T00:00:00.000001Z"}', b"0"),
    ]
    assert len({each.partition() for each in found if each.key() == b"1"}) == 1
    assert {dict(each.headers())["penstock-batch"] for each in found} == {b"4"}
    wrong = {
        "KAFKA_OPTIONS": {"kafka_no_such": "1"},
        "SINK_OPTIONS": {"startingOffsets": "earliest"},
    }
    for condition, options in wrong.items():
        with pytest.raises(ps.PenstockError, match=condition):
            topic.sink(**options)


def test_keys_that_are_nested_are_refused() -> None:
    sink = ps.sinks.kafka("t", key=["k", "v"], transactional=True, kafka_bootstrap_servers="127.0.0.1:1")
    nested = pa.schema([("k", pa.list_(pa.int64())), ("v", pa.string()), ("_ts", pa.int64())])
    with pytest.raises(ps.QueryError, match=r"SINK_KEY.* cannot have k: arrays, maps and structs are no keys"):
        sink.open("run", "q", nested)


@pytest.mark.parametrize("refuses", ["client", "broker"])
def test_too_large_record_is_not_tried_again(refuses: str) -> None:
    """The client's limit is 1,000,000 bytes, that of the topic is smaller than the record for the broker."""
    topic = Topic()
    options = {"kafka_message_max_bytes": "10000000"} if refuses == "broker" else {}
    sink = topic.sink(**options)
    rows = pa.table({"k": [1, 2], "v": ["small", "x" * 3_000_000], "_ts": [1, 2]}, ROWS)
    with pytest.raises(ps.DataError, match=r"SINK_VALUE.*message\.max\.bytes"):
        sink.write(0, rows)
    assert topic.read_rows() == []
    sink.write(0, rows.slice(0, 1))
    assert [row[1] for row in topic.read_rows()] == ["small"]


@pytest.mark.soak  # other tests use the broker at the same time
@pytest.mark.parametrize("point", ["begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction"])
def test_broker_restarts_within_a_transaction(point: str) -> None:
    topic, rng = Topic(), random.Random(1)
    sink, written = topic.sink(), []
    for batch in range(2):
        written.append(make_rows(rng, batch))
        restart_broker_before(sink, point)
        sink.write(batch, written[-1])
    assert topic.read_rows() == as_rows(written)
