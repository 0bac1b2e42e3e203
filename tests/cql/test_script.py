"""Scripts: declarations, derived streams and INSERT INTO, with the interface's own example."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cql_catalog import DECLARATIONS, INTERFACE_SCRIPT, build_catalog

from penstock.cql import (
    BareQuery,
    Catalog,
    Connector,
    CqlError,
    CreateStreamAs,
    InsertInto,
    Select,
    Stream,
    Table,
    bind_query,
    bind_script,
)
from penstock.cql.bound import CreateSink, CreateStream, CreateTable


def test_interface_example() -> None:
    names = Catalog()
    kinds = [CreateStream, CreateStream, CreateTable, CreateSink, InsertInto]
    statements = bind_script(INTERFACE_SCRIPT, names)
    assert [type(statement) for statement in statements] == kinds
    columns = pa.schema([("ts", pa.timestamp("us")), ("location", pa.int32()), ("value", pa.float64())])
    options = (("path", "data/temperature"), ("maxFilesPerTrigger", "1"))
    assert names.relations["TEMPERATURE"] == Stream(
        "temperature",
        columns,
        "ts",
        lateness=5_000_000,
        skew=1_000_000,
        idle_after=30_000_000,
        connector=Connector("parquet", options),
    )
    humidity = names.relations["humidity"]
    assert isinstance(humidity, Stream)
    assert humidity.timestamps == "internal"
    assert names.relations["rooms"] == Table(
        "rooms",
        pa.schema([("location", pa.int32()), ("name", pa.string())]),
        Connector("csv", (("path", "rooms.csv"), ("header", "true"))),
    )
    assert names.sinks["alarms"].connector == Connector("parquet", (("path", "out/alarms"),))
    insert = statements[-1]
    assert isinstance(insert, InsertInto)
    assert insert.sink == "alarms"
    assert insert.query.schema.names == ["location", "value", "humidity", "_ts"]
    assert insert.query.text.startswith("SELECT t.location")
    assert bind_query(insert.query.text, names) == insert.query


def test_derived_stream_visible_to_later_statements() -> None:
    names = build_catalog()
    create, query = bind_script(
        "CREATE STREAM Hot AS SELECT location, value FROM temperature [NOW] WHERE value > 40; SELECT * FROM hot", names
    )
    assert isinstance(create, CreateStreamAs)
    assert names.relations["hot"] == Stream("Hot", create.query.schema, time="_ts")
    assert isinstance(query, BareQuery)
    assert query.query.schema.names == ["location", "value", "_ts"]
    assert isinstance(query.query.body, Select)
    with pytest.raises(CqlError, match="RESERVED_NAME"):
        bind_query("SELECT _ts FROM hot", names)
    assert bind_query("SELECT _ts AS born FROM hot [RANGE 1 DAY]", names).schema.names == ["born", "_ts"]


def test_error_leaves_catalog_unchanged() -> None:
    names = Catalog()
    with pytest.raises(CqlError, match="UNKNOWN_RELATION"):
        bind_script(DECLARATIONS + "SELECT 1 FROM nowhere", names)
    assert not names.relations
    assert not names.sinks


@pytest.mark.parametrize(
    ("clauses", "timestamps", "lateness", "skew", "idle"),
    [
        ("TIMESTAMP BY t", "external", 0, 0, None),
        ("TIMESTAMP BY T LATENESS 10", "external", 10, 0, None),
        ("timestamps latent timestamp by t idle after 5", "latent", 0, 0, 5),
        ("TIMESTAMP BY t TIMESTAMPS INTERNAL LATENESS 0", "internal", 0, 0, None),
        ("TIMESTAMP BY t TIMESTAMPS EXTERNAL", "external", 0, 0, None),
        ("TIMESTAMP BY t TIMESTAMPS EXTERNAL SKEW 3 IDLE AFTER 7 LATENESS 2", "external", 2, 3, 7),
    ],
)
def test_stream_clauses(clauses: str, timestamps: str, lateness: int, skew: int, idle: int | None) -> None:
    (create,) = bind_script(f"CREATE STREAM s (t BIGINT) {clauses}", Catalog())
    assert isinstance(create, CreateStream)
    stream = create.stream
    assert (stream.time, stream.timestamps, stream.lateness) == ("t", timestamps, lateness)
    assert (stream.skew, stream.idle_after) == (skew, idle)


def test_options() -> None:
    text = "CREATE SINK s TO org.apache.Kafka OPTIONS ('kafka.a' 'x', kafka.b.c = 'it''s', n -1, d 0.5, yes TRUE)"
    (create,) = bind_script(text, Catalog())
    assert isinstance(create, CreateSink)
    options = (("kafka.a", "x"), ("kafka.b.c", "it's"), ("n", "-1"), ("d", "0.5"), ("yes", "true"))
    assert create.sink.connector == Connector("org.apache.Kafka", options)


def test_keywords_and_secrets_in_options() -> None:
    text = "CREATE SINK s TO p OPTIONS (create true, select.from 1, password secret('A''B'), key Secret_File('/x'))"
    (create,) = bind_script(text, Catalog())
    assert isinstance(create, CreateSink)
    options = (("create", "true"), ("select.from", "1"), ("password", "secret('A''B')"), ("key", "secret_file('/x')"))
    assert create.sink.connector.options == options


@pytest.mark.parametrize(
    ("text", "condition", "at"),
    [
        ("CREATE SINK s TO p OPTIONS (password secret(3))", "SYNTAX_ERROR", "3"),
        ("CREATE SINK s TO p OPTIONS (, a 3)", "SYNTAX_ERROR", ","),
        ("CREATE STREAM temperature (t BIGINT) TIMESTAMP BY t", "DUPLICATE_NAME", "temperature"),
        ("CREATE TABLE Temperature (t BIGINT)", "DUPLICATE_NAME", "Temperature"),
        ("CREATE SINK alarms TO console", "DUPLICATE_NAME", "alarms"),
        ("CREATE STREAM s (t FOO) TIMESTAMP BY t", "UNKNOWN_TYPE", "FOO"),
        ("CREATE STREAM s (t DECIMAL(99, 2), u INT) TIMESTAMP BY u", "UNKNOWN_TYPE", "DECIMAL(99, 2)"),
        ("CREATE STREAM s (t INT, T INT) TIMESTAMP BY t", "DUPLICATE_COLUMN", "T INT"),
        ("CREATE STREAM s (t DOUBLE) TIMESTAMP BY t", "TIME_COLUMN_TYPE", "t"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY u", "UNKNOWN_COLUMN", "u"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY t LATENESS 5 SECONDS", "DURATION_UNIT", "5 SECONDS"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY t LATENESS -5", "INVALID_DURATION", "-5"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY t IDLE AFTER 0", "INVALID_DURATION", "0"),
        ("CREATE STREAM s (t INT) LATENESS 1 LATENESS 2", "SYNTAX_ERROR", "LATENESS 2"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY t TIMESTAMPS SOMETIMES", "SYNTAX_ERROR", "SOMETIMES"),
        ("CREATE STREAM s (t INT) TIMESTAMP BY t TIMESTAMPS INTERNAL SKEW 1", "SYNTAX_ERROR", "SKEW"),
        ("CREATE STREAM s (t INT) FROM csv", "SYNTAX_ERROR", "FROM"),
        ("CREATE STREAM s (t) TIMESTAMP BY t", "SYNTAX_ERROR", ")"),
        ("CREATE STREAM s () TIMESTAMP BY t", "SYNTAX_ERROR", ")"),
        ("CREATE VIEW v AS SELECT x FROM v", "VIEW_CYCLE", "v"),
        (
            "CREATE VIEW v AS ISTREAM(SELECT value FROM temperature)",
            "VIEW_EMITS",
            "ISTREAM(SELECT value FROM temperature)",
        ),
        ("CREATE VIEW v AS SELECT value FROM temperature EMIT CHANGES", "VIEW_EMITS", "SELECT value"),
        ("CREATE VIEW temperature AS SELECT value FROM temperature", "DUPLICATE_NAME", "temperature"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "UNSUPPORTED_MATERIALIZED_VIEW", "MATERIALIZED"),
        ("CREATE SINK s TO csv OPTIONS (path)", "SYNTAX_ERROR", ")"),
        ("CREATE OR REPLACE TABLE t (a INT)", "UNSUPPORTED_OR_REPLACE", "OR"),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", "UNSUPPORTED_IF_NOT_EXISTS", "IF"),
        ("CREATE TABLE t AS SELECT 1", "UNSUPPORTED_CREATE_TABLE_AS", "AS"),
        ("INSERT INTO alrms SELECT value FROM temperature", "UNKNOWN_SINK", "alrms"),
        ("INSERT INTO alarms (a, b) SELECT value FROM temperature", "UNSUPPORTED_COLUMN_LIST", "("),
        ("INSERT OVERWRITE alarms SELECT value FROM temperature", "SYNTAX_ERROR", "OVERWRITE"),
        ("DROP TABLE rooms", "SYNTAX_ERROR", "DROP"),
        ("SHOW TABLES", "SYNTAX_ERROR", "SHOW"),
    ],
)
def test_mistakes(text: str, condition: str, at: str) -> None:
    with pytest.raises(CqlError) as caught:
        bind_script(f"SELECT value FROM temperature;\n{text}", build_catalog())
    error = caught.value
    assert error.condition == condition
    assert error.line == 2
    assert text[error.column - 1 :].startswith(at)


def test_empty_script() -> None:
    assert bind_script(" ; -- nothing\n ;", Catalog()) == []
