"""Window kinds: every property of every kind, and their text in CQL."""

import pyarrow as pa
import pytest

from penstock.cql import UNBOUNDED, Catalog, Range, Select, Stream, Table, Window, bind_query
from penstock.cql.windows import NOW, STATIC, PartitionedRows, Rows

TICKS = pa.int64()
TIMES = pa.timestamp("us")


@pytest.mark.parametrize(
    ("window", "lifetime", "row_count", "partition", "bounded"),
    [
        (Range(7), 7, None, (), True),
        (Range(7, 2), 7, None, (), True),
        (Rows(3), None, 3, (), True),
        (PartitionedRows(3, ("k",)), None, 3, ("k",), False),
        (NOW, 1, None, (), True),
        (UNBOUNDED, None, None, (), False),
        (STATIC, None, None, (), False),
    ],
)
def test_window_properties(
    window: Window, lifetime: int | None, row_count: int | None, partition: tuple[str, ...], bounded: bool
) -> None:
    assert (window.lifetime, window.row_count, window.partition, window.bounded) == (
        lifetime,
        row_count,
        partition,
        bounded,
    )
    assert window.counted == (row_count is not None)


def test_duration_and_slide_belong_to_range() -> None:
    assert (Range(7, 2).duration, Range(7, 2).slide, Range(7).slide) == (7, 2, None)
    others = (Rows(3), PartitionedRows(3, ("k",)), NOW, UNBOUNDED, STATIC)
    assert all(window.duration is None and window.slide is None for window in others)


@pytest.mark.parametrize(
    ("window", "time_type", "text"),
    [
        (Range(7), TICKS, "[RANGE 7]"),
        (Range(600_000_000), TIMES, "[RANGE 10 minutes]"),
        (Range(3_600_000_000, 60_000_000), TIMES, "[RANGE 1 hour SLIDE 1 minute]"),
        (Range(1_500), TIMES, "[RANGE 1500 microseconds]"),
        (Rows(3), TIMES, "[ROWS 3]"),
        (Rows(3, 2), TIMES, "[ROWS 3 SLIDE 2]"),
        (PartitionedRows(3, ("k", "x")), TIMES, "[PARTITION BY k, x ROWS 3]"),
        (NOW, TIMES, "[NOW]"),
        (UNBOUNDED, TIMES, "[UNBOUNDED]"),
    ],
)
def test_window_text_binds_to_the_window(window: Window, time_type: pa.DataType, text: str) -> None:
    assert window.text(time_type) == text
    catalog = Catalog()
    catalog.relations.add(Stream("s", pa.schema({"k": TICKS, "x": TICKS, "ts": time_type}), "ts"))
    group = " GROUP BY k" if window.slides else ""
    body = bind_query(f"SELECT k FROM s {text}{group}", catalog).body
    assert isinstance(body, Select)
    assert body.sources[0].window == window


def test_table_has_the_static_window() -> None:
    catalog = Catalog()
    catalog.relations.add(Stream("s", pa.schema({"k": TICKS, "ts": TICKS}), "ts"))
    catalog.relations.add(Table("t", pa.schema({"k": TICKS})))
    body = bind_query("SELECT t.k FROM s, t WHERE s.k = t.k", catalog).body
    assert isinstance(body, Select)
    assert [source.window for source in body.sources] == [UNBOUNDED, STATIC]
