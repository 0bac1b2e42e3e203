"""How the states of a migrated join become complete, and what a migration copies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import joins_of

import penstock as ps
from penstock.expr import Column
from penstock.join import POLICIES, StatePolicy
from penstock.join.join_rows import JoinRows
from penstock.join.range_probes import ProbeRanges
from penstock.join.row_table import RowTable
from penstock.plan import StoredRange
from penstock.state import SHIPPED, ProbeBuffer
from penstock.state.maintenance import SMALLEST, Maintenance

ROWS, KEYS = 600, 5
PARTNERS = (ROWS // KEYS) * (ROWS // 4 // KEYS)
"""The pairs of A and B with one key."""


def start_engine(maintenance: Maintenance = SHIPPED) -> ps.Engine:
    engine = ps.Engine(state="lazy", maintenance=maintenance)
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "v": "bigint"}, time="ts")
    windows = f"A [RANGE {100 * ROWS}], B [RANGE {100 * ROWS}], C [RANGE 1]"
    engine.query("q", f"SELECT A.v, B.v AS w, C.v AS u FROM {windows} WHERE A.x = B.x AND B.x = C.x")
    return engine


def rows_of(ts: int, keys: np.ndarray) -> pa.Table:
    return pa.table({"ts": np.full(keys.size, ts), "x": keys, "v": np.arange(keys.size)})


def store(engine: ps.Engine, tables: dict[str, pa.Table]) -> None:
    """Push tuples of the time 0, and let the join take them."""
    engine.push(tables)
    for name in "ABC":
        engine.advance(name, 1)
    engine.push({})


def push_last(engine: ps.Engine, ts: int, keys: np.ndarray) -> int:
    """Push tuples of C, after which nothing of this time will come; returns how many results they have."""
    for name in "AB":
        engine.advance(name, ts + 1)
    found = len(engine.push({"C": rows_of(ts, keys)})["q"])
    engine.advance("C", ts + 1)
    return found + len(engine.push({})["q"])


@pytest.mark.parametrize("maintenance", [SHIPPED, SMALLEST], ids=["shipped", "smallest"])
def test_state_is_complete_with_its_last_key(maintenance: Maintenance) -> None:
    """Pushing older rows up would need 600 / 16 tuples more, and no leaf turns over."""
    engine = start_engine(maintenance)
    engine.migrate("q", "((A C) B)")
    keys = np.arange(ROWS) % KEYS
    store(engine, {"A": rows_of(0, keys), "B": rows_of(0, keys[: ROWS // 4])})
    engine.migrate("q", "((A B) C)")
    assert engine.metrics("q")["incomplete"]
    assert push_last(engine, 1, np.arange(2)) == 2 * PARTNERS
    assert engine.metrics("q")["incomplete"]
    assert push_last(engine, 2, np.arange(2, KEYS)) == (KEYS - 2) * PARTNERS
    steps = ROWS if maintenance is SMALLEST else 0  # the smallest thresholds count one older row per batch
    for step in range(steps):
        if not engine.metrics("q")["incomplete"]:
            break
        assert push_last(engine, 3 + step, np.arange(1)) == PARTNERS
    assert not engine.metrics("q")["incomplete"]
    assert push_last(engine, 10 * ROWS, np.arange(1)) == PARTNERS


def test_keys_of_two_columns_are_counted() -> None:
    engine = ps.Engine(state="lazy")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    engine.query(
        "q",
        "SELECT A.x FROM A [RANGE 600], B [RANGE 600], C [RANGE 9] WHERE A.x = B.x AND A.x = C.x AND A.y = C.y",
        plan="((A C) B)",
    )
    keys = np.arange(400)
    store(
        engine,
        {name: pa.table({"ts": np.zeros(400, np.int64), "x": keys % 2, "y": keys // 2 % 2}) for name in ("A", "B")},
    )
    engine.migrate("q", "((A B) C)")
    for name in "AB":
        engine.advance(name, 9)
    engine.push({"C": pa.table({"ts": [1, 1, 1, 2], "x": [0, 0, 1, 5], "y": [0, 1, 0, 5]})})
    assert engine.metrics("q")["incomplete"]
    engine.push({"C": pa.table({"ts": [3, 4], "x": [1, 5], "y": [1, 5]})})
    assert not engine.metrics("q")["incomplete"]


@pytest.mark.parametrize(
    "predicate",
    ["ABS(A.x - B.x) <= 1", "A.x BETWEEN B.x - 1 AND B.x + 1", "A.x >= B.x - 1 AND A.x <= B.v + 1", "A.x % 600 = B.x"],
)
def test_theta_join_completes_only_rows_in_range(predicate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe completes the stored rows that its predicate selects, each with its partners, and no others."""
    monkeypatch.setitem(POLICIES, "lazy", StatePolicy(lazy=True, pace=0.0))
    engine = ps.Engine(state="lazy")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "v": "bigint"}, time="ts")
    items = ", ".join(f"{name} [RANGE 1000]" for name in "ABC")
    where = f"{predicate} AND ABS(B.v - C.v) <= 1"
    engine.query("q", f"SELECT A.x, B.x AS bx, C.x AS cx FROM {items} WHERE {where}", plan="((A B) C)")
    numbers = np.arange(ROWS)
    stored = pa.table({"ts": np.zeros(ROWS, np.int64), "x": numbers, "v": numbers})
    store(engine, {"B": stored, "C": stored})
    engine.migrate("q", "(A (B C))")
    partners, results = 1 if "%" in predicate else 3, 0
    for ts, at in enumerate((100, 300, 100), 1):
        for name in "BC":
            engine.advance(name, ts + 1)
        results += len(engine.push({"A": pa.table({"ts": [ts], "x": [at], "v": [0]})})["q"])
        engine.advance("A", ts + 1)
        results += len(engine.push({})["q"])
        (node,) = (node for join in joins_of(engine) for node in join.tree.walk_joins() if node.state is not None)
        assert len(node.state) == 3 * partners * min(ts, 2)
    assert results == 3 * 3 * partners
    assert engine.metrics("q")["incomplete"]


def test_theta_join_is_complete_with_its_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "lazy", StatePolicy(lazy=True, pace=0.0))
    engine = ps.Engine(state="lazy")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    items = ", ".join(f"{name} [RANGE 1000]" for name in "ABC")
    engine.query("q", f"SELECT A.x FROM {items} WHERE ABS(A.x - B.x) <= 4 AND ABS(B.x - C.x) <= 1", plan="((A B) C)")
    stored = pa.table({"ts": np.zeros(20, np.int64), "x": np.arange(20)})
    store(engine, {"B": stored, "C": stored})
    engine.migrate("q", "(A (B C))")
    for ts, at in enumerate((4, 13), 1):
        assert engine.metrics("q")["incomplete"]
        for name in "BC":
            engine.advance(name, ts + 1)
        engine.push({"A": pa.table({"ts": [ts, ts], "x": [at, at + 2]})})
        engine.advance("A", ts + 1)
        engine.push({})
    assert not engine.metrics("q")["incomplete"]


def test_migration_keeps_table_under_another_alias_order() -> None:
    engine = start_engine()
    engine.migrate("q", "((A B) C)")
    keys = np.arange(ROWS) % KEYS
    store(engine, {"A": rows_of(0, keys), "B": rows_of(0, keys)})
    table = inner_table(engine)
    before = push_last(engine, 1, np.arange(1))
    assert before == (ROWS // KEYS) ** 2
    for ts, plan in enumerate(("(C (B A))", "((A B) C)", "((B A) C)"), 2):
        engine.migrate("q", plan)
        assert inner_table(engine) is table
        assert push_last(engine, ts, np.arange(1)) == before


def inner_table(engine: ps.Engine) -> RowTable:
    (join,) = joins_of(engine)
    (state,) = (node.state for node in join.tree.walk_joins() if node.state is not None)
    return state.table


def test_reordered_table_equals_rebuilt_table() -> None:
    """Against a table that holds the rows in the new order from the start."""
    rng = np.random.default_rng(7)
    order, width = [2, 0, 1], 3
    table, other = RowTable(width, SMALLEST), RowTable(width, SMALLEST)

    def add(size: int, *, reordered: bool) -> None:
        ids, codes = rng.integers(0, 4, (width, size)), rng.integers(0, 3, size).astype(np.int32)
        born, dies = np.arange(size), np.arange(size) + 5
        rows = JoinRows(ids, born, dies)
        turned = JoinRows(ids[order], born, dies)
        absent = table.find_absent(turned if reordered else rows)
        assert (absent == other.find_absent(turned)).all()
        table.insert((turned if reordered else rows).take(absent), codes[absent], 3, fresh=False)
        other.insert(turned.take(absent), codes[absent], 3, fresh=False)

    add(20, reordered=False)
    table.reorder(order)
    add(30, reordered=True)
    places = rng.integers(0, table.size, 10)
    assert (table.read_ids(places) == other.read_ids(places)).all()
    assert (table.rows().ids == other.rows().ids).all()
    found = [
        [
            (block.probe.tolist(), block.row.tolist())
            for block in each.probe_range(
                ProbeRanges(np.array([1.0]), np.array([2.0]), np.empty(0)), np.array([0]), np.array([99]), False,
                StoredRange(Column("a", "n", pa.int64()), None, mirrored=False),
                lambda rows: [rows.ids[0].astype(np.float64)], ProbeBuffer(64),
            )
        ]
        for each in (table, other)
    ]  # fmt: skip
    assert found[0] == found[1]
    assert found[0]
