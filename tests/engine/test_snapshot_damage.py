"""A damaged snapshot is refused with BAD_SNAPSHOT, for every kind of damage.

More damage: PENSTOCK_SEEDS=100000 PENSTOCK_FIRST_SEED=1 pytest tests/engine/test_snapshot_damage.py
"""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine import snapshot

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "3000"))
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))


class Longest:
    """A user-defined aggregate: the longest text."""

    type = "string"

    def __init__(self) -> None:
        self.found = ""

    def iterate(self, value: str) -> None:
        self.found = max(self.found, value, key=len)

    def terminate(self) -> str:
        return self.found


def started() -> ps.Engine:
    engine = ps.Engine()
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "s": "string"}, time="ts", lateness=3)
    engine.table("T", pa.table({"x": [1, 2], "name": ["one", "two"]}))
    engine.aggregate("longest", Longest)
    engine.query("pairs", "SELECT A.x, T.name FROM A [RANGE 50], B [RANGE 9], T WHERE A.x = B.x AND B.x = T.x")
    engine.query("counts", "SELECT s, COUNT(*) AS n FROM A [ROWS 5] GROUP BY s")
    engine.query("long", "SELECT longest(s) AS l FROM B [RANGE 20]")
    engine.derive("D", "SELECT x FROM A [NOW]")
    for time in range(10):
        rows = pa.table({"ts": [time, time], "x": [1, 2], "s": ["a", "b" * time]})
        engine.push({"A": rows, "B": rows})
    return engine


@pytest.fixture(scope="module")
def blob() -> bytes:
    return started().snapshot()


def restored(blob: Any) -> ps.Engine:
    return ps.Engine.restore(blob, aggregates={"longest": Longest})


def rest(engine: ps.Engine) -> dict[str, list[Any]]:
    """The rows of each query at the end; those of one instant may leave in any order."""
    return {name: sorted(table.to_pylist(), key=repr) for name, table in engine.flush().items()}


def damaged(blob: bytes, rng: random.Random) -> bytes:
    """The bytes with some of them flipped, removed, repeated, moved or appended."""
    made = bytearray(blob)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        start = rng.randrange(len(made)) if rng.random() < 0.7 else rng.randrange(min(len(made), 100))
        end = start + rng.choice((1, 1, 4, 50))
        match rng.choice(("flip", "flip", "flip", "byte", "cut", "leave out", "repeat", "swap", "append")):
            case "flip":
                made[start] ^= 1 << rng.randrange(8)
            case "byte":
                made[start] = rng.randrange(256)
            case "cut":
                del made[max(start, 1) :]
            case "leave out":
                del made[max(start, 1) : end]
            case "repeat":
                made[start:start] = made[start:end]
            case "swap":
                other = rng.randrange(len(made))
                made[start], made[other] = made[other], made[start]
            case "append":
                made += rng.randbytes(rng.choice((1, 20)))
    return bytes(made)


def test_whole_snapshot_is_restored(blob: bytes) -> None:
    expected = rest(started())
    assert any(expected.values())
    for same in (blob, bytearray(blob), memoryview(blob)):
        assert rest(restored(same)) == expected


def test_damaged_snapshot_is_refused(blob: bytes) -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        other = damaged(blob, random.Random(f"damage {seed}"))
        if other == blob:
            continue
        with pytest.raises(ps.DataError, match="BAD_SNAPSHOT"):
            restored(other)


@pytest.mark.parametrize("what", [b"", b"PK", b"not a snapshot", None, 5, "text", [b"x"], pa.table({"x": [1]})])
def test_non_snapshot_is_refused(what: Any) -> None:
    with pytest.raises(ps.DataError, match="BAD_SNAPSHOT"):
        restored(what)


def test_every_truncation_is_refused(blob: bytes) -> None:
    for end in [*range(200), *range(200, len(blob), 37)]:
        with pytest.raises(ps.DataError, match="BAD_SNAPSHOT"):
            restored(blob[:end])


def other_content(blob: bytes, rng: random.Random) -> bytes:
    """A snapshot with a valid header in whose index one value is replaced or removed."""
    with zipfile.ZipFile(io.BytesIO(blob[len(snapshot.add_header(b"")) :])) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    index = within = json.loads(files["index.json"])
    while True:
        key = rng.choice(list(within) if isinstance(within, dict) else range(len(within)))
        if not isinstance(within[key], dict | list) or not within[key] or rng.random() < 0.1:
            break
        within = within[key]
    if rng.random() < 0.3:
        del within[key]
    else:
        within[key] = rng.choice((None, -1, 0, 2**70, 1.5, "x", "", [], {}, [1], {"x": 1}, True))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {**files, "index.json": json.dumps(index).encode()}.items():
            archive.writestr(name, data)
    return snapshot.add_header(out.getvalue())


def test_foreign_content_raises_penstock_error(blob: bytes) -> None:
    """The header is valid but the content is foreign; it may be valid by chance."""
    for seed in range(FIRST, FIRST + max(1, SEEDS // 15)):
        with suppress(ps.PenstockError):
            restored(other_content(blob, random.Random(f"content {seed}")))


def test_older_version_is_named() -> None:
    """Up to version 5 a snapshot was a plain zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("index.json", json.dumps({"version": 5}))
    with pytest.raises(ps.DataError, match=r"BAD_SNAPSHOT.*version 5 or older.*reads version 7"):
        restored(out.getvalue())


def test_other_version_is_named(blob: bytes) -> None:
    with pytest.raises(ps.DataError, match=r"version 8.*newer version of Penstock.*up to version 7: update"):
        restored(blob[:8] + (8).to_bytes(4, "big") + blob[12:])
