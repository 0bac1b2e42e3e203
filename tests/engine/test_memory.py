"""Memory limits: what is counted, what is given back, what is refused, and files on disk."""

from __future__ import annotations

import errno
import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine import memory
from penstock.engine.push_cycle import PushCycle
from penstock.engine.streams import ArrivedRows
from penstock.errors import PenstockError, QueryError, ResourceError
from penstock.join import MatchForecast
from penstock.state import SHIPPED, Maintenance, parse_size, spilled_column
from penstock.state.maintenance import SMALLEST

SCHEMA = {"ts": "bigint", "k": "bigint", "t": "string"}
TEXT = """
    SELECT A.k, A.t AS a, B.t AS b, C.t AS c FROM A [RANGE 40], B [RANGE 60], C [ROWS 30]
    WHERE A.k = B.k AND B.k = C.k
"""


def make_engine(**options: Any) -> ps.Engine:
    engine = ps.Engine(warn=False, **options)
    for name in "ABC":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", TEXT, plan="((A B) C)")
    return engine


def make_rows(push: int, rows: int = 8, size: int = 10) -> dict[str, pa.Table]:
    rng = np.random.default_rng(push)
    return {
        name: pa.table({
            "ts": np.arange(push * rows, (push + 1) * rows),
            "k": rng.integers(0, 6, rows),
            "t": [f"{name}{number}" * size for number in rng.integers(0, 1000, rows)],
        })
        for name in "ABC"
    }  # fmt: skip


def run(engine: ps.Engine, pushes: range) -> list[dict[str, Any]]:
    return [row for push in pushes for row in engine.push(make_rows(push))["q"].to_pylist()]


def sort_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "size"),
    [("512 MB", 512 << 20), ("2 GiB", 2 << 30), ("2GB", 2 << 30), ("1.5 kb", 1536), ("64M", 64 << 20), (4096, 4096)],
)
def test_sizes_are_parsed(text: str | int, size: int) -> None:
    assert parse_size(text) == size
    assert ps.Engine(memory=text).metrics()["memory"]["limit"] == size  # type: ignore[index]


@pytest.mark.parametrize("text", ["much", "-1 GB", "", 0, -5, True, 1.5, "2 GBit", "1e9"])
def test_bad_sizes_are_refused(text: Any) -> None:
    with pytest.raises(QueryError, match="BAD_SIZE"):
        ps.Engine(memory=text)


def test_spill_needs_limit_and_folder(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="NO_MEMORY_LIMIT"):
        ps.Engine(spill=tmp_path)
    with pytest.raises(QueryError, match="BAD_FOLDER"):
        ps.Engine(memory="1 GB", spill=7)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="SPILL_FAILED"):
        ps.Engine(memory="1 GB", spill=tmp_path / "file")


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_metrics_count_memory_by_kind() -> None:
    engine = ps.Engine(state="eager", warn=False)
    for name in "ABC":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", "SELECT A.t FROM A [RANGE 99999], B [RANGE 99999], C [RANGE 99999] WHERE A.k = B.k AND B.k = C.k")
    engine.query("n", "SELECT k, COUNT(*) AS n FROM A [RANGE 99999] GROUP BY k")
    before: Any = engine.metrics()["memory"]
    text = ["x" * 1000] * 4000
    keys = np.arange(4000)
    for name in "AB":
        engine.push({name: pa.table({"ts": keys, "k": keys, "t": text})})
    waiting: Any = engine.metrics()["memory"]
    assert waiting["pending"] - before["pending"] > 4_000_000  # A waits for C
    engine.push({"C": pa.table({"ts": keys, "k": keys, "t": text})})
    after: Any = engine.metrics()["memory"]
    assert after["held"] == sum(after[kind] for kind in after if kind not in ("limit", "held", "spilled"))
    assert after["pending"] < waiting["pending"] - 3_000_000
    assert 4_000_000 < after["windows"] < 9_000_000  # the texts of A
    for kind in ("indexes", "states", "operators"):
        assert after[kind] > before[kind] + 4000 * 8, kind


# ── giving back ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_push_spills_and_results_are_equal(tmp_path: Path) -> None:
    expected = sort_rows(run(make_engine(), range(20)))
    engine = make_engine(memory="1 GB", spill=tmp_path, maintenance=SMALLEST)
    rows = run(engine, range(10))
    assert list_files(tmp_path)
    assert engine.metrics()["memory"]["spilled"] > 0  # type: ignore[index]
    engine = ps.Engine.restore(engine.snapshot())
    rows += run(engine, range(10, 20))
    assert sort_rows(rows) == expected
    assert len(list_files(tmp_path)) > 0
    gc.collect()
    engine.close()
    assert list_files(tmp_path) == []
    assert sort_rows(run(engine, range(20, 22))) == sort_rows(run(ps.Engine.restore(make_state(20)), range(20, 22)))


def make_state(pushes: int) -> bytes:
    engine = make_engine()
    run(engine, range(pushes))
    return engine.snapshot()


def test_results_read_after_their_rows_expired(tmp_path: Path) -> None:
    """Files of rows that expire in the push that finds their last results are deleted: results copy them before."""
    tables: list[list[Any]] = []
    for options in ({}, {"memory": 10 << 20, "spill": tmp_path, "maintenance": Maintenance(relief_share=0.0)}):
        engine = make_engine(**options)
        engine.query("pairs", "SELECT A.t AS a, B.t AS b FROM A [RANGE 36], B [RANGE 36] WHERE A.k = B.k")
        tables.append([engine.push(make_rows(push)) for push in range(16)])
    for expected, found in zip(*tables, strict=True):
        assert expected["pairs"].num_rows
        assert sort_rows(found["pairs"].to_pylist()) == sort_rows(expected["pairs"].to_pylist())


def test_expiry_deletes_files(tmp_path: Path) -> None:
    engine = make_engine(memory="1 GB", spill=tmp_path, maintenance=SMALLEST)
    run(engine, range(10))
    count = len(list_files(tmp_path))
    late = {name: {"ts": [10_000 + at for at in range(40)], "k": [0] * 40, "t": ["x"] * 40} for name in "ABC"}
    engine.push(late)
    engine.push({name: {"ts": [20_000 + at for at in range(40)], "k": [1] * 40, "t": ["y"] * 40} for name in "ABC"})
    assert len(list_files(tmp_path)) < count / 2


def test_states_are_dropped_before_windows_move() -> None:
    maintenance = Maintenance(**{**vars(SHIPPED), "relief_share": 0.0})
    engine = make_engine(memory="1 GB", maintenance=maintenance, state="eager")
    rows = run(engine, range(6))
    assert rows
    assert sort_rows(rows) == sort_rows(run(make_engine(), range(6)))
    engine.push({})
    assert sum(engine.metrics("q")["state_rows"].values()) == 0  # type: ignore[attr-defined]


def test_large_pushes_return_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was free before, what the forecast freed, and what the push freed."""
    calls: list[str] = []
    monkeypatch.setattr(memory, "release_unused", lambda: calls.append("released"))
    estimate, cycle = MatchForecast.estimate_bytes, PushCycle.run
    monkeypatch.setattr(MatchForecast, "estimate_bytes", lambda *given: (calls.append("counted"), estimate(*given))[1])
    monkeypatch.setattr(PushCycle, "run", lambda *given: (calls.append("read"), cycle(*given))[1])
    engine = make_engine(memory="1 MB")
    engine.push(make_rows(0))
    calls.clear()
    engine.push(make_rows(1))
    assert calls == ["counted", "read"]
    calls.clear()
    engine.push(make_rows(2, size=200))  # more than a part of 64 of the limit
    assert calls == ["released", "counted", "released", "read", "released"]


def test_pushed_rows_are_held_by_the_graph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    cycle = PushCycle.run

    def run_cycle(*given: Any) -> Any:
        gc.collect()  # those of earlier tests
        held.append(sum(isinstance(each, ArrivedRows) for each in gc.get_objects()))
        return cycle(*given)

    monkeypatch.setattr(PushCycle, "run", run_cycle)
    make_engine().push(make_rows(0))
    assert held == [0]


# ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spill", [False, True])
def test_limit_too_small_for_one_tuple(spill: bool, tmp_path: Path) -> None:
    engine = make_engine(memory="1 KB", **({"spill": tmp_path} if spill else {}))
    for _ in range(2):
        with pytest.raises(ResourceError, match="MEMORY_LIMIT") as raised:
            engine.push({"A": [{"ts": 1, "k": 1, "t": "x"}]})
    assert raised.value.parameters["limit"] == 1024
    assert engine.streams["A"].arrived == 0


def test_refused_push_changes_nothing() -> None:
    engine = make_engine(memory="4 MB")
    rows = run(engine, range(10))
    blob = engine.snapshot()
    with pytest.raises(ResourceError, match=r"MEMORY_LIMIT.*nothing was changed"):
        engine.push(make_rows(10, size=100_000))
    assert ps.Engine.restore(blob).snapshot() == ps.Engine.restore(engine.snapshot()).snapshot()
    rows += run(engine, range(10, 20))
    assert sort_rows(rows) == sort_rows(run(make_engine(), range(20)))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_full_disk_refuses_push(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(memory="1 GB", spill=tmp_path, maintenance=SMALLEST)
    rows = run(engine, range(6))
    files = set(list_files(tmp_path))
    written, calls = spilled_column.SegmentFile.__init__, iter(range(100))

    def fail(self: Any, path: Path, values: pa.Array) -> None:
        if next(calls) == at:
            path.write_bytes(b"a part")
            path.unlink()
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, path, values)

    monkeypatch.setattr(spilled_column.SegmentFile, "__init__", fail)
    with pytest.raises(ResourceError, match=r"SPILL_FAILED.*No space left on device") as raised:
        engine.push(make_rows(6))
    assert isinstance(raised.value, PenstockError)
    monkeypatch.undo()
    assert files <= set(list_files(tmp_path))
    rows += run(engine, range(6, 12))
    assert sort_rows(rows) == sort_rows(run(make_engine(), range(12)))


def test_partly_written_file_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spilled_column.mmap, "mmap", fail)
    with pytest.raises(OSError, match="No space"):
        spilled_column.SegmentFile(tmp_path / "0.arrow", pa.array([1, 2]))
    assert list_files(tmp_path) == []


def test_folder_that_vanishes_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    engine = make_engine(memory="1 GB", spill=folder, maintenance=SMALLEST)
    rows = run(engine, range(6))
    shutil.rmtree(folder)
    with pytest.raises(ResourceError, match="SPILL_FAILED"):
        engine.push(make_rows(6))
    folder.mkdir()
    rows += run(engine, range(6, 12))
    assert sort_rows(rows) == sort_rows(run(make_engine(), range(12)))


# ── results in chunks ────────────────────────────────────────────────────────────────────────────────────────────


def push_hot_key(engine: ps.Engine, rows: int) -> None:
    for push in range(2):
        times = np.arange(push * rows, (push + 1) * rows)
        engine.push({name: {"ts": times, "k": np.zeros(rows, int), "t": ["x"] * rows} for name in "ABC"})
    engine.flush()


@pytest.mark.parametrize("block", [1, 64, 1 << 16])
def test_hot_key_is_delivered_in_chunks(block: int) -> None:
    engine = ps.Engine(warn=False, maintenance=Maintenance(**{**vars(SHIPPED), "block": block}))
    for name in "ABC":
        engine.stream(name, SCHEMA, time="ts")
    windows = ", ".join(f"{name} [RANGE 9999]" for name in "ABC")
    engine.query("q", f"SELECT A.ts AS a, B.ts AS b, C.ts AS c FROM {windows} WHERE A.k = B.k AND B.k = C.k")
    tables: list[pa.Table] = []
    engine.subscribe("q", tables.append)
    push_hot_key(engine, 20)
    found = pa.concat_tables(tables)
    assert found.num_rows == 40**3
    assert len(set(zip(*(found.column(name).to_pylist() for name in "abc"), strict=True))) == 40**3
    assert np.all(np.diff(found.column("_ts").to_numpy()) >= 0)
    if block == 64:
        assert max(table.num_rows for table in tables) <= 20**3  # the first turn reads all of the first push


def test_function_that_raises_gets_all_chunks() -> None:
    engine = ps.Engine(warn=False, maintenance=SMALLEST)
    for name in "ABC":
        engine.stream(name, SCHEMA, time="ts")
    windows = ", ".join(f"{name} [RANGE 9999]" for name in "ABC")
    engine.query("q", f"SELECT A.ts AS a FROM {windows} WHERE A.k = B.k AND B.k = C.k")
    calls: list[int] = []

    def fail(rows: pa.Table) -> None:
        calls.append(rows.num_rows)
        raise ValueError("no")

    engine.subscribe("q", fail)
    with pytest.raises(QueryError, match="SUBSCRIBER_FAILED"):
        engine.push({name: {"ts": np.arange(30), "k": np.zeros(30, int), "t": ["x"] * 30} for name in "ABC"})
    assert sum(calls) == 30**3
    assert len(calls) > 1


def test_query_without_function_still_gets_its_rows() -> None:
    engine = make_engine(maintenance=SMALLEST)
    engine.query("other", TEXT, plan="((A B) C)")
    tables: list[pa.Table] = []
    engine.subscribe("q", tables.append)
    rows = [row for push in range(6) for row in engine.push(make_rows(push))["other"].to_pylist()]
    delivered = [row for table in tables for row in table.to_pylist()]
    assert sort_rows(rows) == sort_rows(delivered) == sort_rows(run(make_engine(), range(6)))


@pytest.mark.parametrize("plan", ["((A B) C)", "{A B C}"])
def test_hot_key_is_refused_for_trees_and_eddies(plan: str) -> None:
    """The forecast of an eddy had no node, and the push failed where memory was scarce."""
    engine = ps.Engine(memory="8 MB")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.query("q", "SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.k = C.k WINDOW 10", plan=plan)
    hot = pa.table({"ts": [1] * 300, "k": [7] * 300})
    with pytest.raises(ps.ResourceError, match="MEMORY_LIMIT"):
        engine.push(dict.fromkeys("ABC", hot))
    assert engine.push(dict.fromkeys("ABC", hot[:20]))["q"].num_rows + engine.flush()["q"].num_rows == 20**3
