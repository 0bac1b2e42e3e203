"""`_ts` has the type of the declared time column, with its zone, on every route of data into and out of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

import penstock as ps

NAIVE, ZONED, BERLIN = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")
TYPES = [NAIVE, ZONED, BERLIN, pa.int64(), pa.int32()]
QUERIES = {
    "plain": "SELECT x FROM A",
    "ends": "DSTREAM (SELECT x FROM A [RANGE {0}])",
    "all": "RSTREAM (SELECT x FROM A [RANGE {0}])",
    "join": "SELECT A.x FROM A [RANGE {0}], B [RANGE {0}] WHERE A.x = B.x",
    "rows": "SELECT A.x FROM A [ROWS 5], B [ROWS 5] WHERE A.x = B.x",
    "count": "SELECT COUNT(*) AS n FROM A [RANGE {0}]",
    "slide": "SELECT COUNT(*) AS n FROM A [RANGE {0} SLIDE {0}]",
    "union": "SELECT x FROM A UNION ALL SELECT x FROM B",
    "except": "SELECT x FROM A [RANGE {0}] EXCEPT SELECT x FROM B [RANGE {0}]",
    "sequence": "SELECT a.x FROM SEQ(A AS a, B AS b) MODE RECENT",
    "derived": "SELECT x FROM D",
    "time": "SELECT _ts AS t, x FROM D",
}
START = datetime(2026, 1, 1, 12)


def declare(engine: ps.Engine, first: pa.DataType, second: pa.DataType) -> None:
    for name, kind in (("A", first), ("B", second)):
        engine.stream(name, pa.schema([("ts", kind), ("x", pa.int64())]), time="ts")
    engine.derive("D", "SELECT x FROM A")
    window = "1 MINUTE" if pa.types.is_timestamp(first) else "60"
    for name, text in QUERIES.items():
        engine.query(name, text.format(window))


def make_rows(kind: pa.DataType, form: pa.DataType) -> pa.Table:
    """Rows of a stream whose time column is `kind`, pushed with the type `form`."""
    if pa.types.is_integer(kind):
        times = pa.array([0, 30], kind)
    else:
        times = pa.array([START, START + timedelta(seconds=30)], NAIVE).cast(form)
    return pa.table({"ts": times, "x": [1, 2]})


def iter_tables(engine: ps.Engine, rows: Callable[[str], pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """All result tables: of a push of one stream, of another, of the restored engine and of its flush."""
    yield from engine.push({"A": rows("A")}).items()
    yield from engine.push({"B": rows("B")}).items()
    engine = ps.Engine.restore(engine.snapshot())
    yield from engine.push({}).items()
    yield from engine.flush().items()


@pytest.mark.parametrize("form", [NAIVE, ZONED, BERLIN])
@pytest.mark.parametrize("kind", TYPES)
def test_type_of_result_time(kind: pa.DataType, form: pa.DataType) -> None:
    engine = ps.Engine()
    declare(engine, kind, kind)
    found: dict[str, int] = dict.fromkeys(QUERIES, 0)
    for name, table in iter_tables(engine, lambda _: make_rows(kind, form)):
        assert table.schema == engine.queries[name].columns, name
        assert table.schema.field("_ts").type == kind, name
        found[name] += table.num_rows
    assert {name for name, count in found.items() if not count} == {"except"}
    assert engine.streams["D"].columns.field("_ts").type == kind
    assert engine.queries["time"].columns.field("t").type == kind


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (NAIVE, ZONED, ZONED),
        (NAIVE, BERLIN, ZONED),
        (ZONED, BERLIN, ZONED),
        (BERLIN, pa.timestamp("us", "Asia/Tokyo"), ZONED),
        (pa.int32(), pa.int64(), pa.int64()),
    ],
)
def test_common_type_of_streams(first: pa.DataType, second: pa.DataType, common: pa.DataType) -> None:
    """Streams of different zones meet in UTC, whichever comes first; each one keeps its own type alone."""
    rows = {kind: make_rows(kind, kind) for kind in (first, second)}
    instants: list[dict[str, list[int]]] = []
    for one, two in ((first, second), (second, first)):
        engine = ps.Engine()
        declare(engine, one, two)
        seen: dict[str, list[int]] = {}
        kinds = {"A": one, "B": two}
        for name, table in iter_tables(engine, lambda stream, kinds=kinds: rows[kinds[stream]]):  # type: ignore[misc]
            shared = name in ("join", "rows", "union", "except", "sequence")
            assert table.schema.field("_ts").type == (common if shared else one), name
            seen.setdefault(name, []).extend(table.column("_ts").cast(pa.int64()).to_pylist())
        instants.append({name: sorted(times) for name, times in seen.items()})
    assert instants[0] == instants[1]


@pytest.mark.parametrize("name", ["timestamp_ltz", "TIMESTAMPTZ", "timestamp with time zone"])
def test_zoned_type_by_name(name: str) -> None:
    engine = ps.Engine()
    engine.stream("A", {"ts": name, "x": "bigint"}, time="ts")
    engine.query("q", "SELECT x FROM A")
    offset = datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    out = engine.push({"A": [{"ts": offset, "x": 1}]})["q"]
    assert out.schema.field("_ts").type == ZONED
    assert out.column("_ts").to_pylist() == [START.replace(tzinfo=UTC)]


def test_late_rows_and_dead_letters_have_the_declared_type() -> None:
    engine = ps.Engine()
    engine.stream("A", pa.schema([("ts", BERLIN), ("x", pa.int64())]), time="ts")
    engine.push({"A": {"ts": ["2026-01-02"], "x": [1]}})
    engine.push({"A": {"ts": ["2026-01-01", None], "x": [1, 2]}})
    assert engine.late("A").schema.field("ts").type == BERLIN
    assert engine.dead_letters("A").schema.field("ts").type == BERLIN
    assert (engine.late("A").num_rows, engine.dead_letters("A").num_rows) == (1, 1)


@pytest.mark.parametrize("kind", [NAIVE, ZONED, BERLIN])
def test_advance_takes_times_of_any_zone(kind: pa.DataType) -> None:
    for time in (START, START.replace(tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))):
        engine = ps.Engine()
        engine.stream("A", pa.schema([("ts", kind)]), time="ts")
        engine.advance("A", time)
        frontier = engine.streams["A"].frontier
        assert isinstance(frontier, datetime)
        assert frontier.replace(tzinfo=frontier.tzinfo or UTC) == START.replace(tzinfo=UTC)
