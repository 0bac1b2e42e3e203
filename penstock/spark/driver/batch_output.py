"""The output of all cells in a micro-batch, as the driver gets it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.adapt import JoinSample, decode_samples
from penstock.spark.driver.cell_reports import CellReport
from penstock.spark.worker.cell_state import METRICS, RESULT, SAMPLES, OutputKey
from penstock.spark.worker.writer import OVERSIZE, WRITTEN
from penstock.state import decode_table


@dataclass
class BatchOutput:
    """Reports and samples by cell; rows, messages and sizes by output."""

    cells: dict[int, CellReport] = field(default_factory=dict)
    samples: dict[int, Sequence[JoinSample]] = field(default_factory=dict)
    tables: dict[OutputKey, dict[int, list[pa.Table]]] = field(default_factory=dict)
    """By output and cell, the rows that sinks in the driver get."""
    messages: dict[OutputKey, dict[int, Any]] = field(default_factory=dict)
    """By output and cell, the messages of tasks that wrote."""
    oversizes: Counter[OutputKey] = field(default_factory=Counter)
    """The bytes that cells did not send, because they are too many for the driver."""
    rows: Counter[OutputKey] = field(default_factory=Counter)
    """The number of rows by output, whoever writes them."""

    @property
    def last_command(self) -> int:
        return max((cell["seen"] for cell in self.cells.values()), default=-1)

    def get_messages(self, key: OutputKey) -> list[Any]:
        """The messages for a sink, in the order of the cells."""
        return [message for _, message in sorted(self.messages.get(key, {}).items())]

    def merge_tables(self, key: OutputKey, schema: pa.Schema) -> pa.Table:
        """The rows of all cells for a sink in the driver; results in temporal order, late and dead rows by cell."""
        cells = [pa.concat_tables(parts) for _, parts in sorted(self.tables.get(key, {}).items())]
        if not cells:
            return schema.empty_table()
        merged = pa.concat_tables(cells)
        return merged.sort_by("_ts") if key[0] == RESULT and len(cells) > 1 else merged

    def measure(self, key: OutputKey) -> int:
        """The bytes of an output that is written in the driver, sent or not."""
        parts = (table for tables in self.tables.get(key, {}).values() for table in tables)
        return self.oversizes[key] + sum(int(table.nbytes) for table in parts)


def decode_output(rows: Iterable[Sequence[Any]]) -> BatchOutput:
    """The output of a micro-batch from the rows of its cells. Rows without data are those that Spark writes."""
    found = BatchOutput()
    for cell, kind, name, count, data in rows:
        if kind == METRICS:
            found.cells[cell] = json.loads(bytes(data))
        elif kind == SAMPLES:
            found.samples[cell] = decode_samples(bytes(data))
        elif kind.startswith(WRITTEN):
            key = kind.removeprefix(WRITTEN), name
            found.messages.setdefault(key, {})[cell] = json.loads(bytes(data))
            found.rows[key] += count
        elif kind.startswith(OVERSIZE):
            found.oversizes[kind.removeprefix(OVERSIZE), name] += json.loads(bytes(data))
        else:
            found.rows[kind, name] += count
            if data is not None:
                found.tables.setdefault((kind, name), {}).setdefault(cell, []).append(decode_table(bytes(data)))
    return found
