"""CQL scripts in an embedded engine: what they declare, and the files of their tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

SCRIPT = """
CREATE STREAM t (ts TIMESTAMP, location INT, value DOUBLE) TIMESTAMP BY ts LATENESS 5 SECONDS
    FROM kafka OPTIONS (kafka.bootstrap.servers 'host:9092', subscribe 't');
CREATE TABLE rooms (location INT, name STRING, since TIMESTAMP) FROM {0};
CREATE SINK alarms TO parquet OPTIONS (path 'nowhere');
CREATE STREAM hot AS SELECT location, value FROM t WHERE value > 40;
INSERT INTO alarms SELECT r.name, r.since, h.value FROM hot AS h, rooms AS r WHERE h.location = r.location;
SELECT COUNT(*) AS n FROM t [RANGE 1 HOUR];
"""
ROWS = [
    {"ts": "2026-01-01 12:00", "location": 1, "value": 50.0},
    {"ts": "2026-01-01 12:01", "location": 2, "value": 5.0},
]
SINCE = datetime(2020, 2, 29, 12, tzinfo=UTC)
ROOMS = pa.table({"name": ["hall", None], "location": [1, 2], "since": [SINCE, None]})


def run_script(script: Any, **options: Any) -> list[dict[str, Any]]:
    engine = ps.Engine.from_script(script, **options)
    assert list(engine.queries) == ["alarms", "query"]
    assert list(engine.streams) == ["t", "hot"]
    out = [engine.push({"t": ROWS})["alarms"], engine.flush()["alarms"]]
    return pa.concat_tables(out).drop_columns(["_ts"]).to_pylist()


def write_csv(folder: Path) -> str:
    (folder / "rooms.csv").write_text("number,label,from\n1,hall,2020-02-29T13:00:00+01:00\n2,,\n")
    return f"csv OPTIONS (path '{folder}/rooms.csv', header true)"


def write_plain_csv(folder: Path) -> str:
    (folder / "rooms.csv").write_text("1;'hall';2020-02-29 12:00:00\n2;;\n")
    return f"csv OPTIONS (path '{folder}/rooms.csv', sep ';', quote '''')"


def write_json(folder: Path) -> str:
    lines = ['{"name": "hall", "location": 1, "since": "2020-02-29T12:00:00Z", "more": 1}', '{"location": 2}']
    (folder / "rooms.json").write_text("\n".join(lines))
    return f"json OPTIONS (path '{folder}/rooms.json')"


def write_parquet(folder: Path) -> str:
    pq.write_table(ROOMS.append_column("more", pa.array([1, 2])), folder / "rooms.parquet")
    return f"PARQUET OPTIONS (path '{folder}/rooms.parquet')"


def write_folder(folder: Path) -> str:
    place = folder / "rooms"
    place.mkdir()
    for number in range(2):
        pq.write_table(ROOMS.slice(number, 1), place / f"part-{number}.parquet")
    (place / "_SUCCESS").touch()
    return f"parquet OPTIONS (path '{place}')"


@pytest.mark.parametrize("write", [write_csv, write_plain_csv, write_json, write_parquet, write_folder])
def test_tables_are_read_from_files(tmp_path: Path, write: Any) -> None:
    script = SCRIPT.format(write(tmp_path))
    assert run_script(script) == [{"name": "hall", "since": SINCE, "value": 50.0}]


def test_script_from_file_and_with_options(tmp_path: Path) -> None:
    path = tmp_path / "script.cql"
    path.write_text(SCRIPT.format(write_csv(tmp_path)))
    assert run_script(path) == run_script(str(path)) == run_script(path, state="eager")
    assert ps.Engine.from_script(path, state="eager").queries["alarms"].state == "eager"


def test_given_tables_replace_files() -> None:
    script = SCRIPT.format("jdbc OPTIONS (url 'postgres', dbtable 'rooms')")
    assert run_script(script, tables={"Rooms": ROOMS}) == [{"name": "hall", "since": SINCE, "value": 50.0}]
    assert run_script(script, tables={"rooms": []}) == []


def test_columns_of_script_are_instants() -> None:
    """A TIMESTAMP of a script is Spark's: it has the zone UTC, in results too."""
    engine = ps.Engine.from_script(SCRIPT.format("jdbc OPTIONS (url 'x', dbtable 'r')"), tables={"rooms": ROOMS})
    utc = pa.timestamp("us", "UTC")
    assert engine.streams["t"].columns.field("ts").type == utc
    assert engine.tables["rooms"].columns.types == [pa.int32(), pa.string(), utc]
    assert [each.columns.field("_ts").type for each in engine.queries.values()] == [utc, utc]


@pytest.mark.parametrize(
    ("source", "condition", "says"),
    [
        ("jdbc OPTIONS (url 'x', dbtable 'r')", "TABLE_FORMAT", 'from_script(..., tables={"rooms": rows})'),
        ("csv OPTIONS (path 'x', inferSchema true)", "TABLE_OPTION", "inferschema"),
        ("csv OPTIONS (header true)", "OPTION_MISSING", "FROM csv lacks path"),
        ("csv OPTIONS (path 'nowhere/rooms.csv')", "TABLE_UNREADABLE", "nowhere/rooms.csv"),
        ("parquet OPTIONS (path '{0}')", "TABLE_UNREADABLE", "has no files"),
    ],
)
def test_unreadable_table_refused(tmp_path: Path, source: str, condition: str, says: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        ps.Engine.from_script(SCRIPT.format(source.format(tmp_path)))
    assert caught.value.condition == condition
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("script", "condition"),
    [
        ("no such file.cql", "SCRIPT_UNREADABLE"),
        (Path("no such file.cql"), "SCRIPT_UNREADABLE"),
        ("SELECT x FROM nowhere", "UNKNOWN_RELATION"),
        (";", "EMPTY_SCRIPT"),
        (5, "NOT_A_SCRIPT"),
    ],
)
def test_wrong_script_refused(script: Any, condition: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        ps.Engine.from_script(script)
    assert caught.value.condition == condition


def test_unknown_table_refused() -> None:
    with pytest.raises(ps.QueryError, match="has no table room; it declares rooms"):
        ps.Engine.from_script(SCRIPT.format("jdbc OPTIONS (url 'x', dbtable 'r')"), tables={"room": ROOMS})


def test_comments_and_declarations_alone() -> None:
    engine = ps.Engine.from_script("-- a comment\nCREATE STREAM A (ts BIGINT) TIMESTAMP BY ts")
    assert list(engine.streams) == ["A"]
    assert not engine.queries
