"""Name resolution in one SELECT: its FROM items and their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.bound import Source
from penstock.cql.dialect import find_span
from penstock.cql.errors import CqlError, Origin, suggest_similar
from penstock.expr import HIDDEN, Column, Expr, classify_type, find_columns, rewrite

OUTER = f"{HIDDEN}outer "
"""The prefix of the aliases of columns that belong to the query around a subquery."""


@dataclass(frozen=True)
class ScopeItem:
    """A FROM item as expressions name it: its alias, the name of its relation, and its columns by name.

    A column of an item inside an outer join is a column of the join.
    """

    alias: str
    relation: str
    columns: Mapping[str, Column]

    @property
    def is_hidden(self) -> bool:
        """Whether no text can name it: it has the value of a subquery."""
        return self.alias.startswith(HIDDEN)

    def find(self, name: str) -> Column | None:
        """A column by its name, case-insensitive."""
        return next((column for own, column in self.columns.items() if own.casefold() == name.casefold()), None)


def make_scope_item(source: Source) -> ScopeItem:
    """A FROM item that is read directly."""
    columns = {each.name: Column(source.alias, each.name, each.type) for each in source.relation.schema}
    return ScopeItem(source.alias, source.relation.name, columns)


@dataclass(frozen=True)
class VisibleColumn:
    """A column that a name without a qualifier can mean: a column of an item, or one of USING or NATURAL.

    `parts` are the columns of items that it stands for. Of a merged column these are hidden.
    """

    name: str
    expr: Expr
    parts: frozenset[Column]


@dataclass(frozen=True)
class Scope:
    """The FROM items that expressions of a SELECT can name. `merged` are the columns of USING and NATURAL."""

    origin: Origin
    items: tuple[ScopeItem, ...]
    merged: tuple[VisibleColumn, ...] = ()
    outer: Scope | None = None
    """The scope of the query around a subquery."""
    time: Expr | None = None
    """The time of a row, by which FIRST and LAST compare rows; None if FROM has a relation whose rows have none."""
    rows: Source | None = None
    """The one relation that has all columns, if there is one."""

    def find_item(self, alias: str) -> ScopeItem | None:
        return next((item for item in self.items if item.alias.casefold() == alias.casefold()), None)

    def has_alias(self, name: str) -> bool:
        """Whether a FROM item of this query, or of one around it, has an alias."""
        return self.find_item(name) is not None or (self.outer is not None and self.outer.has_alias(name))

    def has_struct(self, name: str) -> bool:
        """Whether a column of this query, or of one around it, is a struct with this name."""
        if any(classify_type(expr.type) == "struct" for expr in self.list_candidates(name)):
            return True
        return self.outer is not None and self.outer.has_struct(name)

    def resolve(self, node: exp.Column) -> Expr:
        """The column that a name refers to; an unknown name is an error that lists the known ones."""
        column = self.find_outer(node) or self.find(node)
        if column is None:
            raise self.unknown_column_error(node)
        return column

    def find_outer(self, node: exp.Column) -> Expr | None:
        """The column of the query around that a name refers to, if no FROM item of this one has it."""
        if self.outer is None or node.args.get("db"):
            return None
        return _mark_outer(self.outer.resolve(node)) if self.outer.knows(node) and not self._has(node) else None

    def knows(self, node: exp.Column) -> bool:
        """Whether this query, or one around it, has a name."""
        return self._has(node) or (self.outer is not None and self.outer.knows(node))

    def _has(self, node: exp.Column) -> bool:
        return bool(self.find_item(node.table) if node.table else self.list_candidates(node.name))

    def find(self, node: exp.Column) -> Expr | None:
        """Like `resolve`, but None for a name without a qualifier that no FROM item has."""
        if node.args.get("db"):
            raise self.unknown_column_error(node)
        if node.table:
            return self.resolve_qualifier(node).find(node.name)
        found = self.list_candidates(node.name)
        if len(found) > 1:
            parts = (find_columns(expr)[0] for expr in found)
            candidates = ", ".join(".".join(self.describe(column)) for column in parts)
            message = f"column {node.name} is ambiguous; it can be {candidates}"
            raise self.origin.error("AMBIGUOUS_COLUMN", message, find_span(node), name=node.name)
        return found[0] if found else None

    def list_candidates(self, name: str) -> list[Expr]:
        """Every column that a name without a qualifier can refer to."""
        return [column.expr for column in self.list_visible(name)]

    def list_visible(self, name: str | None = None) -> list[VisibleColumn]:
        """The columns that names without a qualifier can mean, merged ones first; or those of one name."""
        hidden = {part for column in self.merged for part in column.parts}
        own = (
            VisibleColumn(known, column, frozenset([column]))
            for item in self.items
            if not item.is_hidden
            for known, column in item.columns.items()
            if column not in hidden
        )
        return [each for each in (*self.merged, *own) if name is None or each.name.casefold() == name.casefold()]

    def expand(self, items: Iterable[ScopeItem] | None = None) -> list[tuple[str, Expr]]:
        """The columns of some items, or of all, for `*`; merged columns come first and once."""
        if items is not None:
            return [(name, column) for item in items for name, column in item.columns.items()]
        return [(column.name, column.expr) for column in self.list_visible()]

    def describe(self, column: Column) -> tuple[str, str]:
        """The alias and the name that the text uses for a column."""
        for item in self.items:
            for name, own in item.columns.items():
                if own == column:
                    return item.alias, name
        return column.alias, column.name

    def resolve_qualifier(self, node: exp.Column) -> ScopeItem:
        """The FROM item that qualifies a column."""
        item = self.find_item(node.table)
        if item is None:
            aliases = [item.alias for item in self.items]
            message = f"unknown alias {node.table}; FROM has {', '.join(aliases)}{suggest_similar(node.table, aliases)}"
            raise self.origin.error("UNKNOWN_ALIAS", message, find_span(node), alias=node.table)
        return item

    def unknown_column_error(self, node: exp.Column) -> CqlError:
        written = ".".join(part.name for part in node.parts)
        item = self.find_item(node.table) if node.table else None
        looked_at = (item,) if item else self.items
        known = "; ".join(f"{each.relation} has {', '.join(each.columns)}" for each in looked_at)
        if not node.table and node.name.casefold() in advice.FUNCTIONS:
            return self.origin.unsupported_error(
                written.upper(), find_span(node), advice.FUNCTIONS[node.name.casefold()][1]
            )
        hint = suggest_similar(node.name, [name for each in looked_at for name in each.columns])
        message = f"unknown column {written}; {known}{hint}"
        return self.origin.error("UNKNOWN_COLUMN", message, find_span(node), name=written)


def _mark_outer(expr: Expr) -> Expr:
    return rewrite(
        expr, lambda node: Column(OUTER + node.alias, node.name, node.type) if isinstance(node, Column) else node
    )
