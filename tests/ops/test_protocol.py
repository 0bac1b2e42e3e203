"""What every operator offers: names, saved state, types of batches; and the rule of lateness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Stream
from penstock.graph import Buffer
from penstock.ops import (
    Batch,
    Changes,
    IStreamOperator,
    LatentSource,
    OperatorId,
    SourceOperator,
    concat,
    find_frontier,
    mark_late,
    stamp_times,
)
from penstock.ops.protocol import StreamRows

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])


def columns(*times: int) -> dict[str, pa.Array]:
    return {"ts": pa.array(times, pa.int64()), "x": pa.array(times, pa.int64())}


def test_operator_id_text() -> None:
    assert str(OperatorId("q", "join")) == "q: join"
    assert str(OperatorId("a: b", "join", 2)) == "a: b: join 2"
    assert OperatorId("a: b", "join", 2).query == "a: b"


def test_query_name_with_colon_in_explain() -> None:
    engine = ps.Engine()
    for name in "AB":
        engine.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    text = "SELECT A.x FROM A [RANGE {0}], B [RANGE {0}] WHERE A.x = B.x"
    engine.query("one: two", text.format(5))
    engine.query("three: join", text.format(9))
    assert "read one: two" in engine.explain("three: join")
    assert list(engine.metrics("one: two")["operators"]) == ["one: two: join"]  # type: ignore[call-overload]


def test_batches_keep_their_type() -> None:
    times, numbers = np.arange(3), np.arange(3)
    rows = StreamRows(times, columns(0, 1, 2), None, numbers)
    changes = Changes(times, columns(0, 1, 2), np.ones(3, np.int8), numbers)
    for batch in (rows, changes, Batch(times, columns(0, 1, 2))):
        made = (batch.slice(1, 3), batch.take(np.array([2, 0])), concat([batch, batch]))
        assert [type(each) for each in made] == [type(batch)] * 3
    with pytest.raises(TypeError):
        Changes(times, columns(0, 1, 2))  # type: ignore[call-arg]


def test_operator_refuses_batch_of_wrong_type() -> None:
    arc = Buffer()
    operator = IStreamOperator("i", arc.open(), Buffer())
    arc.write(StreamRows(np.arange(1), columns(0), None, np.arange(1)))
    with pytest.raises(ps.InternalError, match="NOT_CHANGES"):
        operator.run(1)


def test_lateness_rule() -> None:
    stream = Stream("A", SCHEMA, "ts", lateness=3)
    assert mark_late(np.array([4, 5, 6]), 5).tolist() == [True, False, False]
    assert find_frontier(stream, 10) == 7
    assert stamp_times(np.array([4, 9]), 5).tolist() == [5, 9]


@pytest.mark.parametrize("kind", [SourceOperator, LatentSource])
def test_source_continues_from_its_dump(kind: Any) -> None:
    def make() -> tuple[Any, Any]:
        outlet = Buffer()
        clock = () if kind is SourceOperator else (lambda: 9,)
        return kind("source A", Stream("A", SCHEMA, "ts", lateness=3), outlet, *clock), outlet.open()

    (source, reader), (again, other) = make(), make()
    source.feed(np.array([1, 5, 8]), columns(1, 5, 8))
    source.feed(np.array([2, 9]), columns(2, 9))
    again.restore(source.dump(), None)
    assert again.metrics() == source.metrics()
    for each in (source, again):
        each.advance(20)
        while each.has_work():
            each.run(2)
    assert [batch.numbers.tolist() for batch in reader.read(99)] == [batch.numbers.tolist() for batch in other.read(99)]
    assert not source.has_work()


class Failing:
    """An aggregate that raises for 13."""

    def iterate(self, value: int) -> None:
        if value == 13:
            raise ValueError("unlucky")

    def terminate(self) -> int:
        return 0


def test_failures_keep_their_condition_in_snapshot() -> None:
    engine = ps.Engine()
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.aggregate("failing", Failing)
    engine.query("q", "SELECT failing(x) AS y FROM A [RANGE 5]")
    with pytest.warns(RuntimeWarning, match="unlucky"):
        engine.push({"A": pa.table({"ts": [1, 2], "x": [13, 1]})}, {"A": 9})
    again = ps.Engine.restore(engine.snapshot(), aggregates={"failing": Failing})
    (old, new) = (each.failures()["q"] for each in (engine, again))
    assert (new.condition, new.message) == (old.condition, old.message)
    assert old.condition == "AGGREGATE_FAILED"
