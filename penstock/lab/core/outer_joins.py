"""Processor time of a LEFT JOIN in relation to the inner join that it contains, over the same pushes.

The share of rows without a partner depends on the number of keys: with few keys almost every row has partners.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import process_time

from penstock.engine import Engine
from penstock.lab.report import ReportRow
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import SECOND, KeyedStreams, PushTables

_PARTS = 12
_SECONDS = 3000
_INNER = "SELECT a.k, a.v AS va, b.v AS vb FROM a [RANGE 100 SECONDS] JOIN b [RANGE 100 SECONDS] ON a.k = b.k"
_LEFT = _INNER.replace("JOIN", "LEFT JOIN")


def measure_outer_joins(rows: int, keys: Sequence[int], rounds: int) -> list[ReportRow]:
    """One line for each number of keys and each form of emission: seconds of both joins, and their ratio."""
    found: list[ReportRow] = []
    for count in keys:
        streams = KeyedStreams(2, rows, _SECONDS * SECOND, count, 100 * SECOND)
        pushes = list(streams.generate_pushes(_PARTS))
        for emit in ("", " EMIT CHANGES", " EMIT ON WINDOW CLOSE"):
            timer = TurnTimer([_INNER, _LEFT], rounds, 1, process_time)
            for text in (_INNER, _LEFT):
                _run(streams, pushes[:2], text + emit)  # loads the compiled loops
            for round_number in range(rounds):
                for text in timer.order(round_number):
                    timer.run(text, round_number, 0, partial(_run, streams, pushes, text + emit))
            inner, left = timer.total(_INNER), timer.total(_LEFT)
            found.append({
                "keys": count,
                "emits": emit.strip() or "ISTREAM",
                "inner_s": inner,
                "left_s": left,
                "times": round(left / inner, 2),
            })  # fmt: skip
    return found


def _run(streams: KeyedStreams, pushes: Sequence[PushTables], text: str) -> int:
    engine = Engine()
    for name in streams.names:
        engine.stream(name, streams.schema, time="ts")
    engine.query("q", text)
    results = sum(engine.push(push)["q"].num_rows for push in pushes)
    return int(results + engine.flush()["q"].num_rows)
