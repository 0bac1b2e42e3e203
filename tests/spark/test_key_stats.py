"""Overloaded cells are reported with the key that causes the skew (no Spark session)."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from cell_support import Cluster

from penstock.cql import Stream
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.worker.cell_state import METRICS
from penstock.spark.worker.key_stats import HotCell, KeyStats
from penstock.testing import Push

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
JOIN = "SELECT A.n FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"


def find_hot_cells(part: float, text: str = JOIN, cells: int = 4, rows: int = 2000, keys: int = 500) -> list[HotCell]:
    """The hot cells after ten micro-batches in which this fraction of the rows of A has one key."""
    cluster = Cluster(
        PipelineSpec(tuple(Stream(name, SCHEMA, "ts") for name in "AB"), {}, (QuerySpec("q", text),), cells)
    )
    rng, found = np.random.default_rng(3), KeyStats()
    for at in range(10):
        tables = {}
        for name, size in (("A", rows), ("B", 20)):
            k = np.char.add("key ", rng.integers(0, keys, size).astype(str)).astype(object)
            if name == "A":
                k[rng.random(size) < part] = "busy"
            tables[name] = pa.table([np.full(size, at), k, rng.integers(0, 99, size)], schema=SCHEMA)
        out = cluster.push(Push(tables))
        found.add({cell: json.loads(data) for cell, kind, _, _, data in out if kind == METRICS})
    return found.find_hot_cells(cluster.layout)


def test_hot_key_reported_with_cell() -> None:
    (hot,) = find_hot_cells(0.5)
    assert hot.stream == "A"
    assert hot.key == "A.k = busy"
    assert hot.part == pytest.approx(0.5 + 0.5 / 4, abs=0.05)
    assert hot.times == pytest.approx(4 * hot.part, abs=0.01)
    assert hot.cell in range(len(find_cell_keys(4)))
    assert str(hot).endswith("times its share, most of the excess is A.k = busy")


def test_uniform_keys_and_few_rows_not_hot() -> None:
    assert find_hot_cells(0.0) == []
    assert find_hot_cells(0.1) == []
    assert find_hot_cells(0.9, rows=40) == []
    assert find_hot_cells(0.9, cells=1) == []


def test_cell_hot_by_many_keys() -> None:
    """Three keys on twelve cells: most cells have no key."""
    found = find_hot_cells(0.0, keys=3, cells=12)
    assert found
    assert all(each.times > 1.5 for each in found)


def test_no_hot_key_without_key_partitioning() -> None:
    assert find_hot_cells(0.5, "SELECT A.n FROM A [RANGE 5] WHERE A.n > 3") == []  # by a hash of the whole row
    assert find_hot_cells(0.5, "SELECT COUNT(*) AS n FROM A [RANGE 5]") == []  # pinned
