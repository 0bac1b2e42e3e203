"""Small runs on the public interface that once gave wrong results, and their streams and queries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from law_support import make_engine

from penstock.testing import difference, expected

COLUMNS = {"ts": "bigint", "k": "bigint", "v": "bigint"}


def declare(names: str, **options: Any) -> Any:
    eng = make_engine(**options)
    for name in names:
        eng.stream(name, COLUMNS, time="ts")
    return eng


def rows(*tuples: tuple[int, int, int]) -> pa.Table:
    return pa.table({name: [row[place] for row in tuples] for place, name in enumerate(COLUMNS)})


def random_pushes(
    names: str, pushes: int, rows: int, *, keys: int, values: int, skew: float = 1.0
) -> Iterator[dict[str, pa.Table]]:
    rng = np.random.default_rng(0)
    for push in range(pushes):
        yield {
            name: pa.table(
                {
                    "ts": np.sort(rng.integers(10 * push, 10 * push + 10, rows)),
                    "k": rng.integers(0, keys, rows),
                    "v": (values * rng.random(rows) ** skew).astype(np.int64),
                }
            )
            for name in names
        }


def expect(text: str, pushes: list[dict[str, pa.Table]]) -> pa.Table:
    streams = {name: pa.concat_tables([push[name] for push in pushes]) for name in pushes[0]}
    return expected(text, streams, {}, dict.fromkeys(streams, "ts"))


def check_rows_window_after_query_drop(window: str) -> None:
    """Later tuples ended tuples that had been freed with the dropped query."""
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


def check_parallel_track_on_shared_join(names: str, plan: str) -> None:
    """The new tree had its own windows, which were renumbered independently of those of the old tree."""
    joined = " AND ".join(f"{one}.k = {other}.k" for one, other in pairwise(names))
    shown = ", ".join(f"{name}.ts AS {name.lower()}" for name in names)
    texts = {}
    for query, window, value in (("short", 10, 0), ("long", 200 if len(names) > 2 else 400, 1)):
        items = ", ".join(f"{name} [RANGE {window}]" for name in names)
        texts[query] = f"SELECT {shown} FROM {items} WHERE {joined} AND A.v = {value}"
    eng = declare(names)
    for query, text in texts.items():
        eng.query(query, text)
    pushes = list(random_pushes(names, 60, 12, keys=6 if len(names) == 2 else 40, values=3))
    found: dict[str, list[pa.Table]] = {query: [] for query in texts}
    for push, data in enumerate(pushes):
        if push in (15, 40):
            eng.migrate("short", plan, how="parallel-track")
        for query, table in eng.push(data).items():
            found[query].append(table)
    for query, table in eng.flush().items():
        fault = difference(pa.concat_tables([*found[query], table]), expect(texts[query], pushes))
        assert fault is None, f"{query}: {fault}"


NARROW = "SELECT A.k AS k FROM A [RANGE {0}], B [RANGE {0}] WHERE A.k = B.k"


WIDE = "SELECT A.k AS k, A.v AS v FROM A [RANGE {0}], B [RANGE {0}] WHERE A.k = B.k"


def check_column_kept_later_in_compacted_window() -> None:
    """The marks of tuples without a column are ids, which change when dead tuples between them are removed."""
    eng = declare("AB")
    eng.query("narrow", NARROW.format(100))
    eng.query("brief", f"{NARROW.format(2)} AND A.v = 5")  # its tuples expire between those of the other query
    eng.query("odd", f"{NARROW.format(100)} AND A.v = 7")
    eng.drop("narrow")
    old = rows(*((time, 1, 5 if time % 2 else 7) for time in range(1, 9)))
    eng.push({"A": old, "B": rows((8, -2, 0))})
    eng.query("wide", WIDE.format(100))
    for time in (20, 21, 22):
        eng.push({"A": rows((time, 1, 5)), "B": rows((time, -2, 0))})
    eng.query("late", WIDE.format(100), history=True)
    found = (
        eng.push({"B": rows((30, 1, 0)), "A": rows((31, -1, 0))})["late"].to_pylist() + eng.flush()["late"].to_pylist()
    )
    assert found == [{"k": 1, "v": 5, "_ts": 30}] * 3
