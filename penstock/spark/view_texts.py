"""Views on Spark: a query that reads a view gets the view's text as a query of WITH.

Law: a view and a query of WITH with its text have the same rows at every instant. So the text of each query is
complete: a cell, a checkpoint and a later start need nothing else. Each query computes the views that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot.tokenizer_core import TokenType

from penstock.cql import (
    Catalog,
    NameMap,
    OuterJoin,
    Query,
    QueryBody,
    SetOperation,
    Subquery,
    View,
    bind_query,
    bind_view,
)
from penstock.cql.dialect import tokenize
from penstock.errors import QueryError


class ViewTexts:
    """The views of a pipeline, in the order of declaration."""

    def __init__(self) -> None:
        self._views: NameMap[View] = NameMap()
        self._texts: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def add(self, name: str, text: str, catalog: Catalog) -> Query:
        """Declare a view; returns its query, bound to the streams and tables of the catalog and to the other views."""
        query = bind_view(text, self._with_views(catalog))
        self._views.add(View(name, query.body))
        self._texts[name] = query.text
        return query

    def inline(self, text: str, catalog: Catalog) -> str:
        """The text of a query with the views that it reads before it."""
        if not self._views or not isinstance(text, str):
            return text
        try:
            query = bind_query(text, self._with_views(catalog))
        except QueryError:
            return text  # the error is found again, with its place in the text, where the query is declared
        read = set(_list_views(query.body))
        listing = ", ".join(f"{_quote(name)} AS ({self._texts[name]})" for name in self._views if name in read)
        return _insert_queries(text, listing) if listing else text

    def _with_views(self, catalog: Catalog) -> Catalog:
        extended = catalog.copy()
        for view in self._views.values():
            extended.relations.add(view)
        return extended


def _insert_queries(text: str, listing: str) -> str:
    """The text with more queries of WITH, before its own."""
    tokens = tokenize(text)
    wrapped = tokens[0].text.upper() in ("ISTREAM", "DSTREAM", "RSTREAM") and tokens[1].token_type == TokenType.L_PAREN
    first = tokens[2 if wrapped else 0]
    if first.token_type == TokenType.WITH:
        return f"{text[: first.end + 1]} {listing},{text[first.end + 1 :]}"
    return f"{text[: first.start]}WITH {listing} {text[first.start :]}"


def _list_views(body: QueryBody) -> Iterator[str]:
    """The views that a query reads, directly or through others."""
    if isinstance(body, SetOperation):
        yield from _list_views(body.left)
        yield from _list_views(body.right)
        return
    for source in (body.left, body.right) if isinstance(body, OuterJoin) else body.sources:
        if isinstance(source.relation, View):
            yield source.relation.name
        if isinstance(source.relation, Subquery):
            yield from _list_views(source.relation.body)


def _quote(name: str) -> str:
    return f"`{name}`"
