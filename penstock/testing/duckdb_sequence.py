"""SEQ for the oracle on DuckDB: one pass over each item, with earlier combinations in buckets by their key.

A later tuple pairs with the most recent earlier combination that matches (RECENT), or with the oldest one, which is
then removed (CHRONICLE). Buckets drop expired combinations, so that a pass costs little more than the valid tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.cql import Select, SeqMode
from penstock.expr import Call, Expr, find_aliases
from penstock.testing.combinations import Combination, compute_lifetimes
from penstock.testing.row_evaluator import Env, Evaluator, compile_expr, to_comparison_key

Position = tuple[float, int, int]
PositionedCombination = tuple[Combination, Position]
PRUNE_ABOVE = 32  # a longer bucket drops its expired combinations


def pair_sequence(
    select: Select, mode: SeqMode, given: Mapping[str, pa.Table], ranks: Mapping[str, int]
) -> list[Combination]:
    """The combinations of FROM SEQ; `given` holds the streams by name in lower case, `ranks` their order."""
    recent = mode == "recent"
    found: list[PositionedCombination] = []
    bound: set[str] = set()
    for source in select.sources:
        name = source.relation.name.casefold()
        now = bound | {source.alias}
        own = [
            compile_expr(t)
            for t in select.where
            if find_aliases(t) <= {source.alias} and (find_aliases(t) or not bound)
        ]
        both = [t for t in select.where if source.alias in find_aliases(t) <= now and find_aliases(t) & bound]
        later = [
            (single, (t.born, ranks[name], arrival))
            for arrival, t in enumerate(compute_lifetimes(source, given[name]))
            if (single := Combination({source.alias: t.row}, t.born, t.dies)).satisfies(own)
        ]
        found = _pair_step(found, later, _StepConditions(both, source.alias), recent) if bound else later
        bound = now
    return [combination for combination, _ in found]


class _StepConditions:
    """The conditions of a step: equalities between the item and earlier ones, and the other conditions."""

    def __init__(self, terms: Sequence[Expr], alias: str) -> None:
        self.left: list[Evaluator] = []
        self.right: list[Evaluator] = []
        self.tests: list[Evaluator] = []
        for term in terms:
            sides = _split_equality(term, alias)
            if sides is None:
                self.tests.append(compile_expr(term))
            else:
                self.left.append(compile_expr(sides[0]))
                self.right.append(compile_expr(sides[1]))


def _split_equality(term: Expr, alias: str) -> tuple[Expr, Expr] | None:
    """The earlier side and the item's side of an equality."""
    if isinstance(term, Call) and term.op == "=":
        for earlier, item in (term.args, term.args[::-1]):
            if find_aliases(item) == {alias} and find_aliases(earlier) and alias not in find_aliases(earlier):
                return earlier, item
    return None


def _compute_key(terms: Sequence[Evaluator], env: Env) -> tuple[Any, ...] | None:
    """The values of the terms; None if one is NULL, which equals nothing."""
    found = [term(env) for term in terms]
    return None if any(value is None for value in found) else tuple(to_comparison_key(value) for value in found)


def _pair_step(
    earlier: list[PositionedCombination], later: list[PositionedCombination], keys: _StepConditions, recent: bool
) -> list[PositionedCombination]:
    buckets: defaultdict[tuple[Any, ...], list[Combination]] = defaultdict(list)
    found: list[PositionedCombination] = []
    at = 0
    for one, place in later:
        while at < len(earlier) and earlier[at][1] < place:
            before = earlier[at][0]
            name = _compute_key(keys.left, before.rows)
            if name is not None:
                buckets[name].append(before)
            at += 1
        name = _compute_key(keys.right, one.rows)
        bucket = buckets.get(name) if name is not None else None
        if not bucket:
            continue
        if len(bucket) > PRUNE_ABOVE:
            bucket[:] = [each for each in bucket if each.dies > place[0]]
        order = range(len(bucket) - 1, -1, -1) if recent else range(len(bucket))
        for i in order:
            before = bucket[i]
            pair = Combination({**before.rows, **one.rows}, place[0], min(before.dies, one.dies))
            if pair.satisfies(keys.tests):
                found.append((pair, place))
                if not recent:
                    del bucket[i]
                break
    return found
