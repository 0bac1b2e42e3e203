"""The state shrinks again one window after a burst."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from inspect_engine import joins_of

import penstock as ps
from penstock.join import JoinNode

BURST = range(20, 25)


def tuples(second: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(second)
    rows = 200 if second in BURST else 5
    ts = np.full(rows, second)
    keys = {key: rng.integers(0, 20, rows) for key in ("x", "y")}
    return {name: pa.table({"ts": ts, **keys}) for name in "ABC"}


def test_state_shrinks_after_burst() -> None:
    """With doubling alone the state would keep its dead rows until as many new rows have arrived."""
    engine = ps.Engine(state="eager")
    for name in "ABC":
        engine.stream(name, {"ts": "bigint", "x": "bigint", "y": "bigint"}, time="ts")
    sources = ", ".join(f"{name} [RANGE 10]" for name in "ABC")
    engine.query("q", f"SELECT A.x FROM {sources} WHERE A.x = B.x AND B.y = C.y", plan="((A B) C)")
    (join,) = joins_of(engine)
    most = 0
    for second in range(70):
        engine.push(tuples(second))
        most = max(most, sum(len(node.state) for node in join.tree.walk_joins() if node.state is not None))
    (inner,) = (node for node in join.tree.walk_joins() if isinstance(node, JoinNode) and node.state is not None)
    assert most > 10_000
    assert len(inner.state) <= 2 * inner.count_living(join.done) + 2 * 1024
