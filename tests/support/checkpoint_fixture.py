"""The pipeline of the stored checkpoints in tests/spark/fixtures, and how a new one is made.

`python tests/support/checkpoint_fixture.py FORMAT` writes a zip file into tests/spark/fixtures. A new format of
checkpoints needs a new fixture; the older ones stay, so that a later version must still read the format before it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline

FOLDER = Path(__file__).parents[1] / "spark" / "fixtures"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())])
QUERIES = {
    "pairs": "SELECT t.k, t.v, h.v AS w FROM t [RANGE 100], h [RANGE 100] WHERE t.k = h.k AND t.v > 1",
    "recent": "SELECT t.v AS v, r.name FROM t [PARTITION BY k ROWS 2] AS t, rooms AS r WHERE t.k = r.k",
    "sums": "SELECT k, SUM(v) AS s FROM h [RANGE 60] GROUP BY k",
}
ROOMS = pa.table({"k": [0, 1, 2], "name": ["hall", "lab", "roof"]})
CELLS = 2


def make_rows(batch: int, offset: float) -> pa.Table:
    """Forty rows of a micro-batch, which covers forty ticks."""
    times = list(range(40 * batch, 40 * batch + 40))
    return pa.table({"ts": times, "k": [t % 5 for t in times], "v": [offset + t % 7 for t in times]}, SCHEMA)


def write_batch(folder: Path, batch: int) -> dict[str, pa.Table]:
    """Write the files of a micro-batch; returns their rows by stream."""
    rows = {"t": make_rows(batch, 0.0), "h": make_rows(batch, 0.5)}
    for name, table in rows.items():
        write_file(folder / name / f"{batch}.parquet", table, batch)
    return rows


def build_fixture_pipeline(spark: Any, folder: Path) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline over the files in a folder, and the memory sinks of its queries."""
    pipe = ps.Pipeline(spark)
    for name in ("t", "h"):
        pipe.stream(name, read_stream(spark, SCHEMA, folder / name), "ts")
    pipe.table("rooms", ROOMS)
    answers = {name: sinks.memory() for name in QUERIES}
    for name, text in QUERIES.items():
        pipe.query(name, text, sink=answers[name])
    return pipe, answers


def write_fixture(format_number: str) -> None:
    from penstock.spark.session import local_session

    folder = Path(tempfile.mkdtemp())
    write_batch(folder, 0)
    write_batch(folder, 1)
    pipe, _ = build_fixture_pipeline(local_session("local[2]"), folder)
    drain(pipe.start(folder / "ck", cells=CELLS))
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / f"checkpoint-{format_number}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "ck").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder / "ck"))


def unpack_fixture(format_number: int, folder: Path) -> None:
    """Unpack a stored checkpoint as the folder `ck`. Spark stores absolute paths, which become those of this folder."""
    place = folder / "ck"
    with zipfile.ZipFile(FOLDER / f"checkpoint-{format_number}.zip") as archive:
        archive.extractall(place)
    state = (place / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    (old,) = set(re.findall(r"file:([^\"]+)/ck/", state))
    for path in (*(place / "state" / "0" / "_metadata").rglob("*"), *(place / "sources").rglob("*")):
        if path.is_file() and path.suffix == ".crc":
            path.unlink()
        elif path.is_file():
            path.write_text(path.read_text().replace(f"{old}/", f"{folder}/"))


if __name__ == "__main__":
    write_fixture(sys.argv[1])
