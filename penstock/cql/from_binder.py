"""Binds the FROM clause: inner joins are flat, an outer join becomes one item with the columns of both sides.

Law: `(a LEFT JOIN b ON p) JOIN c` reads two relations: the outer join of a and b, and c. The inner joins on either side
of an outer join keep a free order; the outer join itself stays where the text has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.cql.bound import OuterJoin, OuterJoinKind, Select, SelectItem, Source, Subquery
from penstock.cql.errors import Origin, Span
from penstock.cql.scope import Scope, ScopeItem, VisibleColumn, make_scope_item
from penstock.cql.sources import BindBody, Names, bind_source
from penstock.cql.syntax import Amount, FromSyntax, JoinSyntax, Name, SourceSyntax
from penstock.cql.window_functions import bind_window_call
from penstock.cql.windows import CURRENT
from penstock.expr import BOOL, Call, Column, Expr, find_common_type, rewrite

BindCondition = Callable[[exp.Expr, Scope], tuple[Expr, ...]]
"""Binds an ON condition; returns its conjuncts."""


@dataclass(frozen=True)
class FromBlock:
    """Relations that are joined by conditions, and the names that expressions have for their columns."""

    sources: tuple[Source, ...]
    conditions: tuple[Expr, ...]
    items: tuple[ScopeItem, ...]
    merged: tuple[VisibleColumn, ...]

    def join(self, other: FromBlock) -> FromBlock:
        """Both blocks as one, without a condition between them."""
        return FromBlock(
            self.sources + other.sources,
            self.conditions + other.conditions,
            self.items + other.items,
            self.merged + other.merged,
        )

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of the text, and those of outer joins, which plans name."""
        return tuple(dict.fromkeys((*(item.alias for item in self.items), *(each.alias for each in self.sources))))

    def list_columns(self) -> tuple[SelectItem, ...]:
        """All columns, with names that are unique."""
        columns = (column for item in self.items for column in item.columns.values())
        return tuple(SelectItem(self.qualify(column), column) for column in columns)

    def qualify(self, column: Column) -> str:
        """The name of a column with its alias; a column of an outer join has such a name already."""
        relations = (source.relation for source in self.sources if source.alias == column.alias)
        done = any(isinstance(each, Subquery) and each.qualified for each in relations)
        if done:
            return column.name
        alias = f"`{column.alias}`" if "." in column.alias else column.alias  # a.`b.c` is not `a.b`.c
        return f"{alias}.{column.name}"


@dataclass(frozen=True)
class FromBinder:
    """Binds the FROM items of one SELECT."""

    names: Names
    window: Amount | None
    """The window of every stream that has none, from the clause WINDOW."""
    bind_body: BindBody
    bind_condition: BindCondition

    def bind(self, syntax: FromSyntax) -> FromBlock:
        if isinstance(syntax, SourceSyntax):
            source = bind_source(syntax, self.window, self.names, self.bind_body)
            if syntax.call is not None:
                source = bind_window_call(source, syntax.call, self.names.origin)
            return FromBlock((source,), (), (self._name_columns(source, syntax.columns),), ())
        left, right = self.bind(syntax.left), self.bind(syntax.right)
        self.check_aliases(left, right, syntax.right)
        if syntax.kind in ("inner", "cross"):
            joined = left.join(right)
            on, merged = self._bind_on(syntax, left, right, joined)
            return replace(joined, conditions=joined.conditions + on, merged=merged)
        return self._bind_outer(syntax, left, right)

    def _name_columns(self, source: Source, columns: tuple[Name, ...]) -> ScopeItem:
        """A FROM item with the names that the text gives its columns."""
        item = make_scope_item(source)
        if not columns:
            return item
        names = check_column_names(columns, list(item.columns), source.alias, self.names.origin)
        return replace(item, columns=dict(zip(names, item.columns.values(), strict=True)))

    def check_aliases(self, left: FromBlock, right: FromBlock, syntax: FromSyntax) -> None:
        """Refuse an alias that both sides have."""
        known = {alias.casefold() for alias in left.aliases}
        for alias in right.aliases:
            if alias.casefold() in known:
                message = f"alias {alias} appears twice in FROM; give each item its own alias with AS"
                span = _find_written(syntax, alias).name.span
                raise self.names.origin.error("DUPLICATE_ALIAS", message, span, alias=alias)

    def _bind_outer(self, syntax: JoinSyntax, left: FromBlock, right: FromBlock) -> FromBlock:
        left, right = self._make_side(left, syntax.left), self._make_side(right, syntax.right)
        on, merged = self._bind_on(syntax, left, right, left.join(right))
        sides = (right, left) if syntax.kind == "right" else (left, right)
        kind = _OUTER_KINDS[syntax.kind]
        self._check_preserved(kind, sides, syntax.span)
        shown = left if kind in ("semi", "anti") else left.join(right)
        body = OuterJoin(kind, sides[0].sources[0], sides[1].sources[0], on, shown.list_columns())
        return as_one_source(body, shown, left.merged if kind in ("semi", "anti") else merged)

    def _make_side(self, block: FromBlock, syntax: FromSyntax) -> FromBlock:
        """A side of an outer join as one relation."""
        origin = self.names.origin
        for source in block.sources:
            written = _find_written(syntax, source.alias)
            if source.window.slides and written.window is not None:
                advice = "aggregate over the join without SLIDE"
                raise origin.unsupported_error("SLIDE in an outer join", written.window.span, advice)
        if len(block.sources) > 1 and all(base.is_table for each in block.sources for base in each.base_sources):
            message = "a side of an outer join that joins only tables has no stream; join the tables one by one"
            raise origin.error("NO_STREAM", message, _find_written(syntax, "").name.span)
        return collapse(block)

    def _check_preserved(self, kind: OuterJoinKind, sides: tuple[FromBlock, FromBlock], span: Span) -> None:
        kept = sides if kind == "full" else sides[:1]
        for side in kept:
            source = side.sources[0]
            if source.is_table:
                message = (
                    f"{source.alias} is a static table, and {kind.upper()} JOIN keeps its rows without a partner; put "
                    "the stream on that side"
                )
                raise self.names.origin.error("TABLE_PRESERVED", message, span, alias=source.alias)

    def _bind_on(
        self, syntax: JoinSyntax, left: FromBlock, right: FromBlock, joined: FromBlock
    ) -> tuple[tuple[Expr, ...], tuple[VisibleColumn, ...]]:
        """The conjuncts of a join, and the columns that it and the joins in it merge."""
        if syntax.condition is not None:
            scope = Scope(self.names.origin, joined.items, joined.merged)
            return self.bind_condition(syntax.condition, scope), joined.merged
        conditions: list[Expr] = []
        merged: list[VisibleColumn] = []
        for name in self._list_common_names(syntax, left, right):
            one, other = self._find_using(name, left), self._find_using(name, right)
            kind = find_common_type(one.expr.type, other.expr.type)
            if kind is None:
                message = f"the two columns {name.text} have types that cannot be compared"
                raise self.names.origin.error("TYPE_MISMATCH", message, name.span)
            pair = _cast(one.expr, kind), _cast(other.expr, kind)
            conditions.append(Call("=", pair, BOOL))
            merged.append(VisibleColumn(one.name, _merge_columns(syntax, *pair), one.parts | other.parts))
        hidden = {part for column in merged for part in column.parts}
        return tuple(conditions), (*merged, *(each for each in joined.merged if not each.parts & hidden))

    def _list_common_names(self, syntax: JoinSyntax, left: FromBlock, right: FromBlock) -> list[Name]:
        if not syntax.natural:
            return list({name.text.casefold(): name for name in syntax.using}.values())
        known = {name.casefold() for name, _ in self._expand(right)}
        return [Name(name, syntax.span) for name, _ in self._expand(left) if name.casefold() in known]

    def _expand(self, block: FromBlock) -> list[tuple[str, Expr]]:
        return Scope(self.names.origin, block.items, block.merged).expand()

    def _find_using(self, name: Name, block: FromBlock) -> VisibleColumn:
        found = Scope(self.names.origin, block.items, block.merged).list_visible(name.text)
        if len(found) != 1:
            many = "more than one column" if found else "no column"
            owner = ", ".join(item.alias for item in block.items)
            message = f"USING names {name.text}, and {owner} has {many} of that name"
            raise self.names.origin.error("UNKNOWN_COLUMN", message, name.span, name=name.text)
        return found[0]


_OUTER_KINDS: dict[str, OuterJoinKind] = {
    "left": "left",
    "right": "left",
    "full": "full",
    "semi": "semi",
    "anti": "anti",
}


def check_column_names(columns: tuple[Name, ...], known: list[str], relation: str, origin: Origin) -> list[str]:
    """The names that a text gives the columns of a relation: one for each, and all different."""
    if len(columns) != len(known):
        message = f"{relation} has {len(known)} columns ({', '.join(known)}), and {len(columns)} are named"
        raise origin.error("COLUMN_COUNT", message, (columns[0].span[0], columns[-1].span[1]))
    names: dict[str, str] = {}
    for name in columns:
        if name.text.casefold() in names:
            raise origin.error("DUPLICATE_COLUMN", f"{name.text} names two columns", name.span, name=name.text)
        names[name.text.casefold()] = name.text
    return list(names.values())


def _merge_columns(syntax: JoinSyntax, left: Expr, right: Expr) -> Expr:
    """The column of USING: that of the side that keeps its rows; of both sides if both do."""
    if syntax.kind == "full":
        return Call("coalesce", (left, right), left.type)
    return right if syntax.kind == "right" else left


def _cast(expr: Expr, kind: object) -> Expr:
    return expr if expr.type == kind else Call("cast", (expr,), kind)


def collapse(block: FromBlock) -> FromBlock:
    """A side of an outer join as one relation."""
    if len(block.sources) == 1 and not block.conditions:
        return block
    body = Select(block.sources, block.conditions, block.list_columns())
    return as_one_source(body, block, block.merged)


def as_one_source(body: Select | OuterJoin, shown: FromBlock, merged: tuple[VisibleColumn, ...]) -> FromBlock:
    """A body as one FROM item, whose columns keep the names that the text has for them."""
    alias = "+".join(item.alias for item in shown.items if not item.is_hidden)
    source = Source(alias, Subquery(alias, body, qualified=True), CURRENT)

    def move(column: Column) -> Column:
        return Column(alias, shown.qualify(column), column.type)

    items = tuple(
        replace(item, columns={name: move(column) for name, column in item.columns.items()}) for item in shown.items
    )
    moved = tuple(
        VisibleColumn(
            column.name,
            rewrite(column.expr, lambda node: move(node) if isinstance(node, Column) else node),
            frozenset(map(move, column.parts)),
        )
        for column in merged
    )
    return FromBlock((source,), (), items, moved)


def _find_written(syntax: FromSyntax, alias: str) -> SourceSyntax:
    """The item of the text that has an alias; the first one if none has."""
    written = _list_written(syntax)
    return next((each for each in written if each.name.text.casefold() == alias.casefold()), written[0])


def _list_written(syntax: FromSyntax) -> tuple[SourceSyntax, ...]:
    """The items of the text."""
    if isinstance(syntax, SourceSyntax):
        return (syntax,)
    return (*_list_written(syntax.left), *_list_written(syntax.right))
