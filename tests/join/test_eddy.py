"""An eddy in the engine: routes follow the data, demand avoids rows, and plans migrate to it and from it."""

from __future__ import annotations

from typing import Any

import mutants
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.join.demand import eddy_gates, gate_cost
from penstock.state import SHIPPED, Maintenance
from penstock.state.maintenance import SMALLEST

TEXT = "SELECT A.ts AS a, B.ts AS b, C.ts AS c FROM A, B, C WHERE A.x = B.x AND A.y = C.y WINDOW 200"


def engine(state: str = "none", plan: str = "{A B C}", maintenance: Maintenance = SHIPPED) -> ps.Engine:
    made = ps.Engine(state=state, maintenance=maintenance)
    for name in "ABC":
        made.stream(name, dict.fromkeys(("ts", "x", "y"), "bigint"), time="ts")
    made.query("q", TEXT, plan=plan)
    return made


def push(number: int, few_x: bool) -> dict[str, pa.Table]:
    """Fifty tuples of each stream; x or y has few values, so that B or C has many partners for a tuple of A."""
    rng = np.random.default_rng(number)
    times = np.arange(50 * number, 50 * number + 50)
    x, y = (rng.integers(0, top, (3, 50)) for top in ((5, 400) if few_x else (400, 5)))
    return {name: pa.table({"ts": times, "x": x[at], "y": y[at]}) for at, name in enumerate("ABC")}


def rows(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def metrics(eng: ps.Engine, name: str) -> Any:
    return eng.metrics("q")[name]


def test_routes_follow_fan_outs() -> None:
    eng = engine()
    for number in range(6):
        eng.push(push(number, few_x=True))
    assert metrics(eng, "routes")["A"] == ["A", "C", "B"]
    assert "route of A: A → C → B" in eng.explain("q")
    assert eng.explain("q").splitlines()[0] == "q: ISTREAM, plan {A B C}"
    for number in range(6, 20):
        eng.push(push(number, few_x=False))
    assert metrics(eng, "routes")["A"] == ["A", "B", "C"]
    assert metrics(eng, "state_rows") == {}


@pytest.mark.parametrize("state", ["none", "jit", "auto"])
def test_eddy_matches_tree_across_migrations(state: str) -> None:
    eng, tree = engine(state), engine("eager", "((A B) C)")
    plans = {3: "((A C) B)", 5: "{C B A}", 7: "(A (B C))", 8: "{A B C}"}
    found: list[pa.Table] = []
    wanted: list[pa.Table] = []
    for number in range(12):
        if number in plans:
            eng.migrate("q", plans[number])
        data = push(number, few_x=number % 4 < 2)
        found.append(eng.push(data)["q"])
        wanted.append(tree.push(data)["q"])
        if number == 6:
            eng = ps.Engine.restore(eng.snapshot())
    for made, tables in ((eng, found), (tree, wanted)):
        tables.append(made.flush()["q"])
    assert rows(pa.concat_tables(found)) == rows(pa.concat_tables(wanted)) != []


def test_demand_holds_back_tuples_without_partners() -> None:
    """No tuple of C has the y of a, so a is held back, and b, which matches a, builds no row with it."""
    routed = {}
    for state in ("none", "jit"):
        eng = engine(state)
        eng.push({"C": pa.table({"ts": [0], "x": [0], "y": [7]})})
        eng.push(
            {"A": pa.table({"ts": [1, 1], "x": [1, 1], "y": [8, 8]}), "B": pa.table({"ts": [1], "x": [1], "y": [0]})}
        )
        for name in "ABC":
            eng.advance(name, 3)
        eng.push({"B": pa.table({"ts": [3], "x": [1], "y": [0]}), "C": pa.table({"ts": [3], "x": [0], "y": [7]})})
        routed[state] = sum(metrics(eng, "routed").values())
        for name in "ABC":
            eng.advance(name, 5)
        late = eng.push({"C": pa.table({"ts": [5], "x": [0], "y": [8]})})["q"].num_rows + eng.flush()["q"].num_rows
        assert late == 4
    assert routed["jit"] == 0 < routed["none"]
    assert metrics(eng, "suppressed")["A"]["type I"] > 0
    assert "put off" in eng.explain("q")


def test_eddy_has_no_nodes() -> None:
    eng = engine()
    with pytest.raises(ps.QueryError, match="no node"):
        eng.policy("q", "jit", node="(A B)")
    with pytest.raises(ps.QueryError, match="braces must enclose all streams or none"):
        eng.migrate("q", "({A B} C)")
    assert metrics(eng, "plan") == "{A B C}"


def run_many_partners(state: str) -> tuple[ps.Engine, int]:
    """One tuple of A in five has partners in C, many each; all have some in B, which comes first on their route."""
    eng, rng, found = engine(state, maintenance=SMALLEST), np.random.default_rng(5), 0
    for number in range(12):
        times = np.arange(25 * number, 25 * number + 25).repeat(4)
        tables = {}
        for name, values in (("A", 50), ("B", 50), ("C", 10)):
            columns = {"ts": times, "x": rng.integers(0, 100, 100), "y": rng.integers(0, values, 100)}
            tables[name] = pa.table(columns)
        found += eng.push(tables)["q"].num_rows
    return eng, found + eng.flush()["q"].num_rows


@pytest.fixture
def free_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates without fixed costs."""
    monkeypatch.setattr(gate_cost, "BATCH_COST", 0.0)
    monkeypatch.setattr(gate_cost, "KEY_COST", 0.0)


@pytest.mark.usefixtures("free_gates")
@pytest.mark.parametrize("state", ["none", "auto"])
def test_gate_of_eddy_closes_where_it_saves_work(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eng, found = run_many_partners(state)
    assert "C" in metrics(eng, "demanded_keys")
    assert "demand of C" in eng.explain("q")
    assert found == run_many_partners("jit")[1]
    monkeypatch.setattr(eddy_gates, "pays_off", lambda *_counts, **_closed: False)
    without, same = run_many_partners(state)
    assert metrics(without, "demanded_keys") == {}
    assert same == found
    assert metrics(eng, "routed")["A"] < metrics(without, "routed")["A"] / 2


@pytest.mark.usefixtures("free_gates")
def test_mutant_close_eddy_gate_with_old_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = run_many_partners("auto")[1]
    mutants.close_eddy_gate_with_old_keys(monkeypatch)
    assert run_many_partners("auto")[1] < complete
