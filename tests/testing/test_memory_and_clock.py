"""In-memory sources and sinks, the virtual clock and the comparison of tables."""

from __future__ import annotations

import doctest
import importlib
from datetime import datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest

from penstock.testing import MemorySink, MemorySource, VirtualClock, difference, same_rows

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.string())])


def test_memory_source_batches() -> None:
    source = MemorySource(SCHEMA, batch=2)
    source.add([{"ts": 1, "x": "a"}])
    source.add(pa.table({"ts": [2, 3], "x": ["b", None]}))
    assert [table.to_pydict()["ts"] for table in source] == [[1, 2], [3]]
    assert source.read().num_rows == 0
    assert source.read().schema == SCHEMA


def test_memory_source_errors() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        MemorySource(SCHEMA, batch=0)
    with pytest.raises(ValueError, match="the source has"):
        MemorySource(SCHEMA).add(pa.table({"y": [1]}))


def test_source_takes_columns_and_frames() -> None:
    table = SCHEMA.empty_table()
    rows = pa.Table.from_pylist([dict.fromkeys(SCHEMA.names)], schema=SCHEMA)
    for form in (rows, rows.to_pandas(types_mapper=pd.ArrowDtype), dict(zip(SCHEMA.names, rows.columns, strict=True))):
        source = MemorySource(SCHEMA)
        source.add(form)
        assert pa.concat_tables([table, *source]).equals(rows)


def test_memory_sink_keeps_rows() -> None:
    sink = MemorySink()
    with pytest.raises(ValueError, match="nothing was written"):
        sink.table()
    sink(pa.table({"x": [1]}))
    sink.write(pa.table({"x": [2]}))
    assert (sink.num_rows, sink.table().to_pydict()) == (2, {"x": [1, 2]})
    sink.clear()
    assert sink.num_rows == 0


def test_virtual_clock() -> None:
    clock = VirtualClock(datetime(1970, 1, 1))
    assert clock.time() == 0
    assert clock.advance(timedelta(minutes=1)) == datetime(1970, 1, 1, 0, 1)
    clock.sleep(2)
    assert (clock.time(), clock.slept) == (62.0, [2])
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_equal_multisets_in_any_order() -> None:
    a = pa.table({"x": [1.0, float("nan"), None, 1.0]})
    same_rows(a, a.take([3, 2, 1, 0]))


def test_difference_lists_rows() -> None:
    found = difference(pa.table({"x": [1, 1, 3]}), pa.table({"x": [1, 2, 3]}))
    assert found is not None
    assert "1 missing, 1 unexpected" in found
    assert "x=2" in found
    with pytest.raises(AssertionError, match="unexpected: x=1"):
        same_rows(pa.table({"x": [1, 1]}), pa.table({"x": [1]}))


def test_difference_of_types() -> None:
    assert "x double" in str(difference(pa.table({"x": [1.0]}), pa.table({"x": [1]})))


@pytest.mark.parametrize("name", ["row_evaluator", "oracle", "clock", "memory", "compare", "query_text", "generate"])
def test_doc_examples(name: str) -> None:
    module = importlib.import_module(f"penstock.testing.{name}")
    assert doctest.testmod(module).failed == 0
