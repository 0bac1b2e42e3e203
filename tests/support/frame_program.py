"""A program that a test kills: `ps.sql` over the streams of a folder into Spark's Parquet sink."""

from __future__ import annotations

import sys
from pathlib import Path

import penstock as ps
from penstock.spark.session import SHORT_RUN_SETTINGS, local_session

TEXT = "SELECT t.v, h.v AS w, r.name FROM t [RANGE 50], h [RANGE 50], r WHERE t.k = h.k AND t.k = r.k"
DDL = "ts bigint, k bigint, v bigint"


def main(folder: Path) -> None:
    spark = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_RUN_SETTINGS})
    (folder / "java").write_text(str(spark.sparkContext._gateway.proc.pid))
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
    frames = {name: ps.timed(reader.parquet(str(folder / name)), "ts") for name in ("t", "h")}
    names = spark.createDataFrame([(k, f"room {k}") for k in range(5)], "k bigint, name string")
    hot = ps.sql(spark, TEXT, r=names, cells=2, **frames)
    writer = hot.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "ck")).start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
