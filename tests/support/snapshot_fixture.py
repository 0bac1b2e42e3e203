"""The engine of the stored snapshots in tests/engine/fixtures, and how a new one is made.

`python tests/support/snapshot_fixture.py` writes the snapshot of the present version. The older ones stay, so that a
later version must still read them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock.engine.snapshot import VERSION

FOLDER = Path(__file__).parents[1] / "engine" / "fixtures"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64()), ("name", pa.string())])
ROOMS = pa.table({"k": [0, 1, 2], "room": ["hall", "lab", "roof"]})
QUERIES = {
    "pairs": "SELECT a.k, a.v, b.name FROM a [RANGE 60], b [RANGE 60] WHERE a.k = b.k AND a.v > 1",
    "wide": "SELECT a.k, b.v FROM a [RANGE 90], b [RANGE 30] WHERE a.k = b.k",
    "chain": "SELECT a.k, c.v FROM a [RANGE 20], b [ROWS 9], c [NOW] WHERE a.k = b.k AND b.v = c.v",
    "recent": "SELECT a.v, r.room FROM a [PARTITION BY k ROWS 2], rooms AS r WHERE a.k = r.k",
    "sums": "SELECT k, SUM(v) AS s, MIN(name) AS low FROM b [RANGE 50] GROUP BY k",
    "slides": "SELECT COUNT(*) AS n FROM a [RANGE 40 SLIDE 10]",
    "kinds": "SELECT DISTINCT name FROM c [RANGE 30]",
    "gone": "DSTREAM (SELECT k FROM a [RANGE 25] WHERE v > 3)",
    "less": "SELECT k FROM a [RANGE 30] EXCEPT SELECT k FROM b [RANGE 7]",
    "both": "SELECT k FROM a [NOW] UNION ALL SELECT k FROM c [NOW]",
    "steps": "SELECT a.k, b.v FROM SEQ(a, b) MODE RECENT WHERE a.k = b.k",
    "reader": "SELECT m.k FROM made [RANGE 15] AS m, c [RANGE 15] WHERE m.k = c.k",
}


def build_engine() -> ps.Engine:
    engine = ps.Engine()
    for name in "abc":
        engine.stream(name, SCHEMA, time="ts", lateness=2)
    engine.table("rooms", ROOMS)
    engine.derive("made", "SELECT k, v FROM b [NOW] WHERE v > 2")
    for name, text in QUERIES.items():
        engine.query(name, text)
    return engine


def make_push(number: int) -> dict[str, pa.Table]:
    """The rows of a push, which covers twenty ticks."""
    times = list(range(20 * number, 20 * number + 20))
    return {
        name: pa.table(
            {
                "ts": times,
                "k": [(t + shift) % 5 for t in times],
                "v": [float(t * shift % 7) for t in times],
                "name": ["abcd"[t * shift % 4] for t in times],
            },
            SCHEMA,
        )
        for shift, name in enumerate("abc", 1)
    }


def write_fixture() -> None:
    engine = build_engine()
    for number in range(4):
        engine.push(make_push(number))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"snapshot-{VERSION}.bin").write_bytes(engine.snapshot())


if __name__ == "__main__":
    write_fixture()
