"""Wrong results that were found in corners: each is a small run on the public interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lawkit import engine

from penstock.testing import difference, expected

COLUMNS = {"ts": "bigint", "k": "bigint", "v": "bigint"}


def declare(names: str, **options: Any) -> Any:
    eng = engine(**options)
    for name in names:
        eng.stream(name, COLUMNS, time="ts")
    return eng


def rows(*tuples: tuple[int, int, int]) -> pa.Table:
    return pa.table({name: [row[place] for row in tuples] for place, name in enumerate(COLUMNS)})


def random_pushes(names: str, pushes: int, rows: int, *, keys: int, values: int) -> Iterator[dict[str, pa.Table]]:
    rng = np.random.default_rng(0)
    for push in range(pushes):
        yield {
            name: pa.table({
                "ts": np.sort(rng.integers(10 * push, 10 * push + 10, rows)),
                "k": rng.integers(0, keys, rows),
                "v": rng.integers(0, values, rows),
            })  # fmt: skip
            for name in names
        }


def expect(text: str, pushes: list[dict[str, pa.Table]]) -> pa.Table:
    streams = {name: pa.concat_tables([push[name] for push in pushes]) for name in pushes[0]}
    return expected(text, streams, {}, dict.fromkeys(streams, "ts"))


@pytest.mark.parametrize("state", ["auto", "eager", "lazy", "jit", "none"])
def test_partitioned_rows_window_in_three_way_join(state: str) -> None:
    """Rows of an intermediate state were looked up under their old ids after a window had been renumbered."""
    text = "SELECT A.ts AS a, B.ts AS b, C.ts AS c FROM A [PARTITION BY v ROWS 1], B [RANGE 3], C [RANGE 3] WHERE A.k = B.k AND B.k = C.k"
    eng = declare("ABC", state=state)
    eng.query("q", text, plan="((A B) C)")
    pushes = list(random_pushes("ABC", 30, 20, keys=20, values=30))
    found = [eng.push(push)["q"] for push in pushes]
    fault = difference(pa.concat_tables([*found, eng.flush()["q"]]), expect(text, pushes))
    assert fault is None, fault


@pytest.mark.parametrize("window", ["[ROWS 2]", "[PARTITION BY k ROWS 1]"])
def test_rows_window_after_query_drop(window: str) -> None:
    """Tuples freed with the dropped query were given an end again by the tuples that came after them."""
    eng = declare("AB")
    text = f"SELECT A.v AS v FROM A {window}, B [RANGE 100] WHERE A.k = B.k"
    eng.query("loose", text)
    eng.query("strict", f"{text} AND A.v = 2")
    eng.push({"A": rows((1, 1, 1), (2, 1, 1)), "B": rows((3, 0, 0))})
    eng.advance("A", 4)
    eng.push({})
    eng.drop("loose")
    later = {"A": rows((10, 1, 1), (11, 1, 1), (30, 1, 1)), "B": rows((5, 1, 0), (40, 0, 0))}
    assert eng.push(later)["strict"].to_pylist() + eng.flush()["strict"].to_pylist() == []


@pytest.mark.parametrize("names", ["AB", "ABC"])
def test_parallel_track_on_a_shared_join(names: str) -> None:
    """The new tree had windows of its own, which were renumbered apart from those of the old one."""
    joined = " AND ".join(f"{one}.k = {other}.k" for one, other in zip(names, names[1:], strict=False))
    shown = ", ".join(f"{name}.ts AS {name.lower()}" for name in names)
    texts = {}
    for query, window, value in (("short", 10, 0), ("long", 60 if len(names) > 2 else 400, 1)):
        items = ", ".join(f"{name} [RANGE {window}]" for name in names)
        texts[query] = f"SELECT {shown} FROM {items} WHERE {joined} AND A.v = {value}"
    eng = declare(names)
    for query, text in texts.items():
        eng.query(query, text)
    pushes = list(random_pushes(names, 60, 12 if len(names) == 2 else 5, keys=6, values=3))
    found: dict[str, list[pa.Table]] = {query: [] for query in texts}
    for push, data in enumerate(pushes):
        if push in (15, 40):
            eng.migrate("short", f"({' '.join(reversed(names))})", how="parallel-track")
        for query, table in eng.push(data).items():
            found[query].append(table)
    for query, table in eng.flush().items():
        fault = difference(pa.concat_tables([*found[query], table]), expect(texts[query], pushes))
        assert fault is None, f"{query}: {fault}"


def test_policies_set_during_a_parallel_track_stay() -> None:
    """The policy of the whole query, and that of one node, were those of the new tree's start when it took over."""
    eng = declare("ABCD", state="eager")
    eng.query("q", "SELECT A.ts AS a FROM A, B, C, D WHERE A.k = B.k AND B.k = C.k AND C.k = D.k WINDOW 20", plan="(((A B) C) D)")
    pushes = list(random_pushes("ABCD", 12, 3, keys=9, values=2))
    for data in pushes[:2]:
        eng.push(data)
    eng.migrate("q", "((A B) (C D))", how="parallel-track")
    eng.policy("q", "lazy")
    eng.policy("q", "none", node="(A B)")
    for data in pushes[2:]:
        eng.push(data)
    assert eng.metrics("q")["plan"] == "((A B) (C D))"
    assert eng.metrics("q")["state"] == "lazy"
    kept = eng.metrics("q")["state_rows"]
    assert "(A B)" not in kept
    assert "(C D)" in kept
