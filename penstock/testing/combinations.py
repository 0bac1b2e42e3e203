"""The combinations of tuples that a SELECT joins, by brute force, each with the interval during which it is valid.

A combination is dropped at the first conjunct or interval that fails, and an equality with a bound alias narrows the
candidates before every conjunct is tested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from penstock.cql import Select, SeqMode, Source, Stream
from penstock.expr import Call, Expr, find_aliases
from penstock.testing.interval_operators import ALWAYS, FOREVER
from penstock.testing.row_evaluator import Env, Evaluator, Row, compile_expr, to_comparison_key, to_plain

T = TypeVar("T")
LIMIT_FACTOR = 6  # the limit on partial combinations, as a multiple of the limit on the answer


class TooManyRows(Exception):  # noqa: N818 (a limit that the caller sets, not an error)
    """The answer has more rows than the limit."""


def collect_limited(rows: Iterable[T], limit: int | None) -> list[T]:
    kept: list[T] = []
    for row in rows:
        kept.append(row)
        if limit is not None and len(kept) > limit:
            raise TooManyRows(f"more than {limit} rows")
    return kept


class ValidTuple(NamedTuple):
    """One tuple of a source and its validity interval."""

    row: Row
    born: float
    dies: float


def compute_lifetimes(source: Source, table: pa.Table) -> list[ValidTuple]:
    """Every tuple of a source with its validity interval; `table` is in the order of arrival."""
    names = table.column_names
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(to_plain(c) for c in table.columns), strict=True)]
    relation, window = source.relation, source.window
    if not isinstance(relation, Stream):
        return [ValidTuple(row, ALWAYS, FOREVER) for row in rows]
    time = relation.time
    rows = sorted((row for row in rows if row[time] is not None), key=lambda row: row[time])  # stable: ties by arrival
    if window.row_count is not None:
        return _compute_row_lifetimes(rows, time, window.row_count, window.partition)
    lasts = FOREVER if window.lifetime is None else window.lifetime
    return [ValidTuple(row, row[time], row[time] + lasts) for row in rows]


def list_times(source: Source, given: Mapping[str, pa.Table]) -> list[int]:
    """The times of all tuples of a stream, in order."""
    return sorted(int(each.born) for each in compute_lifetimes(source, given[source.relation.name.casefold()]))


def _compute_row_lifetimes(rows: list[dict[str, Any]], time: str, count: int, by: tuple[str, ...]) -> list[ValidTuple]:
    """[PARTITION BY k] ROWS n: a tuple expires at the time of the n-th later tuple of its partition."""
    partitions: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        partitions[tuple(None if row[k] is None else to_comparison_key(row[k]) for k in by)].append(row)
    return [
        ValidTuple(row, row[time], later[0][time] if (later := part[i + count : i + count + 1]) else FOREVER)
        for part in partitions.values()
        for i, row in enumerate(part)
    ]


@dataclass(frozen=True, slots=True)
class Combination:
    """One tuple for each alias bound so far, and the interval during which all of them are valid."""

    rows: dict[str, Row]
    born: float
    dies: float

    def extend(self, alias: str, tuple_: ValidTuple) -> Combination:
        born, dies = max(self.born, tuple_.born), min(self.dies, tuple_.dies)
        return Combination({**self.rows, alias: tuple_.row}, born, dies)

    def satisfies(self, tests: Iterable[Evaluator]) -> bool:
        return self.born < self.dies and all(test(self.rows) is True for test in tests)


def join_tuples(select: Select, pools: dict[str, list[ValidTuple]], limit: int | None) -> list[Combination]:
    """All combinations of tuples that satisfy WHERE and have an interval, built one alias after the other."""
    for alias, pool in pools.items():
        own = [compile_expr(term) for term in select.where if find_aliases(term) == {alias}]
        pools[alias] = [t for t in pool if Combination({alias: t.row}, t.born, t.dies).satisfies(own)]
    constant = [compile_expr(term) for term in select.where if not find_aliases(term)]
    found = [Combination({}, ALWAYS, FOREVER)] if all(test({}) is True for test in constant) else []
    bound: frozenset[str] = frozenset()
    for alias in _choose_order(select):
        now = bound | {alias}
        terms = [term for term in select.where if alias in find_aliases(term) <= now and len(find_aliases(term)) > 1]
        tests = [compile_expr(term) for term in terms]
        candidates = _CandidateIndex(alias, pools[alias], terms)
        longer = (c.extend(alias, t) for c in found for t in candidates.find(c.rows))
        found = collect_limited(
            (c for c in longer if c.satisfies(tests)), LIMIT_FACTOR * limit if limit is not None else None
        )
        bound = now
    return found


class _OrderedCombination(NamedTuple):
    """A combination and its position in the order of all tuples: time, stream, arrival."""

    combination: Combination
    position: tuple[float, int, int]


def match_sequence(select: Select, mode: SeqMode, given: Mapping[str, pa.Table]) -> list[Combination]:
    """FROM SEQ, item by item: each later tuple is compared with all earlier combinations."""
    choose, once = (max, False) if mode == "recent" else (min, True)
    ranks = {name: rank for rank, name in enumerate(given)}
    found: list[_OrderedCombination] = []
    bound: set[str] = set()
    for source in select.sources:
        pool = compute_lifetimes(source, given[source.relation.name.casefold()])
        rank = ranks[source.relation.name.casefold()]
        now = bound | {source.alias}
        own = [
            compile_expr(t)
            for t in select.where
            if find_aliases(t) <= {source.alias} and (find_aliases(t) or not bound)
        ]
        both = [
            compile_expr(t) for t in select.where if source.alias in find_aliases(t) <= now and find_aliases(t) & bound
        ]
        later = [
            _OrderedCombination(Combination({source.alias: t.row}, t.born, t.dies), (t.born, rank, arrival))
            for arrival, t in enumerate(pool)
            if Combination({source.alias: t.row}, t.born, t.dies).satisfies(own)
        ]
        found = _pair_tuples(found, later, both, choose, once) if bound else later
        bound = now
    return [placed.combination for placed in found]


def _pair_tuples(
    earlier: list[_OrderedCombination],
    later: list[_OrderedCombination],
    tests: list[Evaluator],
    choose: Any,
    once: bool,
) -> list[_OrderedCombination]:
    """Pair each later tuple, in order, with the earlier combination that the mode chooses."""
    found: list[_OrderedCombination] = []
    for one in later:
        pairs = [
            (before.position, i, Combination({**before.combination.rows, **one.combination.rows}, one.position[0],
                                          min(before.combination.dies, one.combination.dies)))
            for i, before in enumerate(earlier)
            if before.position < one.position
        ]  # fmt: skip
        usable = [pair for pair in pairs if pair[2].satisfies(tests)]
        if usable:
            _, i, pair = choose(usable, key=lambda pair: pair[0])
            found.append(_OrderedCombination(pair, one.position))
            if once:
                earlier = earlier[:i] + earlier[i + 1 :]
    return found


def _choose_order(select: Select) -> list[str]:
    """The aliases in an order in which each has an equality with an earlier one, if possible."""
    left = [source.alias for source in select.sources]
    order = [left.pop(0)]
    while left:
        linked = (a for a in left if any(_match_equality(term, a, frozenset(order)) for term in select.where))
        order.append(next(linked, left[0]))
        left.remove(order[-1])
    return order


def _match_equality(term: Expr, alias: str, bound: frozenset[str]) -> tuple[Expr, Expr] | None:
    """For `f(alias) = g(bound)`, in either order: (f, g)."""
    if isinstance(term, Call) and term.op == "=":
        for mine, other in (term.args, term.args[::-1]):
            if find_aliases(mine) == {alias} and find_aliases(other) and find_aliases(other) <= bound:
                return mine, other
    return None


class _CandidateIndex:
    """The tuples of one alias that can extend a combination: those that satisfy one equality, or all."""

    def __init__(self, alias: str, pool: list[ValidTuple], terms: list[Expr]) -> None:
        self.pool = pool
        self.probe: Evaluator | None = None
        bound = frozenset(a for term in terms for a in find_aliases(term)) - {alias}
        pair = next((pair for term in terms if (pair := _match_equality(term, alias, bound))), None)
        if pair is None:
            return
        mine, self.probe = compile_expr(pair[0]), compile_expr(pair[1])
        self.index: defaultdict[Any, list[ValidTuple]] = defaultdict(list)
        for tuple_ in pool:
            value = mine({alias: tuple_.row})
            if value is not None:
                self.index[to_comparison_key(value)].append(tuple_)

    def find(self, rows: Env) -> list[ValidTuple]:
        if self.probe is None:
            return self.pool
        value = self.probe(rows)
        return [] if value is None else self.index.get(to_comparison_key(value), [])
