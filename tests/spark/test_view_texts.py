"""Views of a pipeline: the texts of the queries that read them."""

from __future__ import annotations

import pytest

from penstock.cql import Catalog, describe_stream
from penstock.spark.view_texts import ViewTexts


def declare() -> tuple[ViewTexts, Catalog]:
    catalog, views = Catalog(), ViewTexts()
    catalog.relations.add(describe_stream("s", {"ts": "bigint", "k": "bigint"}, time="ts"))
    views.add("a", "SELECT k, COUNT(*) AS n FROM s GROUP BY k", catalog)
    views.add("b", "SELECT n FROM a;", catalog)
    views.add("c", "SELECT k FROM s", catalog)
    return views, catalog


A = "`a` AS (SELECT k, COUNT(*) AS n FROM s GROUP BY k)"
B = f"{A}, `b` AS (SELECT n FROM a)"


@pytest.mark.parametrize(
    ("text", "inlined"),
    [
        ("SELECT k FROM s", "SELECT k FROM s"),
        ("SELECT n FROM a EMIT CHANGES", f"WITH {A} SELECT n FROM a EMIT CHANGES"),
        ("SELECT n FROM b", f"WITH {B} SELECT n FROM b"),
        ("DSTREAM (SELECT n FROM a)", f"DSTREAM (WITH {A} SELECT n FROM a)"),
        ("WITH w AS (SELECT n FROM a) SELECT n FROM w", f"WITH {A}, w AS (SELECT n FROM a) SELECT n FROM w"),
        ("(SELECT n FROM a) EXCEPT SELECT k FROM s", f"WITH {A} (SELECT n FROM a) EXCEPT SELECT k FROM s"),
        ("SELECT s.k FROM s LEFT JOIN a ON s.k = a.k", f"WITH {A} SELECT s.k FROM s LEFT JOIN a ON s.k = a.k"),
        ("SELECT nothing FROM a", "SELECT nothing FROM a"),
    ],
)
def test_inline(text: str, inlined: str) -> None:
    views, catalog = declare()
    assert views.inline(text, catalog) == inlined
