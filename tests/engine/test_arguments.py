"""A misspelled keyword argument is refused with the argument that exists."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.spark.run import Run


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ps.Pipeline.start(None, checkpoint_location="ck"), "did you mean checkpointLocation?"),
        (lambda: ps.Pipeline.stream(None, "s", None, "ts", idleAfter="1 minute"), "did you mean idle_after?"),
        (lambda: Run.awaitTermination(None, timeOut=3), "did you mean timeout?"),
        (lambda: ps.Engine(max_query=3), "the constructor has no argument max_query; did you mean max_queries?"),
        (lambda: ps.Engine().stream("A", {"ts": "bigint"}, timestamp="ts"), "stream has no argument timestamp"),
        (lambda: ps.Engine().query("q", "SELECT x FROM A", color="red"), "(it takes name, text, plan, state, demand"),
        (lambda: ps.Engine().flush(now=True), "flush has no argument now (it takes none)"),
    ],
)
def test_misspelled_keyword(call: Any, says: str) -> None:
    with pytest.raises(ps.QueryError, match="UNKNOWN_ARGUMENT") as caught:
        call()
    assert says in str(caught.value)
    assert isinstance(caught.value, TypeError)
