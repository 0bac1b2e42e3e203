"""Results of several pushes as one table for each query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pyarrow as pa

ResultTables = dict[str, pa.Table]


def concat_results(results: Iterable[Mapping[str, pa.Table]]) -> ResultTables:
    """Concatenate the tables that `push` and `flush` returned, by query."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    for result in results:
        for name, table in result.items():
            tables[name].append(table)
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}
