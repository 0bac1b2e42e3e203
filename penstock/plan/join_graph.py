"""The join graph of a SELECT: equality classes, filters of one alias, residual predicates.

Law: a combination satisfies WHERE exactly if every alias passes its filters, all terms of each class are equal
(and not NULL), and every residual holds. A class is closed under transitivity; each alias has one term in it, because
two equal terms of one alias become a filter of that alias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import pyarrow as pa

from penstock.expr import BOOL, Call, Expr, find_aliases, split_conjuncts


@dataclass(frozen=True)
class EqualityClass:
    """An equality class: one term (an expression over one alias) for each of its aliases."""

    id: int
    terms: tuple[tuple[str, Expr], ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.terms)

    @property
    def type(self) -> pa.DataType:
        """The widest type of the terms: they may be integers, or floats, of different widths."""
        return max((term.type for _, term in self.terms), key=_measure_width)


@dataclass(frozen=True)
class JoinGraph:
    """The conditions of WHERE and ON, sorted. The id of a class is its position."""

    aliases: tuple[str, ...]
    classes: tuple[EqualityClass, ...]
    filters: tuple[tuple[str, Expr], ...]
    residuals: tuple[Expr, ...]

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        return tuple(expr for owner, expr in self.filters if owner == alias)

    def terms_of(self, alias: str) -> tuple[tuple[int, Expr], ...]:
        """The ids of the classes of an alias, with its term in each."""
        return tuple((c.id, term) for c in self.classes for owner, term in c.terms if owner == alias)


Term = tuple[str, Expr]
"""An alias and an expression over it."""


@dataclass(frozen=True)
class SortedWhere:
    """The conjuncts of WHERE while the rules sort them. `pending` has the conjuncts that no rule has sorted yet.

    `equal_terms` are sets of terms that must be equal.
    """

    aliases: tuple[str, ...]
    pending: tuple[Expr, ...]
    equal_terms: tuple[tuple[Term, ...], ...] = ()
    filters: tuple[tuple[str, Expr], ...] = ()
    residuals: tuple[Expr, ...] = ()


def factor_alternatives(where: SortedWhere) -> SortedWhere:
    """Conjuncts that all alternatives of an OR have become conjuncts of WHERE: (a AND b) OR (a AND c) has a."""
    return replace(where, pending=tuple(term for predicate in where.pending for term in _factor(predicate)))


def collect_equalities(where: SortedWhere) -> SortedWhere:
    """Equalities between two aliases become sets of equal terms, closed under transitivity."""
    equal_terms: tuple[tuple[Term, ...], ...] = ()
    pending: list[Expr] = []
    for predicate in where.pending:
        sides = match_equality(predicate)
        if sides is None:
            pending.append(predicate)
        else:
            equal_terms = _add_equality(equal_terms, sides)
    return replace(where, pending=tuple(pending), equal_terms=equal_terms)


def push_filters(where: SortedWhere) -> SortedWhere:
    """Predicates over one alias become filters of its leaf; a constant predicate filters the first alias."""
    owned = [(find_aliases(predicate), predicate) for predicate in where.pending]
    return replace(
        where,
        pending=tuple(predicate for used, predicate in owned if len(used) > 1),
        filters=tuple((next(iter(used), where.aliases[0]), predicate) for used, predicate in owned if len(used) < 2),
    )


def split_repeated_terms(where: SortedWhere) -> SortedWhere:
    """A set of equal terms keeps the first term of each alias; a filter compares it with each further one."""
    kept: list[tuple[Term, ...]] = []
    filters = list(where.filters)
    for terms in where.equal_terms:
        first: dict[str, Expr] = {}
        for alias, term in terms:
            if alias in first:
                filters.append((alias, Call("=", (first[alias], term), BOOL)))
            else:
                first[alias] = term
        kept.append(tuple((name, first[name]) for name in where.aliases if name in first))
    return replace(where, equal_terms=tuple(kept), filters=tuple(filters))


def keep_residuals(where: SortedWhere) -> SortedWhere:
    """The remaining predicates, over several aliases, are tested on combinations."""
    return replace(where, pending=(), residuals=where.pending)


WHERE_RULES: tuple[Callable[[SortedWhere], SortedWhere], ...] = (
    factor_alternatives,
    collect_equalities,
    push_filters,
    split_repeated_terms,
    keep_residuals,
)


def build_join_graph(names: tuple[str, ...], where: Iterable[Expr]) -> JoinGraph:
    """Sort the conjuncts of WHERE into classes, filters and residuals."""
    found = reduce(lambda sorted_, rule: rule(sorted_), WHERE_RULES, SortedWhere(names, tuple(where)))
    classes = tuple(EqualityClass(place, terms) for place, terms in enumerate(found.equal_terms))
    return JoinGraph(names, classes, found.filters, found.residuals)


def match_equality(predicate: Expr) -> tuple[Term, Term] | None:
    """The two terms of an equality between two aliases."""
    if not (isinstance(predicate, Call) and predicate.op == "="):
        return None
    left, right = (_strip_casts(side) for side in predicate.args)
    owners = find_aliases(left), find_aliases(right)
    if any(len(owner) != 1 for owner in owners) or owners[0] == owners[1]:
        return None
    return (next(iter(owners[0])), left), (next(iter(owners[1])), right)


def _factor(predicate: Expr) -> tuple[Expr, ...]:
    """A predicate as conjuncts: those that all its alternatives have, and what is left of the alternatives."""
    alternatives = [split_conjuncts(each) for each in _split_alternatives(predicate)]
    first, *others = alternatives
    common = tuple(term for term in dict.fromkeys(first) if all(term in other for other in others))
    if not others or not common:
        return (predicate,)
    rests = [tuple(term for term in each if term not in common) for each in alternatives]
    if not all(rests):  # a OR (a AND b) is a
        return common
    return (*common, _connect("or", [_connect("and", list(rest)) for rest in rests]))


def _split_alternatives(expr: Expr) -> list[Expr]:
    """The top-level OR terms."""
    if isinstance(expr, Call) and expr.op == "or":
        return [term for arg in expr.args for term in _split_alternatives(arg)]
    return [expr]


def _connect(op: Literal["and", "or"], terms: list[Expr]) -> Expr:
    """The terms as a balanced tree, so that many of them do not make a deep one."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Call(op, (_connect(op, terms[:half]), _connect(op, terms[half:])), BOOL)


def _measure_width(type_: pa.DataType) -> int:
    return int(type_.bit_width) if pa.types.is_integer(type_) or pa.types.is_floating(type_) else 0


def _strip_casts(term: Expr) -> Expr:
    """Strip casts that widen. Keys of one family of types get equal codes for equal values without a cast."""
    if isinstance(term, Call) and term.op == "cast":
        inner = term.args[0].type
        integers = pa.types.is_integer(inner) and pa.types.is_integer(term.type)
        floats = pa.types.is_floating(inner) and pa.types.is_floating(term.type)
        if (integers or floats) and inner.bit_width <= term.type.bit_width:
            return _strip_casts(term.args[0])
    return term


def _add_equality(sets: tuple[tuple[Term, ...], ...], sides: tuple[Term, Term]) -> tuple[tuple[Term, ...], ...]:
    """The sets of terms, with both sides in one set, which is the last one."""
    united: list[Term] = []
    for side in sides:
        home = next((terms for terms in sets if side in terms), None)
        if home is None:
            united += [side] if side not in united else []
        else:
            sets = tuple(terms for terms in sets if terms is not home)
            united += home
    return (*sets, tuple(united))
