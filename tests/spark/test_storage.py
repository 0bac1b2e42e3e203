"""A checkpoint and sinks on a storage that only Hadoop's FileSystem knows, and paths as Spark resolves them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inspect_spark import hadoop_configuration
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks
from penstock.spark.rescale import rescale
from penstock.spark.storage import Folder

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
TEXT = (
    "SELECT a.ts AS at, b.ts AS bt, n.name FROM s [RANGE 100] AS a, s [RANGE 100] AS b, names AS n "
    "WHERE a.k = b.k AND a.k = n.k"
)
NAMES = pa.table({"k": [1, 2], "name": ["one", "two"]})


@pytest.fixture
def remote(spark: Any, tmp_path: Path) -> Iterator[str]:
    """A URI of Hadoop's ViewFs, which leads to a folder of this machine; Arrow does not know the scheme."""
    conf, name = hadoop_configuration(spark), f"c{os.getpid()}-{tmp_path.name.replace('_', '-')}"
    key = f"fs.viewfs.mounttable.{name}.link./data"
    (tmp_path / "mounted").mkdir()
    conf.set(key, f"file://{tmp_path}/mounted")
    yield f"viewfs://{name}/data"
    conf.unset(key)


def run(spark: Any, folder: Path, place: str, cells: int, *, finish: bool = False) -> ps.Pipeline:
    pipe = ps.Pipeline(spark)
    pipe.stream("s", read_stream(spark, SCHEMA, folder / "s"), "ts")
    pipe.table("names", NAMES)
    pipe.query("q", TEXT, sink=sinks.parquet(f"{place}/out{cells}"))
    drain(pipe.start(f"{place}/ck{cells}", cells=cells), finish=finish)
    return pipe


def write_rows(folder: Path, number: int, keys: list[int]) -> None:
    times = range(10 * number, 10 * number + len(keys))
    write_file(folder / "s" / f"{number}.parquet", pa.table([times, keys], schema=SCHEMA), number)


def test_checkpoint_on_hadoop_storage(spark: Any, tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are on the storage: state, metadata, commands, tables, late rows and results; a rescale works there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    write_rows(tmp_path, 1, [1, 2])
    run(spark, tmp_path, remote, 2)
    write_rows(tmp_path, 2, [2, 1])
    write_file(tmp_path / "s" / "3.parquet", pa.table([[1], [1]], schema=SCHEMA), 3)  # late
    run(spark, tmp_path, remote, 2)
    rescale(spark, f"{remote}/ck2", f"{remote}/ck3", 3)
    write_rows(tmp_path, 4, [1])
    run(spark, tmp_path, remote, 3, finish=True)
    mounted = tmp_path / "mounted"
    names = {path.name for path in (mounted / "ck2").iterdir()}
    assert {"penstock.json", "control", "tables", "late", "offsets", "state"} <= names
    found = pa.concat_tables(pq.read_table(file) for file in mounted.glob("out*/*.parquet"))
    pairs = [(10, 21), (11, 20), (10, 40), (21, 40)]
    mirrored = [(b, a) for a, b in pairs] + [(t, t) for t in (10, 11, 20, 21, 40)]
    rows = zip(found.column("at").to_pylist(), found.column("bt").to_pylist(), strict=True)
    assert sorted(rows) == sorted(pairs + mirrored)
    assert set(found.column("name").to_pylist()) == {"one", "two"}
    assert pq.read_table(mounted / "ck2" / "late" / "s").num_rows == 1
    assert list(elsewhere.iterdir()) == []


def test_folder_on_hadoop_storage(spark: Any, tmp_path: Path, remote: str) -> None:  # noqa: ARG001
    folder = Folder(f"{remote}/a b%")
    assert not folder.is_local
    assert folder.list_names() == []
    assert folder.read("x") is None
    folder.write("x", b"one")
    folder.write("x", b"two")
    folder.write_with("large", lambda file: [file.write(b"0123456789" * 100_000) for _ in range(10)])
    folder.child("inner").write("y", b"")
    assert folder.list_names() == ["inner", "large", "x"]
    assert folder.read("x") == (tmp_path / "mounted/a b%/x").read_bytes() == b"two"
    assert folder.read("large") == b"0123456789" * 1_000_000
    with pytest.raises(ZeroDivisionError):
        folder.write_with("x", lambda _: 1 / 0)
    assert folder.read("x") == b"two"
    folder.copy_to(Folder(str(tmp_path / "copy")))
    assert (tmp_path / "copy" / "inner" / "y").exists()
    folder.remove("x")
    folder.remove("x")
    folder.delete_all()
    assert folder.list_names() == []


def test_paths_as_spark_resolves_them(spark: Any, tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scheme a path is in Hadoop's default file system; a scheme that is not known is refused."""
    assert Folder(str(tmp_path)).is_local
    assert Folder(f"file:{tmp_path}").find_local_path("x") == f"{tmp_path}/x"
    with pytest.raises(ps.DataError, match="FOLDER_UNREACHABLE"):
        Folder("nothing://at/all").list_names()
    conf = hadoop_configuration(spark)
    default = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", remote.removesuffix("/data"))
    try:
        folder = Folder("/data/somewhere")
        assert folder.uri == f"{remote}/somewhere"
        folder.write("x", b"here")
    finally:
        conf.set("fs.defaultFS", default)
    assert (tmp_path / "mounted" / "somewhere" / "x").read_bytes() == b"here"
    with monkeypatch.context() as patch:  # as in a task, which has no JVM
        patch.setattr("pyspark.SparkContext._active_spark_context", None)
        assert Folder(str(tmp_path)).is_local
