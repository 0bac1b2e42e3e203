"""SEQ for the oracle on DuckDB: one pass over each item, earlier combinations in buckets by their key.

A later tuple pairs with the most recent earlier combination that fits (RECENT), or with the oldest one, which is then
used up (CHRONICLE). Buckets drop dead combinations, so that a pass costs little more than the tuples that are valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.cql.bound import Select
from penstock.expr.nodes import Call, Expr, aliases
from penstock.testing.oracle import Combination, lifetimes
from penstock.testing.row_evaluator import Env, Evaluator, key, naive

Place = tuple[float, int, int]
Placed = tuple[Combination, Place]
PRUNED = 32  # a longer bucket is freed of what is dead


def pair_sequence(select: Select, given: Mapping[str, pa.Table], ranks: Mapping[str, int]) -> list[Combination]:
    """The combinations of FROM SEQ; `given` holds the streams by name in lower case, `ranks` their order."""
    assert select.sequence is not None
    recent = select.sequence.mode == "recent"
    found: list[Placed] = []
    bound: set[str] = set()
    for source in select.sources:
        name = source.relation.name.casefold()
        now = bound | {source.alias}
        own = [naive(t) for t in select.where if aliases(t) <= {source.alias} and (aliases(t) or not bound)]
        both = [t for t in select.where if source.alias in aliases(t) <= now and aliases(t) & bound]
        later = [
            (single, (t.born, ranks[name], arrival))
            for arrival, t in enumerate(lifetimes(source, given[name]))
            if (single := Combination({source.alias: t.row}, t.born, t.dies)).satisfies(own)
        ]
        found = _pair(found, later, _Keys(both, source.alias), recent) if bound else later
        bound = now
    return [combination for combination, _ in found]


class _Keys:
    """What a step compares: equalities between the item and earlier ones, and the conditions left over."""

    def __init__(self, terms: Sequence[Expr], alias: str) -> None:
        self.left: list[Evaluator] = []
        self.right: list[Evaluator] = []
        self.tests: list[Evaluator] = []
        for term in terms:
            sides = _sides(term, alias)
            if sides is None:
                self.tests.append(naive(term))
            else:
                self.left.append(naive(sides[0]))
                self.right.append(naive(sides[1]))


def _sides(term: Expr, alias: str) -> tuple[Expr, Expr] | None:
    """The earlier side and the item's side of an equality."""
    if isinstance(term, Call) and term.op == "=":
        for earlier, item in (term.args, term.args[::-1]):
            if aliases(item) == {alias} and aliases(earlier) and alias not in aliases(earlier):
                return earlier, item
    return None


def _key(terms: Sequence[Evaluator], env: Env) -> tuple[Any, ...] | None:
    """The values of the terms; None if one is NULL and so equals nothing."""
    found = [term(env) for term in terms]
    return None if any(value is None for value in found) else tuple(key(value) for value in found)


def _pair(earlier: list[Placed], later: list[Placed], keys: _Keys, recent: bool) -> list[Placed]:
    buckets: defaultdict[tuple[Any, ...], list[Combination]] = defaultdict(list)
    found: list[Placed] = []
    at = 0
    for one, place in later:
        while at < len(earlier) and earlier[at][1] < place:
            before = earlier[at][0]
            name = _key(keys.left, before.rows)
            if name is not None:
                buckets[name].append(before)
            at += 1
        name = _key(keys.right, one.rows)
        bucket = buckets.get(name) if name is not None else None
        if not bucket:
            continue
        if len(bucket) > PRUNED:
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
