"""Joins for Penstock and for Spark's own stream–stream joins over the same Parquet files.

Each stream has one file per micro-batch. Spark's joins are binary, and a chain of them has one event-time column. So
the times of all streams but the first become integers after their join, and pairs of them are compared with ABS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from penstock.lab.database import load_database
from penstock.lab.workloads import SECOND


@dataclass(frozen=True)
class WindowQuery:
    """One query of a workload: its window, and an optional bound on the payload of the first stream."""

    millis: int
    below: int | None = None


@dataclass(frozen=True)
class JoinWorkload:
    """Streams (ts, keys …, v) with uniform keys, joined by equalities such as a.k = b.k within a window.

    All tuples of a result are pairwise less than a window apart.
    """

    name: str
    columns: Mapping[str, tuple[str, ...]]
    equalities: tuple[tuple[str, str], ...]
    queries: tuple[WindowQuery, ...]
    rows: int
    seconds: float
    keys: int
    batches: int
    warm_batches: int = 2
    """The number of first micro-batches that are not measured, because Spark and its workers warm up."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def warm_up_workload(self) -> JoinWorkload:
        """The same queries and micro-batches with a tenth of the rows, run before the measurement."""
        return replace(self, rows=self.rows // 10, seconds=self.seconds / 10)

    @property
    def rows_in_batch(self) -> int:
        return self.rows // self.batches * len(self.names)

    def schema(self, name: str) -> pa.Schema:
        keys = [(column, pa.int64()) for column in self.columns[name]]
        return pa.schema([("ts", pa.timestamp("us")), *keys, ("v", pa.int64())])

    def generate_table(self, name: str, batch: int) -> pa.Table:
        rng = np.random.default_rng((7, self.names.index(name), batch))
        rows, span = self.rows // self.batches, int(self.seconds * SECOND) // self.batches
        keys = [rng.integers(0, self.keys, rows) for _ in self.columns[name]]
        times = np.sort(rng.integers(batch * span, (batch + 1) * span, rows))
        payload = np.arange(batch * rows, (batch + 1) * rows)
        arrays = [pa.array(times).cast(pa.timestamp("us")), *map(pa.array, keys), pa.array(payload)]
        return pa.Table.from_arrays(arrays, schema=self.schema(name))

    def write(self, folder: Path) -> None:
        """Write the files. Their modification times give the order in which Spark reads them."""
        for name in self.names:
            (folder / name).mkdir(parents=True)
            for batch in range(self.batches):
                path = folder / name / f"{batch:05}.parquet"
                pq.write_table(self.generate_table(name, batch), path)
                os.utime(path, (1_000_000 + batch, 1_000_000 + batch))

    def read(self, spark: SparkSession, folder: Path, name: str) -> DataFrame:
        keys = "".join(f"{column} bigint, " for column in self.columns[name])
        reader = spark.readStream.schema(f"ts timestamp_ntz, {keys}v bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder / name))

    # ── the queries ──────────────────────────────────────────────────────────────────────────────────────────────

    def build_cql(self, query: WindowQuery) -> str:
        sources = ", ".join(f"{name} [RANGE {query.millis} MILLISECONDS]" for name in self.names)
        return f"SELECT {self._items} FROM {sources} WHERE {self._build_where(query)}"

    def count_results(self) -> list[int]:
        """The number of results of each query, computed by DuckDB."""
        database = load_database({
            name: pa.concat_tables([self.generate_table(name, batch) for batch in range(self.batches)])
            for name in self.names
        })  # fmt: skip
        counts = []
        for query in self.queries:
            near = [f"ABS({x}.ts - {y}.ts) < {query.millis * 1000}" for x, y in combinations(self.names, 2)]
            where = " AND ".join([self._build_where(query), *near])
            rows = database.sql(f"SELECT COUNT(*) FROM {', '.join(self.names)} WHERE {where}").fetchall()
            counts.append(int(rows[0][0]))
        database.close()
        return counts

    @property
    def _items(self) -> str:
        return ", ".join(f"{name}.v AS v{name}" for name in self.names)

    def _build_where(self, query: WindowQuery) -> str:
        terms = [f"{left} = {right}" for left, right in self.equalities]
        if query.below is not None:
            terms.append(f"{self.names[0]}.v < {query.below}")
        return " AND ".join(terms)

    def build_spark_join(self, spark: SparkSession, folder: Path, query: WindowQuery) -> DataFrame:
        """The same query as a chain of Spark's own joins."""
        window, micros = f"INTERVAL '{query.millis / 1000}' SECOND", query.millis * 1000
        first, *others = self.names
        joined = self._read_prefixed(spark, folder, first)
        if query.below is not None:
            joined = joined.where(f"{first}_v < {query.below}")
        joined_names = [first]
        for name in others:
            terms = [f"{first}_ts < {name}_ts + {window}", f"{name}_ts < {first}_ts + {window}"]
            terms += [f"ABS({other}_t - unix_micros({name}_ts)) < {micros}" for other in joined_names[1:]]
            terms += [
                f"{left.replace('.', '_')} = {right.replace('.', '_')}"
                for left, right in self.equalities
                if name in (left[0], right[0]) and {left[0], right[0]} <= {*joined_names, name}
            ]
            joined = joined.join(self._read_prefixed(spark, folder, name), F.expr(" AND ".join(terms)))
            joined = joined.withColumn(f"{name}_t", F.expr(f"unix_micros({name}_ts)")).drop(f"{name}_ts")
            joined_names.append(name)
        return joined.select(*(f"{name}_v" for name in self.names), f"{first}_ts")

    def _read_prefixed(self, spark: SparkSession, folder: Path, name: str) -> DataFrame:
        frame = self.read(spark, folder, name).withColumn("ts", F.col("ts").cast("timestamp"))
        renamed = frame.select(*(F.col(column).alias(f"{name}_{column}") for column in frame.columns))
        return renamed.withWatermark(f"{name}_ts", "0 seconds")


def build_one_key(
    name: str, ways: int, rows: int, seconds: float, keys: int, window: int, batches: int
) -> JoinWorkload:
    """A join of `ways` streams on one key, over windows of `window` seconds."""
    names = "abcdefgh"[:ways]
    equal = tuple((f"{x}.k", f"{y}.k") for x, y in pairwise(names))
    queries = (WindowQuery(window * 1000),)
    return JoinWorkload(name, dict.fromkeys(names, ("k",)), equal, queries, rows, seconds, keys, batches)


def build_twelve(rows: int, seconds: float, keys: int, batches: int, windows: Sequence[int]) -> JoinWorkload:
    """W12: queries over windows of these milliseconds, every second one with a filter."""
    queries = tuple(WindowQuery(window, rows // 2 if number % 2 else None) for number, window in enumerate(windows))
    return JoinWorkload("W12", {"a": ("k",), "b": ("k",)}, (("a.k", "b.k"),), queries, rows, seconds, keys, batches)


def build_clique(rows: int, seconds: float, keys: int, window: int, batches: int) -> JoinWorkload:
    """Three streams, every pair joined on a separate column."""
    columns = {"a": ("x", "y"), "b": ("x", "z"), "c": ("y", "z")}
    equal = (("a.x", "b.x"), ("a.y", "c.y"), ("b.z", "c.z"))
    return JoinWorkload("clique", columns, equal, (WindowQuery(window * 1000),), rows, seconds, keys, batches)
