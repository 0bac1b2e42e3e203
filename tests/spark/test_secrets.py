"""Secrets of every connector are in no output and no file of a run, Spark's event log included."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from iceberg_support import Lake
from kafka_support import Broker
from postgres_support import Database

import penstock as ps
from penstock.spark.avro import fetch_schema

pytestmark = pytest.mark.services
AVRO = {"type": "record", "name": "r", "fields": [{"name": "ts", "type": "long"}, {"name": "k", "type": "long"}]}
LOGIN = """kafka.bootstrap.servers '{guarded}', kafka.security.protocol 'SASL_PLAINTEXT',
    kafka.sasl.mechanism 'PLAIN', kafka.sasl.jaas.config secret('TEST_JAAS')"""
SCRIPT = """
CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM kafka OPTIONS (
    {kafka}, fetchOffset.numRetries 1, subscribe '{topic}', startingOffsets 'earliest', payload 'avro',
    registry secret('TEST_REGISTRY'));
CREATE STREAM old (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM delta OPTIONS (
    path '{folder}/old', 'some.key' secret('TEST_KEY'));
CREATE STREAM older (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM iceberg OPTIONS (
    table 'db.older', {iceberg}, token secret('TEST_TOKEN'));
CREATE TABLE names (k BIGINT, name STRING) FROM postgres OPTIONS ({postgres}, table '{schema}.names');
CREATE SINK base TO postgres OPTIONS ({postgres}, table '{schema}.base', create true, sslmode 'prefer');
CREATE SINK topic TO kafka OPTIONS ({kafka}, topic '{out}');
CREATE SINK once TO kafka OPTIONS ({kafka}, topic '{once}', transactional true);
CREATE SINK lake TO delta OPTIONS (path '{folder}/lake', 'some.key' secret('TEST_KEY'));
CREATE SINK ice TO iceberg OPTIONS (table 'db.ice', {iceberg}, token secret('TEST_TOKEN'));
INSERT INTO base SELECT a.k, names.name FROM a [NOW] AS a, names WHERE a.k = names.k;
INSERT INTO topic SELECT k FROM a [NOW];
INSERT INTO once SELECT k FROM a [NOW];
INSERT INTO lake SELECT k FROM old [NOW];
INSERT INTO ice SELECT k FROM older [NOW];
"""


QUERIES = ("base", "topic", "once", "lake", "ice")


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.drop()


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a registry with a user and a password."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == f"Basic {b64encode(b'me:registry-phrase').decode()}"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(AVRO)}).encode() if allowed else b"")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://me:registry-phrase@127.0.0.1:{server.server_port}"
        server.shutdown()


def build_command(folder: Path, command: str, script: Path, *more: str) -> list[str]:
    options = list(more)
    if command == "run":
        (folder / "events").mkdir(exist_ok=True)
        settings = {"enabled": "true", "compress": "false", "dir": f"{folder}/events"}
        options += ["--checkpoint", str(folder / "ck")]
        options += [word for name, each in settings.items() for word in ("--conf", f"spark.eventLog.{name}={each}")]
    return [sys.executable, "-m", "penstock", command, str(script), *options]


def build_environment(folder: Path, values: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **values, "TMPDIR": str(folder)}


def run_command(folder: Path, command: str, script: Path, values: dict[str, str]) -> tuple[int, str]:
    more = ["--once"] if command == "run" else []
    ended = subprocess.run(
        build_command(folder, command, script, *more), text=True, check=False, capture_output=True,
        env=build_environment(folder, values),
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


def watch_run(folder: Path, script: Path, values: dict[str, str], is_done: Callable[[], bool]) -> str:
    """Run until all results are there; what it prints, its page, what the page asks for, and its metrics."""
    log = folder / "run.log"
    with log.open("w") as file:
        run = subprocess.Popen(
            build_command(folder, "run", script, "--ui", "0"), stdout=file, stderr=file,
            env=build_environment(folder, values),
        )  # fmt: skip
    try:
        end, found = time.monotonic() + 400, None
        while found is None or not is_done():
            assert run.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.5)
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        told = ""
        asked = [place for name in QUERIES for place in (f"/api/graph?query={name}", f"/api/query?name={name}")]
        for place in ("/", "/metrics", *asked):
            with urllib.request.urlopen(found[0] + place, timeout=60) as answer:
                told += answer.read().decode()
        with urllib.request.urlopen(f"{found[0]}/api/events", timeout=60) as answer:
            told += answer.readline().decode() + answer.readline().decode()
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(200)
    assert "penstock_" in told
    assert all(name in told for name in QUERIES)
    return told + log.read_text()


def test_secrets_are_in_no_output_or_file(
    spark: Any, tmp_path: Path, database: Database, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, lake, folder = Broker(spark), Lake(tmp_path), tmp_path
    rows = pa.table({"ts": [0, 1, 2], "k": [0, 1, 2]})
    write_deltalake(tmp_path / "old", rows)
    lake.create("older", rows.schema)
    lake.load("older").append(rows)
    database.execute(f"CREATE TABLE {database.schema}.names (k bigint, name text)")
    database.execute(f"INSERT INTO {database.schema}.names VALUES (0, 'zero'), (1, '')")
    payloads = []
    for row in rows.to_pylist():
        file = io.BytesIO()
        fastavro.schemaless_writer(file, AVRO, row)
        payloads.append(b"\0" + (3).to_bytes(4, "big") + file.getvalue())
    broker.send("a", payloads)
    script = tmp_path / "script.cql"
    given = {
        "kafka": LOGIN.format(guarded=broker.guarded_servers), "topic": broker.name("a"), "out": broker.name("out"),
        "once": broker.name("once"),
        "folder": folder, "iceberg": lake.describe_options(), "schema": database.schema,
        "postgres": database.describe_options("TEST_PHRASE"),
    }  # fmt: skip
    script.write_text(SCRIPT.format(**given))
    right = {
        "TEST_PHRASE": database.password, "TEST_JAAS": broker.write_jaas(broker.password), "TEST_REGISTRY": registry,
        "TEST_KEY": "key-of-this-test", "TEST_TOKEN": "token-of-this-test",
    }  # fmt: skip
    told = ""
    for command in ("check", "explain"):
        code, said = run_command(folder, command, script, right)
        assert code == 0, said
        told += said

    def is_done() -> bool:
        tables = database.execute(f"SELECT to_regclass('{database.schema}.base') IS NOT NULL")
        return tables == [(True,)] and len(database.read("base")) == 2 and lake.count("ice") == 3

    told += watch_run(folder, script, right, is_done)
    assert database.read("base", "k, name") == [(0, "zero"), (1, "")]
    for topic in ("out", "once"):
        assert sorted(row["k"] for row, _ in broker.read(topic)) == [0, 1, 2]
    assert lake.read("ice", "k") == [(0,), (1,), (2,)]
    broker.send("a", payloads)
    code, said = run_command(folder, "run", script, {**right, "TEST_JAAS": broker.write_jaas("wr0ng-phrase")})
    assert code == 1, said
    assert "KAFKA_UNREACHABLE" in said
    monkeypatch.setenv("TEST_PHRASE", "wr0ng-phrase")
    monkeypatch.setenv("TEST_REGISTRY", registry.replace("registry-phrase", "wr0ng-phrase"))
    schema = pa.schema([("k", pa.int64()), ("_ts", pa.int64())])
    failing: dict[str, Callable[[], object]] = {
        "POSTGRES_UNREACHABLE": lambda: database.sink("t", password=ps.secret("TEST_PHRASE")).open("r", "q", schema),
        "REGISTRY_UNREACHABLE": lambda: fetch_schema(ps.secret("TEST_REGISTRY"), 3),
    }
    for condition, call in failing.items():
        with pytest.raises(ps.ResourceError, match=condition) as caught:
            call()
        told += said + "".join(traceback.format_exception(caught.value))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.parent.name == "events" or "eventlog" in str(path) for path in files)
    values = [database.password, broker.password, "wr0ng-phrase", "registry-phrase", right["TEST_KEY"],
              right["TEST_TOKEN"]]  # fmt: skip
    for value in values:
        assert value not in told
        assert [path for path, content in files.items() if value.encode() in content] == []
