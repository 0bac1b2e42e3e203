"""Queries come, go and change their plans while a pipeline runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sparkkit import embedded, in_batches, pipeline, write

import penstock as ps
from penstock.spark import sinks
from penstock.testing import difference, random_case


def test_add_migrate_drop_and_advance(spark: Any, tmp_path: Path) -> None:
    case = in_batches(random_case(3, sources=3, windows=("range",), shape="chain", emit="", full=True, rows=30,
                                  timestamps=False, tables=False, nulls=0.0, domain=4, late=False), 4)  # fmt: skip
    first, last = case.declarations[0].name, case.declarations[-1].name
    other = f"SELECT P.id AS p FROM {first} [RANGE 5] AS P, {last} [ROWS 3] AS Q WHERE P.x = Q.x"
    write(case, tmp_path, range(0, 1))
    pipe, answers = pipeline(spark, case, {"q": case.query}, tmp_path)
    run = pipe.start(tmp_path / "ck", cells=2)
    try:
        run.processAllAvailable()
        late = sinks.memory()
        run.add("late", other, sink=late)
        with pytest.raises(ps.QueryError, match="DUPLICATE_NAME"):
            run.add("late", other)
        write(case, tmp_path, range(1, 2))
        run.processAllAvailable()
        run.migrate("q", case.plan)
        write(case, tmp_path, range(2, 3))
        run.processAllAvailable()
        run.drop("late")
        write(case, tmp_path, range(3, 4))
        run.processAllAvailable()
        before = run.metrics()["streams"][first]["frontier"]
        run.advance(first, before + 1000)
        run.processAllAvailable()
        metrics = run.metrics()
        assert metrics["streams"][first]["frontier"] == before + 1000
        run.finish()
        run.processAllAvailable()
    finally:
        run.stop()
    assert difference(answers["q"].table(), case.expected) is None
    assert metrics["queries"].keys() == {"q"}
    middle = type(case)(case.seed, case.declarations, {}, other, "", case.steps[1:3])
    assert difference(late.table(), embedded(middle, {"late": other})["late"]) is None
    with pytest.raises(ps.QueryError, match="RUN_ENDED"):
        run.drop("q")
