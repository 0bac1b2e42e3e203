"""Random queries with aggregates over the streams A and B."""

from __future__ import annotations

import random

import pyarrow as pa

ROWS = 30
SCHEMA = pa.schema([
    ("ts", pa.int64()), ("k", pa.int64()), ("x", pa.int64()), ("v", pa.float64()), ("s", pa.string())
])  # fmt: skip
VALUES = {"k": [0, 1, None], "x": [None, *range(9)], "v": [None, 0.5, 1.0, 2.25, -3.0, 7.5],
          "s": [None, "", "a", "b", "cc"]}  # fmt: skip
CALLS = (
    "STDDEV({v})", "VARIANCE({x})", "VAR_POP({v})", "STDDEV_POP({x})", "MEDIAN({v})", "PERCENTILE({x}, 0.75)",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY {x} DESC)", "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {s})",
    "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY {v} DESC)", "FIRST({s})", "LAST({v})", "ARG_MIN({s}, {v})",
    "MAX_BY({x}, {s})", "STRING_AGG({s}, ',')", "STRING_AGG(DISTINCT {s}, '+')", "BOOL_AND({x} > 2)", "COUNT(*)",
    "LISTAGG({s}, '-') WITHIN GROUP (ORDER BY {x} DESC NULLS LAST, {v})", "MEDIAN({v}) FILTER (WHERE {x} > 3)",
    "STRING_AGG({s}, '') FILTER (WHERE {v} > 0)", "SUM({x})", "APPROX_COUNT_DISTINCT({s})", "MEDIAN(DISTINCT {x})",
    "ARRAY_AGG({v})", "COLLECT_SET({s})", "ARRAY_AGG({x} ORDER BY {v} DESC) FILTER (WHERE {x} > 2)",
)  # fmt: skip
SOURCES = (
    "A [RANGE 9]", "A [ROWS 5]", "A", "A [RANGE 12 SLIDE 5]", "TUMBLE(A, ts, 10) AS A", "A [PARTITION BY k ROWS 3]",
    "A [RANGE 7], B [RANGE 6] WHERE A.x = B.x", "SESSION(A PARTITION BY k, ts, 3) AS A",
)  # fmt: skip
GROUPS = ("A.k", "A.x % 3", "", "ROLLUP(A.k, A.x % 2)", "GROUPING SETS ((A.k), (A.s), ())")


def make_rows(chance: random.Random, count: int) -> pa.Table:
    columns = {name: [chance.choice(values) for _ in range(count)] for name, values in VALUES.items()}
    return pa.table({"ts": sorted(chance.randrange(60) for _ in range(count)), **columns}, SCHEMA)


def write_query(chance: random.Random) -> str:
    source, keys = chance.choice(SOURCES), chance.choice(GROUPS)
    alias = chance.choice("AB") if "B [" in source else "A"
    calls = [call.format(**{name: f"{alias}.{name}" for name in VALUES}) for call in chance.sample(CALLS, 3)]
    if "(A" in source:
        windows = "window_start, window_end" + (", A.k" if "SESSION" in source else "")
        keys = ", ".join(filter(None, (windows, keys)))
    shown = [*(["A.k"] if "A.k" in keys else []), *calls]
    text = "SELECT " + ", ".join(f"{item} AS c{place}" for place, item in enumerate(shown)) + f" FROM {source}"
    text += f" GROUP BY {keys}" if keys else ""
    text += f" HAVING {calls[0]} IS NOT NULL" if chance.random() < 0.3 else ""
    return f"DSTREAM ({text})" if chance.random() < 0.2 else text
