"""Rings of arrays, maps and structs against lists of Python values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.state import make_ring_column

TYPES = (
    pa.list_(pa.int64()),
    pa.list_(pa.string()),
    pa.map_(pa.string(), pa.list_(pa.bool_())),
    pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.float64()))]))]),
    pa.list_(pa.list_(pa.struct([("x", pa.decimal128(5, 2)), ("y", pa.string())]))),
)


def draw(rng: random.Random, kind: pa.DataType) -> Any:
    if rng.random() < 0.2:
        return None
    if pa.types.is_map(kind):
        return [(key, draw(rng, kind.item_type)) for key in rng.sample("abc", rng.randint(0, 2))]
    if pa.types.is_list(kind):
        return [draw(rng, kind.value_type) for _ in range(rng.choice((0, 1, 2, 9)))]
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_struct(kind):
        return {field.name: draw(rng, field.type) for field in kind}
    return pa.array([rng.randint(0, 9)]).cast(pa.string()).cast(kind, safe=False)[0].as_py()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_rows_are_read_as_they_were_appended(kind: pa.DataType) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        capacity, base, end = 8, 0, 0
        column, rows = make_ring_column(kind, capacity), {}
        for _ in range(25):
            more = rng.randint(0, 6)
            base = rng.randint(base, end)
            if end - base + more > capacity:
                capacity *= 2
                column.resize(capacity, base, end)
            elif rng.random() < 0.2:
                kept = np.array(sorted(rng.sample(range(base, end), (end - base) // 2)), np.int64)
                column = column.move(kept, base)
                rows |= {base + place: rows[int(row)] for place, row in enumerate(kept)}
                end = base + kept.size
            values = [draw(rng, kind) for _ in range(more + 2)]
            column.append(base, end, pa.array(values, kind)[1 : more + 1])  # a part of an array has an offset
            rows |= dict(zip(range(end, end + more), values[1:], strict=False))
            end += more
            ids = np.array([rng.randrange(base, end) for _ in range(5)] if end > base else [], np.int64)
            taken = column.take(ids)
            taken.validate(full=True)
            assert taken.type == kind
            assert taken.to_pylist() == [rows[int(row)] for row in ids]
            assert column.nbytes > 0
