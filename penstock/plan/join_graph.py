"""The join graph of a SELECT: equality classes, filters of one alias, residual predicates.

Law: a combination satisfies WHERE exactly if every alias passes its filters, all terms of each class are equal
(and not NULL), and every residual holds. A class is closed under transitivity; each alias has one term in it, because
two equal terms of one alias become a filter of that alias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.expr.nodes import BOOL, Call, Expr, find_aliases


@dataclass(frozen=True)
class EqualityClass:
    """An equality class: one term (an expression over one alias) for each alias it binds."""

    id: int
    terms: tuple[tuple[str, Expr], ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.terms)

    @property
    def type(self) -> pa.DataType:
        return self.terms[0][1].type


@dataclass(frozen=True)
class JoinGraph:
    aliases: tuple[str, ...]
    classes: tuple[EqualityClass, ...]
    filters: tuple[tuple[str, Expr], ...]
    residuals: tuple[Expr, ...]

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        return tuple(expr for owner, expr in self.filters if owner == alias)

    def terms_of(self, alias: str) -> tuple[tuple[int, Expr], ...]:
        """The classes an alias takes part in, with its term in each."""
        return tuple((c.id, term) for c in self.classes for owner, term in c.terms if owner == alias)


def build_join_graph(names: tuple[str, ...], where: Iterable[Expr]) -> JoinGraph:
    """Sort the conjuncts of WHERE into classes, filters and residuals."""
    filters: list[tuple[str, Expr]] = []
    residuals: list[Expr] = []
    groups: list[list[tuple[str, Expr]]] = []
    for predicate in where:
        used = find_aliases(predicate)
        sides = match_equality(predicate)
        if sides is not None:
            _merge_groups(groups, sides)
        elif len(used) > 1:
            residuals.append(predicate)
        else:
            filters.append((next(iter(used), names[0]), predicate))
    classes: list[EqualityClass] = []
    for group in groups:
        first: dict[str, Expr] = {}
        for alias, term in group:
            if alias in first:
                filters.append((alias, Call("=", (first[alias], term), BOOL)))
            else:
                first[alias] = term
        terms = tuple((name, first[name]) for name in names if name in first)
        classes.append(EqualityClass(len(classes), terms))
    return JoinGraph(names, tuple(classes), tuple(filters), tuple(residuals))


def match_equality(predicate: Expr) -> tuple[tuple[str, Expr], tuple[str, Expr]] | None:
    """The two terms of an equality between two aliases."""
    if not (isinstance(predicate, Call) and predicate.op == "="):
        return None
    left, right = (_strip_casts(side) for side in predicate.args)
    owners = find_aliases(left), find_aliases(right)
    if any(len(owner) != 1 for owner in owners) or owners[0] == owners[1]:
        return None
    return (next(iter(owners[0])), left), (next(iter(owners[1])), right)


def _strip_casts(term: Expr) -> Expr:
    """Strip casts that widen: keys of one family are interned alike, so that they need no cast to be equal."""
    if isinstance(term, Call) and term.op == "cast":
        inner = term.args[0].type
        integers = pa.types.is_integer(inner) and pa.types.is_integer(term.type)
        floats = pa.types.is_floating(inner) and pa.types.is_floating(term.type)
        if (integers or floats) and inner.bit_width <= term.type.bit_width:
            return _strip_casts(term.args[0])
    return term


def _merge_groups(groups: list[list[tuple[str, Expr]]], sides: Iterable[tuple[str, Expr]]) -> None:
    merged: list[tuple[str, Expr]] = []
    for side in sides:
        home = next((group for group in groups if side in group), None)
        if home is None:
            merged += [side] if side not in merged else []
        else:
            groups.remove(home)
            merged += home
    groups.append(merged)
