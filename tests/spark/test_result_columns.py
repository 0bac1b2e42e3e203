"""How results leave the state stage of a streaming frame: every type exactly, in bounded parts, with counts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_support import write_results

import penstock as ps
from penstock.spark.frames.result_columns import SentResults, number_columns
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT

NAN = float("nan")
FLAT = {
    "flag": (pa.bool_(), "boolean", [True, None, False]),
    "small": (pa.int32(), "int", [-(2**31), 2**31 - 1, None]),
    "large": (pa.int64(), "bigint", [-(2**63), None, 2**63 - 1]),
    "real": (pa.float64(), "double", [NAN, None, -0.0]),
    "text": (pa.string(), "string", ["", "ä\0`", None]),
    "amount": (pa.decimal128(38, 9), "decimal(38,9)", [Decimal("-99999999999999999999999999999.999999999"), None, 0]),
    "day": (pa.date32(), "date", [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "moment": (pa.timestamp("us", "UTC"), "timestamp", [dt.datetime(1883, 11, 18, 1, 2, 3, 4, dt.UTC), None,
                                                        dt.datetime(2026, 3, 29, 1, 30, 0, 1, dt.UTC)]),
    "local": (pa.timestamp("us"), "timestamp_ntz", [dt.datetime(2026, 3, 29, 2, 30, 0, 1), None,
                                                    dt.datetime(1, 1, 1, 0, 0, 0, 1)]),
}  # fmt: skip
"""Name, type in Arrow and in Spark, and values. The hour of `local` does not exist in Berlin."""
NESTED = {"tags": (pa.list_(pa.string()), "array<string>", [["a", None], [], None])}


@contextmanager
def set_zone(spark: Any, zone: str) -> Iterator[None]:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    spark.conf.set(key, zone)
    try:
        yield
    finally:
        spark.conf.set(key, before)


@pytest.mark.parametrize("columns", [FLAT, {**FLAT, **NESTED}], ids=["columns", "blobs"])
def test_results_of_every_type(spark: Any, tmp_path: Path, columns: dict[str, Any]) -> None:
    values = {name: pa.array(values, kind) for name, (kind, _, values) in columns.items()}
    rows = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), **values})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "0.parquet")
    ddl = ", ".join(["ts bigint", *(f"{name} {kind}" for name, (_, kind, _) in columns.items())])
    with set_zone(spark, "Europe/Berlin"):
        stream = spark.readStream.schema(ddl).parquet(str(tmp_path / "t"))
        frame = ps.sql(spark, f"SELECT {', '.join(columns)} FROM t [NOW]", t=ps.timed(stream, "ts"))
        assert [kind for _, kind in frame.dtypes] == [*(kind for _, kind, _ in columns.values()), "bigint"]
        write_results(frame, tmp_path)
        written = spark.read.parquet(str(tmp_path / "q-out")).orderBy("_ts").collect()
        read = spark.read.schema(ddl).parquet(str(tmp_path / "t")).orderBy("ts").collect()
    assert [list(map(repr, row[:-1])) for row in written] == [list(map(repr, row[1:])) for row in read]


def test_results_are_sent_in_parts() -> None:
    """Parts have at most 2¹⁶ rows and about 8 MiB; the counts are in a row of their own, NULL in all others."""
    rows = pa.table({"v": np.arange(150_000), "_ts": np.arange(150_000)})
    sent = SentResults(number_columns(rows.schema))
    late, dead = rows.slice(0, 3), rows.slice(0, 2)
    *parts, counts = sent.send([((RESULT, "q"), rows), ((LATE, "t"), late), ((DEAD, "t"), dead), ((LATE, "u"), late)])
    assert max(map(len, parts)) <= 2**16
    tables = [pa.Table.from_pandas(part, preserve_index=False) for part in parts]
    assert pa.concat_tables(tables).column("c0").to_pylist() == list(range(150_000))
    assert all(table.column(name).null_count == table.num_rows for table in tables for name in ("results", "late"))
    row = pa.Table.from_pandas(counts, preserve_index=False).to_pylist()
    assert row == [{"results": 150_000, "late": 6, "dead": 2, "c0": None, "c1": None}]
    texts = pa.table({"v": ["x" * 2**20] * 40})
    wide = list(SentResults(number_columns(texts.schema)).send([((RESULT, "q"), texts)]))
    assert max(map(len, wide)) <= 8
    assert sum(map(len, wide)) == 41
    assert list(sent.send([])) == []
