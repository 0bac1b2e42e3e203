"""Kafka fails: a missing topic, lost records, a wrong password, a broker that is away."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from kafka_support import Broker
from services import start_service, stop_service

import penstock as ps
from penstock.spark.driver.failures import translate_error

SCRIPT = """
CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{topic}', startingOffsets '{start}', payload 'json'{more});
CREATE SINK out TO parquet OPTIONS (path '{folder}/out');
INSERT INTO out SELECT k FROM a [NOW];
"""
ROWS = [{"ts": at, "k": at} for at in range(20)]


def write_script(folder: Path, broker: Broker, topic: str, start: str = "earliest", more: str = "") -> Path:
    path = folder / "script.cql"
    text = SCRIPT.format(servers=broker.servers, topic=broker.name(topic), start=start, folder=folder, more=more)
    path.write_text(text)
    return path


def run_to_end(spark: Any, script: Path, checkpoint: str = "ck") -> list[int]:
    """Read what is there; the keys of all results."""
    folder = script.parent
    run = ps.Pipeline.from_script(script, spark).start(folder / checkpoint, cells=1)
    try:
        run.processAllAvailable()
    finally:
        run.stop()
    return sorted(ds.dataset(folder / "out").to_table().column("k").to_pylist())


@pytest.mark.services
def test_missing_topic(spark: Any, tmp_path: Path) -> None:
    broker = Broker(spark)
    more = ", fetchOffset.numRetries 1"
    with pytest.raises(ps.DataError, match=f"TOPIC_MISSING.*{broker.name('nothing')}"):
        run_to_end(spark, write_script(tmp_path, broker, "nothing", more=more))


@pytest.mark.services
def test_records_that_are_no_longer_there(spark: Any, tmp_path: Path) -> None:
    broker = Broker(spark)
    broker.send_rows("t", ROWS)
    broker.delete_records("t", 8)
    start = json.dumps({broker.name("t"): {"0": 5, "1": 0}})
    with pytest.raises(ps.DataError, match=r"OFFSETS_LOST.*failOnDataLoss false"):
        run_to_end(spark, write_script(tmp_path, broker, "t", start))
    assert run_to_end(spark, write_script(tmp_path, broker, "t", start, ", failOnDataLoss false")) == list(range(8, 20))


@pytest.mark.services
def test_wrong_password(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(spark)
    broker.send_rows("t", ROWS)
    servers, broker.servers = broker.servers, broker.guarded_servers
    more = (
        ", kafka.security.protocol 'SASL_PLAINTEXT', kafka.sasl.mechanism 'PLAIN', fetchOffset.numRetries 1,"
        " kafka.sasl.jaas.config secret('TEST_JAAS')"
    )
    script = write_script(tmp_path, broker, "t", more=more)
    broker.servers = servers
    for password in ("wrong-phrase", broker.password):
        monkeypatch.setenv("TEST_JAAS", broker.write_jaas(password))
        if password == broker.password:
            assert run_to_end(spark, script, "right") == list(range(20))
            break
        with pytest.raises(ps.ResourceError, match=r"KAFKA_UNREACHABLE.*check user, password") as caught:
            run_to_end(spark, script, "wrong")
        assert password not in str(caught.value)


@pytest.mark.services
def test_one_percent_of_payloads_is_bad(spark: Any, tmp_path: Path) -> None:
    broker, rng = Broker(spark), random.Random(1)
    bad = set(rng.sample(range(3000), 30))
    spoiled: list[bytes | None] = [b"{", None, b"", b'{"ts": "soon"}', b'{"ts": 1}{"ts": 2}', b"\xff" * 8]
    good = [json.dumps({"ts": at, "k": at}).encode() for at in range(3000)]
    broker.send("t", [spoiled[at % len(spoiled)] if at in bad else good[at] for at in range(3000)])
    assert run_to_end(spark, write_script(tmp_path, broker, "t")) == sorted(set(range(3000)) - bad)
    dead = ds.dataset(next((tmp_path / "ck" / "dead").glob("a*"))).to_table()
    assert sorted(dead.column("_offset").to_pylist()) == sorted(bad)
    assert set(dead.column("_topic").to_pylist()) == {broker.name("t")}


@pytest.mark.services
@pytest.mark.soak  # other tests use the broker at the same time
def test_broker_away_for_a_minute(spark: Any, tmp_path: Path) -> None:
    broker = Broker(spark)
    broker.send_rows("t", ROWS[:10])
    run = ps.Pipeline.from_script(write_script(tmp_path, broker, "t"), spark).start(tmp_path / "ck", cells=1)
    try:
        run.processAllAvailable()
        assert run.status["waiting"] == []
        stop_service("kafka")
        end, told = time.monotonic() + 65, []
        while time.monotonic() < end:
            told += run.status["waiting"]
            assert run.isActive
            time.sleep(1)
        start_service("kafka")
        assert f"no broker of Kafka answers at {broker.servers}; Spark tries again" in told
        broker.send_rows("t", ROWS[10:])
        run.processAllAvailable()
        assert run.status["waiting"] == []
    finally:
        start_service("kafka")
        run.stop()
    assert sorted(ds.dataset(tmp_path / "out").to_table().column("k").to_pylist()) == list(range(20))


def test_errors_of_clients_are_explained() -> None:
    errors = "org.apache.kafka.common.errors"
    cases = {
        "TOPIC_MISSING": f"{errors}.UnknownTopicOrPartitionException: This server does not host it.",
        "OFFSETS_LOST": "KafkaIllegalStateException: Partition t-0's offset was changed from 9 to 2, some data may "
                        "have been missed.",
        "KAFKA_UNREACHABLE": f"{errors}.TimeoutException: Timed out waiting for a node assignment.",
    }  # fmt: skip
    for condition, text in cases.items():
        assert translate_error(Exception(f"kafka KafkaV2[Subscribe[orders]]\n{text}")).condition == condition
    wrong = "terminated with exception: Failed to create new KafkaAdminClient SQLSTATE: XXKST"
    assert translate_error(Exception(wrong)).condition == "KAFKA_OPTIONS"
    assert translate_error(Exception("org.apache.spark.SparkException: Job aborted")).condition == "RUN_FAILED"
