"""Table I and Figures 5, 7 and 8 of the JIT paper: as pure functions over the lattice, and through the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from lattice import EMPTY, Feedback, Lattice, classify_mns, identify_mns, propagate

import penstock as ps

ABCD = Lattice(frozenset("ABCD"))
AB, CD = frozenset("AB"), frozenset("CD")


def subs(*texts: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(text) for text in texts)


# ── the lattice ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_figure_7_lattice_has_16_nodes() -> None:
    assert len(ABCD.nodes()) == 16
    assert [len(ABCD.level(size)) for size in range(5)] == [1, 4, 6, 4, 1]
    assert ABCD.nodes()[0] == EMPTY


def test_figure_8_type_ii_mns_of_two_components() -> None:
    """a is matched by e1 only and c by e2 only: {a, c} is an MNS while a and c are not."""
    found = identify_mns(ABCD, [frozenset("ABD"), frozenset("BCD")])
    assert found == subs("AC")
    assert classify_mns(frozenset("AC"), AB, CD) == "type II"


def test_figure_8_empty_state_has_empty_mns() -> None:
    assert identify_mns(ABCD, []) == {EMPTY}
    assert classify_mns(EMPTY, AB, CD) == "empty"


def test_figure_8_full_match_has_no_mns() -> None:
    assert identify_mns(ABCD, [frozenset(), frozenset("ABCD")]) == frozenset()


def test_figure_5_mns_propagation() -> None:
    """S_E matches b1 and d1, not a1 and c1: op4 reports {a1, c1}, op3 passes {a1} to op1 and {c1} to op2."""
    found = identify_mns(ABCD, [frozenset("BD"), frozenset("B"), frozenset("D")])
    assert found == subs("A", "C")
    assert {classify_mns(mns, AB, CD) for mns in found} == {"type I"}
    for command in ("suspend", "resume"):
        to_op1, to_op2 = propagate(Feedback(command, found), AB, CD)
        assert to_op1 == (Feedback(command, subs("A")),)
        assert to_op2 == (Feedback(command, subs("C")),)


def test_type_ii_mns_propagated_as_marks() -> None:
    to_op1, to_op2 = propagate(Feedback("suspend", subs("AC", "B")), AB, CD)
    assert to_op1 == (Feedback("suspend", subs("B")), Feedback("mark", subs("A")))
    assert to_op2 == (Feedback("mark", subs("C")),)
    assert propagate(Feedback("resume", subs("AC")), AB, CD)[1] == (Feedback("unmark", subs("C")),)


def test_empty_mns_suspends_both_inputs() -> None:
    nothing = Feedback("suspend", frozenset({EMPTY}))
    assert propagate(nothing, AB, CD) == ((nothing,), (nothing,))


# ── Table I ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Arrival = tuple[int, str, dict[str, int]]

TABLE_I: tuple[Arrival, ...] = (
    *((0, "B", {"x": 1, "n": number}) for number in (1, 2, 3)),
    (1, "A", {"x": 1, "y": 100, "n": 1}),
    (2, "B", {"x": 1, "n": 4}),
    (3, "A", {"x": 1, "y": 100, "n": 2}),
)
C1: Arrival = (4, "C", {"y": 100})


def table_i(state: str, batch: int) -> ps.Engine:
    engine = ps.Engine(state=state, batch=batch)
    engine.stream("A", {"ts": "bigint", "x": "bigint", "y": "bigint", "n": "bigint"}, time="ts")
    engine.stream("B", {"ts": "bigint", "x": "bigint", "n": "bigint"}, time="ts")
    engine.stream("C", {"ts": "bigint", "y": "bigint"}, time="ts")
    text = "SELECT A.n AS a, B.n AS b FROM A [RANGE 300], B [RANGE 300], C [RANGE 300] WHERE A.x = B.x AND A.y = C.y"
    engine.query("q", text, plan="((A B) C)")
    return engine


def tell(engine: ps.Engine, streams: str, arrivals: Sequence[Arrival]) -> list[dict[str, Any]]:
    """Push tuples one by one; time advances in all streams."""
    rows: list[dict[str, Any]] = []
    for time, stream, values in arrivals:
        for name in streams:
            engine.advance(name, time)
        row = {name: [value] for name, value in {"ts": time, **values}.items()}
        rows += engine.push({stream: pa.table(row)})["q"].to_pylist()
    return rows


def counted(engine: ps.Engine, name: str) -> Any:
    return engine.metrics("q")[name]


@pytest.mark.parametrize("batch", [1, 4096])
def test_table_i_jit_builds_8_rows_on_c1(batch: int) -> None:
    """JIT builds no (A B) row before c1 arrives, and 8 rows on it."""
    engine = table_i("jit", batch)
    assert tell(engine, "ABC", TABLE_I) == []
    assert counted(engine, "built")["(A B)"] == 0
    assert counted(engine, "completed") == {}
    assert counted(engine, "suppressed")["A"] == {"empty": 2}
    assert counted(engine, "suppressed")["B"] == {"empty": 4}
    results = tell(engine, "ABC", [C1])
    assert counted(engine, "built")["(A B)"] == 0
    assert counted(engine, "resumed")["(A B)"] == counted(engine, "state_rows")["(A B)"] == 8
    assert {(row["a"], row["b"]) for row in results} == {(a, b) for a in (1, 2) for b in (1, 2, 3, 4)}
    assert [row["_ts"] for row in results] == [4] * 8
    assert engine.flush()["q"].num_rows == 0


@pytest.mark.parametrize("batch", [1, 4096])
def test_table_i_eager_builds_8_before_c1(batch: int) -> None:
    engine = table_i("eager", batch)
    built = []
    for arrival in TABLE_I:
        assert tell(engine, "ABC", [arrival]) == []
        built.append(counted(engine, "built")["(A B)"])
    assert built == [0, 0, 0, 3, 4, 8]
    assert [row["_ts"] for row in tell(engine, "ABC", [C1])] == [4] * 8
    assert counted(engine, "built")["(A B)"] == 8
    assert counted(engine, "completed") == {}


def test_table_i_equal_newcomer_is_suppressed() -> None:
    """Another c that matches nothing leaves a1, and a2 with the same value, suppressed: the Type I test by value."""
    engine = table_i("jit", 1)
    tell(engine, "ABC", [(0, "C", {"y": 7}), *TABLE_I])
    assert counted(engine, "suppressed")["A"] == {"type I": 2}
    assert counted(engine, "suppressed")["B"].get("type I", 0) == 0
    results = tell(engine, "ABC", [C1, (5, "A", {"x": 1, "y": 100, "n": 3})])
    assert [row["_ts"] for row in results] == [4] * 8 + [5] * 4
    assert counted(engine, "built")["(A B)"] == 4
    assert counted(engine, "resumed")["(A B)"] == 8


@pytest.mark.parametrize("batch", [1, 4096])
@pytest.mark.parametrize("state", ["jit", "eager", "lazy", "auto", "none"])
def test_table_i_in_one_push(state: str, batch: int) -> None:
    engine = table_i(state, batch)
    columns = {"A": ("ts", "x", "y", "n"), "B": ("ts", "x", "n"), "C": ("ts", "y")}
    arrivals = [*TABLE_I, C1]
    push = {
        stream: pa.table({
            name: [{"ts": time, **values}[name] for time, owner, values in arrivals if owner == stream]
            for name in names
        })
        for stream, names in columns.items()
    }  # fmt: skip
    rows = engine.push(push)["q"].to_pylist() + engine.flush()["q"].to_pylist()
    assert [row["_ts"] for row in rows] == [4] * 8


# ── Figure 5 ─────────────────────────────────────────────────────────────────────────────────────────────────────────

FIGURE_5 = """
SELECT A.x FROM A [RANGE 300], B [RANGE 300], C [RANGE 300], D [RANGE 300], E [RANGE 300]
WHERE A.p = B.p AND C.q = D.q AND B.r = C.r AND A.x = E.x AND B.y = E.y AND C.z = E.z AND D.w = E.w
"""
FIGURE_5_COLUMNS = {"A": "px", "B": "pry", "C": "qrz", "D": "qw", "E": "xyzw"}


@pytest.mark.parametrize("batch", [1, 4096])
def test_figure_5_a1_and_c1_wait_for_e1(batch: int) -> None:
    """S_E has partners of b1 and d1, not of a1 and c1: op1 and op2 build nothing; e1 resumes both, and op3."""
    engine = ps.Engine(state="jit", batch=batch)
    for stream, columns in FIGURE_5_COLUMNS.items():
        engine.stream(stream, dict.fromkeys(("ts", *columns), "bigint"), time="ts")
    engine.query("q", FIGURE_5, plan="(((A B) (C D)) E)")
    ones = {stream: dict.fromkeys(columns, 1) for stream, columns in FIGURE_5_COLUMNS.items()}
    early: list[Arrival] = [
        (0, "E", {"x": 9, "y": 1, "z": 9, "w": 1}),
        *((0, stream, ones[stream]) for stream in "BCD"),
        (1, "A", ones["A"]),
    ]
    nodes = ("(A B)", "(C D)", "((A B) (C D))")
    assert tell(engine, "ABCDE", early) == []
    assert [counted(engine, "built")[node] for node in nodes] == [0, 0, 0]
    assert counted(engine, "completed") == {}
    held = counted(engine, "suppressed")
    assert held["A"] == held["C"] == {"type I": 1}
    assert not any(held["B"].values())
    assert held["D"] == {"type I": 0, "empty": 1}  # op4 demands d1; op3 has no row of op1 to join it with

    assert [row["_ts"] for row in tell(engine, "ABCDE", [(2, "E", ones["E"])])] == [2]
    assert [counted(engine, "resumed")[node] for node in nodes] == [1, 1, 1]
    assert [counted(engine, "built")[node] for node in nodes] == [0, 0, 0]
