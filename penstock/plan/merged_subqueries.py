"""Subqueries in FROM that are plain SELECTs become FROM items and conditions of the SELECT that reads them.

Law: a row of `FROM (SELECT i FROM s WHERE c) AS v` is a combination of tuples of s, valid as long as all of them are.
So the SELECT around it has the same answer at every instant with the items s in place of v, c among its conditions, and
i in place of the columns of v. The join of all items has free ordering then, demand reaches into the subquery, and
other queries can share it.

A subquery stays apart if it groups, sorts or removes rows, if it is a view (other queries read it too), if it is read
more than once, or if functions of users are called in it, or in conditions over its rows: they would be called more
often, and with other rows. It also stays apart if it joins a static table and another item is joined with it: the table
may be replaced, and its rows are those of the instant at which a row of the subquery is born. FRESHNESS keeps the
subqueries of its SELECT apart: it says which joins may lose rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count

from penstock.cql import OuterJoin, QueryBody, Select, SelectItem, SetOperation, Source, Stream, Subquery, View
from penstock.expr import HIDDEN, Column, Expr, calls_user_function, find_aliases, find_columns, rewrite
from penstock.plan.join_sharing import rename_aliases


def merge_subqueries(body: QueryBody) -> QueryBody:
    """The body with its plain subqueries merged, at every level."""
    return _Merger(Counter(id(query.body) for query in _list_subqueries(body))).merge_body(body)


def _list_subqueries(body: QueryBody) -> Iterator[Subquery]:
    """The subqueries of a body, inner ones too, each as often as it is read."""
    for source in _list_sources(body):
        if isinstance(source.relation, Subquery):
            yield source.relation
            yield from _list_subqueries(source.relation.body)


def _list_sources(body: QueryBody) -> tuple[Source, ...]:
    match body:
        case SetOperation():
            return *_list_sources(body.left), *_list_sources(body.right)
        case OuterJoin():
            return body.left, body.right
    return body.sources


@dataclass(frozen=True)
class _Merger:
    """`readers`: how often each subquery is read, by the identity of its body."""

    readers: Mapping[int, int]
    _merged: dict[int, QueryBody] = field(default_factory=dict)
    """The merged bodies of subqueries. One that is read twice stays one object, so that it is computed once."""

    def merge_body(self, body: QueryBody) -> QueryBody:
        if id(body) not in self._merged:
            self._merged[id(body)] = self._build_body(body)
        return self._merged[id(body)]

    def _build_body(self, body: QueryBody) -> QueryBody:
        match body:
            case SetOperation():
                return replace(body, left=self.merge_body(body.left), right=self.merge_body(body.right))
            case OuterJoin():
                return replace(body, left=self._merge_inside(body.left), right=self._merge_inside(body.right))
            case Select():
                return self._merge_select(body)
        return replace(body, source=self._merge_inside(body.source))

    def _merge_inside(self, source: Source) -> Source:
        """The FROM item, with a merged body if it is a subquery. A view has a plan of its own."""
        query = source.relation
        if type(query) is not Subquery:
            return source
        return replace(source, relation=replace(query, body=self.merge_body(query.body)))

    def _merge_select(self, select: Select) -> Select:
        inside = replace(select, sources=tuple(map(self._merge_inside, select.sources)))
        pairs = zip(select.sources, inside.sources, strict=True)
        found = {source.alias: self._find_inner(source, before, inside) for before, source in pairs}
        merged = {alias: inner for alias, inner in found.items() if inner is not None}
        return _Merge(inside, merged).build() if merged else inside

    def _find_inner(self, source: Source, before: Source, select: Select) -> Select | None:
        """The SELECT of a subquery, if it can be merged into the one that reads it."""
        query, text = source.relation, before.relation
        if not isinstance(query, Subquery) or not isinstance(text, Subquery) or isinstance(query, View):
            return None
        if query.qualified or source.hidden or self.readers[id(text.body)] > 1:
            return None
        if select.sequence is not None or any(map(_is_bound, select.sources)):
            return None
        inner = query.body
        if not isinstance(inner, Select) or not _is_plain(inner) or _reads_by_function(source.alias, select):
            return None
        if len(select.sources) > 1 and any(each.is_table for each in inner.sources):
            return None
        return inner if _has_single_terms(inner, source.alias, select) else None


def _is_bound(source: Source) -> bool:
    """Whether a FROM item has a meaning that depends on the SELECT in which it is."""
    return source.freshness is not None or source.surrounds or bool(source.hidden)


def _is_plain(inner: Select) -> bool:
    """Whether the rows of a SELECT are the combinations of its FROM items."""
    shapes = inner.group_by is not None or inner.having is not None or inner.distinct or inner.sequence is not None
    exprs = (*inner.where, *(item.expr for item in inner.items))
    return (
        not shapes
        and not any(_is_bound(source) or source.window.slides for source in inner.sources)
        and any(isinstance(source.relation, Stream) for source in inner.inputs)
        and not any(map(calls_user_function, exprs))
    )


def _reads_by_function(alias: str, select: Select) -> bool:
    """Whether a condition calls a function of users over columns of an item: only its rows are passed then."""
    return any(calls_user_function(expr) and alias in find_aliases(expr) for expr in select.where)


def _has_single_terms(inner: Select, alias: str, select: Select) -> bool:
    """Whether the columns in conditions are of one item each: an equality of a sum over two items would be no key."""
    read = {column.name for expr in select.where for column in find_columns(expr) if column.alias == alias}
    return all(len(find_aliases(item.expr)) == 1 for item in inner.items if item.name in read)


def _list_names(alias: str, inner: Select) -> dict[str, str]:
    """The names of items: that of the subquery if it has one item, else their own, if a plan string can have them."""
    if len(inner.sources) == 1:
        return {inner.sources[0].alias: alias}
    names = (source.alias for source in inner.sources)
    return {name: f"{alias}.{name.removeprefix(HIDDEN)}" if name.startswith(HIDDEN) else name for name in names}


def _find_free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if another item has it; it is taken from then on."""
    free = next(
        each for each in chain((name,), (f"{name}{number}" for number in count(2))) if each.casefold() not in taken
    )
    taken.add(free.casefold())
    return free


@dataclass(frozen=True)
class _Merge:
    """A SELECT, and the SELECTs of its subqueries that are merged into it, by alias."""

    select: Select
    merged: Mapping[str, Select]

    def build(self) -> Select:
        select = self.select
        return replace(
            select,
            sources=tuple(source for outer in select.sources for source in self._list_sources(outer)),
            where=(*self._list_conditions(), *map(self._read, select.where)),
            items=tuple(SelectItem(item.name, self._read(item.expr)) for item in select.items),
            group_by=None if select.group_by is None else tuple(dict.fromkeys(map(self._read, select.group_by))),
            having=None if select.having is None else self._read(select.having),
        )

    @cached_property
    def _names(self) -> dict[str, dict[str, str]]:
        """By alias of a subquery, the names of its items in the merged SELECT: see `_list_names`."""
        kept = [outer.alias for outer in self.select.sources if outer.alias not in self.merged]
        short = {outer: _list_names(outer, inner) for outer, inner in self.merged.items()}
        wanted = Counter(
            name.casefold() for name in (*kept, *(name for each in short.values() for name in each.values()))
        )
        taken = {*wanted}
        names: dict[str, dict[str, str]] = {outer: {} for outer in short}
        for outer, each in short.items():
            for alias, name in each.items():
                single = wanted[name.casefold()] == 1
                names[outer][alias] = (
                    name if single else _find_free_name(f"{outer}.{alias.removeprefix(HIDDEN)}", taken)
                )
        return names

    @cached_property
    def _columns(self) -> dict[tuple[str, str], Expr]:
        """What the columns of the subqueries are in the merged SELECT."""
        return {
            (outer, item.name): rename_aliases(item.expr, self._names[outer])
            for outer, each in self.merged.items()
            for item in each.items
        }

    def _list_sources(self, outer: Source) -> tuple[Source, ...]:
        inner = self.merged.get(outer.alias)
        if inner is None:
            return (outer,)
        names = self._names[outer.alias]
        return tuple(replace(source, alias=names[source.alias]) for source in inner.sources)

    def _list_conditions(self) -> Iterator[Expr]:
        for outer, each in self.merged.items():
            yield from (rename_aliases(expr, self._names[outer]) for expr in each.where)

    def _read(self, expr: Expr) -> Expr:
        """An expression over the subqueries, over their items."""

        def read(node: Expr) -> Expr:
            return self._columns.get((node.alias, node.name), node) if isinstance(node, Column) else node

        return rewrite(expr, read)
