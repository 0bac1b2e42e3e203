"""GROUPING SETS, ROLLUP and CUBE: one SELECT for each set of keys, and UNION ALL of them.

In the rows of a set, the keys that are not in it are NULL. GROUPING(k) is 1 for these keys and 0 for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, product

from sqlglot import exp

from penstock.cql.bound import QueryBody, Select, SelectItem, SetOperation
from penstock.expr import INT, Call, Expr, Literal, walk

GROUPING = "grouping"
"""The function that says which keys are not in the set of a row. No row is evaluated with it."""
MAX_SETS = 64
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
KeySet = tuple[exp.Expr, ...]


def has_sets(nodes: Sequence[exp.Expr] | None) -> bool:
    """Whether a GROUP BY has sets of keys."""
    return any(isinstance(node, _SETS) for node in nodes or ())


def list_key_nodes(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """All keys of a GROUP BY, in the order of the text."""
    return [key for node in nodes for group in _list_members(node) for key in group]


def _list_members(node: exp.Expr) -> list[KeySet]:
    """What stands in the parentheses of ROLLUP, CUBE or GROUPING SETS: keys, or lists of them."""
    if not isinstance(node, _SETS):
        return [(node,)]
    return [key for member in node.expressions for key in _read_member(member)]


def _read_member(member: exp.Expr) -> list[KeySet]:
    if isinstance(member, _SETS):
        return [tuple(key for group in _list_members(member) for key in group)]
    return [tuple(member.expressions) if isinstance(member, exp.Tuple) else (member,)]


def list_sets(nodes: Sequence[exp.Expr]) -> list[KeySet]:
    """The sets of keys of a GROUP BY: of several terms, each combined with each."""
    return [tuple(key for group in chosen for key in group) for chosen in product(*map(_expand, nodes))]


def _expand(node: exp.Expr) -> list[KeySet]:
    """The sets of one term."""
    if not isinstance(node, _SETS):
        return [(node,)]
    if isinstance(node, exp.GroupingSets):
        nested = (_expand(member) if isinstance(member, _SETS) else _read_member(member) for member in node.expressions)
        return [each for sets in nested for each in sets]
    members = _list_members(node)
    if isinstance(node, exp.Rollup):
        chosen = [members[:count] for count in range(len(members), -1, -1)]
    else:
        chosen = [list(each) for count in range(len(members), -1, -1) for each in combinations(members, count)]
    return [tuple(key for group in each for key in group) for each in chosen]


def expand_sets(select: Select, sets: Sequence[Sequence[Expr]]) -> QueryBody:
    """A SELECT over all keys as the UNION ALL of one for each set."""
    branches: list[QueryBody] = [_choose_set(select, tuple(dict.fromkeys(chosen))) for chosen in sets]
    return reduce(lambda left, right: SetOperation("union all", left, right), branches)


def resolve_grouping(select: Select) -> Select:
    """A SELECT with one set of keys, in which GROUPING is 0."""
    return _choose_set(select, select.group_by or ())


def _choose_set(select: Select, chosen: tuple[Expr, ...]) -> Select:
    keys = select.group_by or ()

    def show(expr: Expr) -> Expr:
        return _replace_missing(expr, keys, chosen)

    items = tuple(SelectItem(item.name, show(item.expr)) for item in select.items)
    having = None if select.having is None else show(select.having)
    return replace(select, items=items, having=having, group_by=chosen)


def _replace_missing(expr: Expr, keys: Sequence[Expr], chosen: Sequence[Expr]) -> Expr:
    """The expression in rows of a set; aggregates are over the rows below, which have all values."""
    if expr in keys:
        return expr if expr in chosen else Literal(None, expr.type)
    if not isinstance(expr, Call):
        return expr
    if expr.op == GROUPING:
        bits = "".join("0" if arg in chosen else "1" for arg in expr.args or keys)
        return Literal(int(bits or "0", 2), INT)
    return replace(expr, args=tuple(_replace_missing(arg, keys, chosen) for arg in expr.args))


def find_grouping_calls(exprs: Sequence[Expr]) -> Iterator[Call]:
    """The calls of GROUPING in some expressions."""
    return (node for expr in exprs for node in walk(expr) if isinstance(node, Call) and node.op == GROUPING)
