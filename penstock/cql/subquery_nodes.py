"""Finds subqueries in the syntax of expressions: those that stand for a value, EXISTS and IN."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


def list_queries(node: exp.Expr | None) -> list[exp.Placeholder]:
    """The subqueries in an expression."""
    return [] if node is None else [each for each in node.find_all(exp.Placeholder) if "body" in each.meta]


def list_scalar_queries(node: exp.Expr) -> list[exp.Placeholder]:
    """The subqueries in an expression that stand for a value."""
    return [each for each in list_queries(node) if not isinstance(each.parent, exp.In | exp.Exists)]


def split_conjunct_nodes(node: exp.Expr | None) -> list[exp.Expr]:
    """The terms of a condition that AND connects."""
    terms: list[exp.Expr] = []
    waiting = [] if node is None else [node]
    while waiting:
        term = waiting.pop()
        if isinstance(term, exp.And):
            waiting += [term.right, term.left]
        elif isinstance(term, exp.Paren) and isinstance(term.this, exp.And | exp.Paren):
            waiting.append(term.this)
        else:
            terms.append(term)
    return terms


@dataclass(frozen=True)
class Predicate:
    """A condition that is an EXISTS or an IN with a subquery, or the negation of one. `operand` is what IN tests."""

    query: exp.Placeholder
    negated: bool
    operand: exp.Expr | None


def match_predicate(node: exp.Expr) -> Predicate | None:
    """The condition as a predicate; None if it is another one."""
    negated = False
    while isinstance(node, exp.Paren | exp.Not):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists) and list_queries(node.this)[:1] == [node.this]:
        return Predicate(node.this, negated, None)
    if isinstance(node, exp.In) and len(node.expressions) == 1 and list_queries(node.expressions[0]):
        inner = node.expressions[0]
        if isinstance(inner, exp.Placeholder):
            return Predicate(inner, negated, node.this)
    return None


def list_predicates(node: exp.Expr) -> list[exp.Expr]:
    """The EXISTS and IN with a subquery in an expression."""
    return [each for each in node.find_all(exp.Exists, exp.In) if match_predicate(each) is not None]


def is_filter(node: exp.Expr) -> bool:
    """Whether a condition of WHERE or HAVING has the same rows if NULL is FALSE here: only AND and OR are around."""
    around = node.parent
    while isinstance(around, (exp.And, exp.Or, exp.Paren, exp.Where, exp.Having)):
        around = around.parent
    return around is None
