"""What to write instead of SQL that a continuous query does not support.

Every text says where a rewrite differs from the SQL. tests/cql/test_advice.py runs each rewrite.
"""

from __future__ import annotations

SUBQUERY_IN_EXPRESSION = (
    "subqueries are in WHERE, in HAVING, and in SELECT outside of aggregates; elsewhere read their value as a column: "
    "FROM (SELECT *, k IN (SELECT k FROM b [...]) AS y FROM a [...]) AS t"
)
VALUES = "declare a table: CREATE TABLE, or eng.table(name, rows)"
TABLE_AS = (
    "write CREATE VIEW name AS SELECT ..., whose rows are those of the answer. CREATE STREAM name AS SELECT ... has "
    "the rows that enter the answer; none leaves it, so it is not equal if the query has an aggregate, DISTINCT or "
    "EXCEPT"
)
OVER = (
    "OVER is for aggregates, LAG, LEAD, FIRST_VALUE, LAST_VALUE, NTH_VALUE, ROW_NUMBER, RANK and DENSE_RANK; FROM "
    "SEQ(s AS before, s AS now) MODE RECENT WHERE before.k = now.k pairs a row with the one before it"
)
FRAME = (
    "a frame ends at a known distance from its row, because a stream has no last row: write ROWS BETWEEN 5 PRECEDING "
    "AND 2 FOLLOWING, or RANGE BETWEEN CURRENT ROW AND INTERVAL '5' MINUTES FOLLOWING"
)
NESTED = (
    "arrays, maps and structs are not compared, ordered or aggregated; name a part of them, such as s.a, list[0] or "
    "map['k'], or pass them on whole"
)
FRAMES_AHEAD = (
    "a row is reported when its frames are complete: in one SELECT, frames with FOLLOWING, and LEAD, are all of ROWS "
    "with the same PARTITION BY, or all of RANGE. Write two queries"
)
OVER_SOURCE = (
    "functions over frames read one stream without a window, also joined to static tables, or a subquery over such "
    "rows without LEAD and FOLLOWING. The frame says which rows count: remove the window in brackets. Of a join, GROUP "
    "BY or DISTINCT write CREATE STREAM d AS SELECT ..., then FROM d with ORDER BY _ts"
)
GROUP_WINDOW = (
    "write FROM TUMBLE(s, ts, INTERVAL '10' MINUTES) or FROM HOP(s, ts, INTERVAL '5' MINUTES, INTERVAL '10' MINUTES) "
    "with GROUP BY window_start, window_end, or GROUP BY window(ts, '10 minutes', '5 minutes')"
)
SESSION = (
    "write FROM SESSION(s PARTITION BY k, ts, INTERVAL '10' MINUTES) with GROUP BY window_start, window_end, k, or "
    "GROUP BY session_window(ts, '10 minutes'), k"
)
CLOCK = "a continuous query has no current time; for the last 5 minutes write FROM s [RANGE 5 MINUTES]"
EMIT = "write EMIT ON WINDOW CLOSE for one report about each window, or EMIT CHANGES for every change of the answer"
EMIT_ON_CLOSE = (
    "it is for rows of streams and their joins of all kinds, and for FROM TUMBLE(...), HOP(...) or SESSION(...) with "
    "GROUP BY or OVER (PARTITION BY) window_start, window_end; write EMIT CHANGES for every change of the answer"
)
NESTED_ON_CLOSE = (
    "the optional side of an outer join, and both sides of FULL JOIN, are streams and inner joins; write the outer "
    "joins from left to right, a LEFT JOIN b ... LEFT JOIN c, or EMIT CHANGES for every change of the answer"
)
ASOF_JOIN = "write FROM a [NOW] JOIN b [PARTITION BY k ROWS 1] ON a.k = b.k: the newest row of b for a row of a"
ORDER_BY = "remove it: results leave in temporal order; ORDER BY x LIMIT n has the first n rows"
LIMIT = "write ORDER BY x LIMIT n for the first n rows; s [ROWS n] keeps the last n rows"
PRIMARY_KEY = (
    "a table has one: CREATE TABLE t (..., PRIMARY KEY (k)) TIMESTAMP BY ts; in a stream remove it, and the window "
    "[PARTITION BY key ROWS 1] keeps the last row of each key"
)

FUNCTIONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("tumble", "hop", "window", "tumbling", "hopping"), ("TIME WINDOW", GROUP_WINDOW)),
    **dict.fromkeys(("session", "session_window"), ("SESSION WINDOW", SESSION)),
    **dict.fromkeys(("now", "current_timestamp", "getdate", "localtimestamp", "unix_timestamp"), ("CLOCK", CLOCK)),
    **dict.fromkeys(
        ("lag", "lead", "first_value", "last_value", "nth_value"),
        ("OVER", "write LAG(x) OVER (PARTITION BY k ORDER BY ts)"),
    ),
    "ntile": ("OVER", OVER),
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank"), ("OVER", "write ROW_NUMBER() OVER (PARTITION BY k ORDER BY x)")
    ),
}
"""By the name of a function that is not known: the construct, and what to write instead."""

CONSTRUCTS: dict[str, str] = {
    "OVER": OVER,
    "DIV": "write a / b: integers divide as integers",
}
"""By the name of an expression that is not supported."""
