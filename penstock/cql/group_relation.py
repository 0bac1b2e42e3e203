"""The groups of a SELECT as a relation, so that subqueries beside aggregates can be joined to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.cql.bound import Select, SelectItem, Source, Subquery
from penstock.cql.from_binder import FromBlock
from penstock.cql.scope import make_scope_item
from penstock.cql.windows import CURRENT
from penstock.expr import BOOL, HIDDEN, Aggregate, Call, Column, Expr, Literal

RESERVED = f"{HIDDEN}value"
"""The alias of the values of subqueries that will be joined to groups."""
_GROUPS = "groups"


@dataclass(frozen=True)
class GroupRelation:
    """The groups of a SELECT as a relation, whose columns are the keys and aggregates that expressions read."""

    block: FromBlock
    names: Mapping[Expr, str]

    @classmethod
    def build(cls, select: Select, exprs: Iterable[Expr]) -> GroupRelation:
        """`select` has sources, conditions and keys."""
        keys = select.group_by or ()
        pieces = dict.fromkeys(piece for expr in exprs for piece in _list_pieces(expr, keys))
        names = {piece: f"{HIDDEN}{place}" for place, piece in enumerate(pieces)}
        items = tuple(SelectItem(name, piece) for piece, name in names.items())
        body = replace(select, items=items or (SelectItem("mark", Literal(True, BOOL)),))
        source = Source(_GROUPS, Subquery(_GROUPS, body), CURRENT)
        return cls(FromBlock((source,), (), (make_scope_item(source),), ()), names)

    def move(self, expr: Expr, block: FromBlock, values: Mapping[Expr, Expr]) -> Expr:
        """An expression over keys and aggregates, over the columns of a block that was made of this one."""
        if expr in values:
            return values[expr]
        if expr in self.names:
            return next(item.columns[self.names[expr]] for item in block.items if item.alias == _GROUPS)
        if isinstance(expr, Call):
            return replace(expr, args=tuple(self.move(arg, block, values) for arg in expr.args))
        return expr


def _list_pieces(expr: Expr, keys: tuple[Expr, ...]) -> Iterator[Expr]:
    """The keys and aggregates in an expression."""
    if expr in keys or isinstance(expr, Aggregate):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from _list_pieces(arg, keys)


def is_reserved_value(expr: Expr) -> bool:
    """Whether an expression is the value of a subquery that will be joined to groups."""
    return isinstance(expr, Column) and expr.alias == RESERVED
