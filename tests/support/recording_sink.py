"""A sink of a user: every task writes a file, the driver lists the files that count. Pickled by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

import penstock as ps

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class RecordingSink(ps.sinks.TaskSink):
    """Keeps all files; a list for each micro-batch says which count."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._name = name
        Path(self._folder).mkdir(exist_ok=True)
        del run, schema

    def write(self, attempt: ps.sinks.Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        path = Path(self._folder) / f"{self._name}-{attempt.token}"
        table = pa.Table.from_batches(list(rows))
        pq.write_table(table, path)
        return [attempt.cell, str(path)]

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        assert [cell for cell, _ in messages] == sorted(cell for cell, _ in messages)
        (Path(self._folder) / f"commit-{batch}").write_text("\n".join(path for _, path in messages))

    def table(self) -> pa.Table:
        lists = [path.read_text().split() for path in sorted(Path(self._folder).glob("commit-*"))]
        return pa.concat_tables(pq.read_table(path) for paths in lists for path in paths)
