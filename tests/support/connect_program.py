"""A program over Spark Connect: batch and streaming frames, and what is refused. Its argument is a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import penstock as ps

TEXT = "SELECT r.name, a.v, b.v AS w FROM a [RANGE 10], b [RANGE 10], r WHERE a.k = b.k AND a.k = r.k"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(folder: Path) -> None:
    try:
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
    except Exception as error:
        print("no server", type(error).__name__, str(error).splitlines()[:1])
        return
    rows = spark.range(40).selectExpr("id AS ts", "id % 4 AS k", "id AS v")
    for name in ("a", "b"):
        rows.write.parquet(str(folder / name))
    names = pa.table({"k": [0, 1], "name": ["dock", "store"]})
    batch = {name: ps.timed(spark.read.parquet(str(folder / name)), "ts") for name in ("a", "b")}
    answer = ps.sql(spark, TEXT, r=names, **batch)
    print("batch", answer.count(), answer.columns)
    live = {
        name: ps.timed(spark.readStream.schema("ts bigint, k bigint, v bigint").parquet(str(folder / name)), "ts")
        for name in ("a", "b")
    }
    show_error(lambda: ps.sql(spark, TEXT, r=names, **live))
    show_error(lambda: ps.Pipeline(spark))
    show_error(lambda: ps.queries(spark, {"q": TEXT}, r=names, **live).start(folder / "ck", {}))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDER)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    large = pa.table({"k": list(range(100_000)), "name": ["a name"] * 100_000})
    show_error(lambda: ps.sql(spark, TEXT, r=large, **live))
    frame = ps.sql(spark, TEXT, r=names, **live)
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "ck")).start()
    query.processAllAvailable()
    query.stop()
    written = spark.read.parquet(str(folder / "out"))
    wrong, missing = written.exceptAll(answer).count(), answer.filter("_ts < 39").exceptAll(written).count()
    print("stream", written.columns, wrong, missing)
    spark.stop()


def show_error(function: object) -> None:
    try:
        function()  # type: ignore[operator]
    except ps.PenstockError as error:
        print("refused", error.condition)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
