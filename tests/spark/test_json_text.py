"""Values as JSON: the keys of maps are texts of JSON, whatever their type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.json_text import write_json

INSTANT = datetime(2026, 3, 1, 8, 0, 0, 120, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (pa.string(), 'a "b"\n', 'a "b"\n'),
        (pa.int64(), -7, "-7"),
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.float64(), 1.5, "1.5"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.decimal128(12, 9), Decimal("0.000000001"), "0.000000001"),
        (pa.date32(), date(2026, 3, 1), "2026-03-01"),
        (pa.timestamp("us"), INSTANT.replace(tzinfo=None), "2026-03-01T08:00:00.000120Z"),
        (pa.timestamp("us", "Europe/Oslo"), INSTANT, "2026-03-01T08:00:00.000120Z"),
        (pa.struct([("a", pa.int64()), ("b", pa.bool_())]), {"a": 1, "b": True}, '{"a": 1, "b": true}'),
    ],
)
def test_keys_of_maps_are_written_like_values(kind: pa.DataType, key: Any, name: str) -> None:
    text = write_json([(key, 1)], pa.map_(kind, pa.int64()))
    assert json.loads(text) == {name: 1}
