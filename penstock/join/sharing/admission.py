"""Admission: which filter groups need each tuple of a batch.

Law: a filter group needs a tuple of a stream that it reads if the tuple arrived at or after the group's start and
passes all of the group's filters on that stream. A filter that cannot be evaluated stops its groups: they need no tuple
from then on. Cost: comparisons of columns with constants are looked up in one index for all groups (`predicate_index`);
every other distinct set of filters is evaluated once per batch, for any number of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.expr import INT, ROW_NUMBER, Column, Expr, compute_mask, split_conjuncts, to_sql
from penstock.join.sharing.interest import Interest, join_bits
from penstock.join.sharing.predicate_index import Comparison, PredicateIndex, find_comparison
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.ops import EVALUATION_ERRORS, Batch, make_evaluation_error
from penstock.state import I32, SHIPPED, Maintenance, Mask


@dataclass(frozen=True)
class AdmissionRule:
    """What some filter groups (the bits of a number) require of a stream's tuples: filters and the first arrival."""

    filters: tuple[Expr, ...]
    first_number: int
    filter_groups: int


class StreamRules:
    """The rules for one stream. Comparisons are indexed if there are more rules than are listed in advance."""

    def __init__(
        self, rules: Mapping[AdmissionRule, Sequence[int]], readers: Iterable[int], maintenance: Maintenance
    ) -> None:
        """`rules`, each with the places of its groups. `readers`: the places of all groups that read the stream."""
        starts = [rule.first_number for rule in rules] or [0]
        self.oldest, self.newest = min(starts), max(starts)
        """The first arrival that some group needs, and the first from which on all tuples count for all groups."""
        self.rules = tuple(rules)
        self.readers = join_bits(readers)
        """All groups that read the stream, also those that have stopped and have no rule."""
        self.evaluated: list[AdmissionRule] = []
        """The rules that are evaluated one by one; the others are in indexes."""
        self.indexed = 0
        """The groups of the other rules."""
        self.takes_all = any(not rule.filters and rule.first_number <= 0 for rule in rules)
        """Whether some group needs all tuples."""
        self._conditions: dict[Column, dict[int, Sequence[Comparison]]] = {}
        self._starts: dict[int, Sequence[Comparison]] = {}
        self._indexes: dict[Column, PredicateIndex] = {}
        self._indexed_for: Interest | None = None
        indexed: list[int] = []
        for rule, places in rules.items():
            compared = None if len(rules) <= max(1, maintenance.listed_claims) else _find_comparisons(rule.filters)
            if compared is None:
                self.evaluated.append(rule)
                continue
            indexed += places
            start = Comparison(_ARRIVAL, ">=", (rule.first_number,))
            self._starts |= dict.fromkeys(places, (start,))
            for column, some in compared.items():
                self._conditions.setdefault(column, {}).update(dict.fromkeys(places, some))
        self.indexed = join_bits(indexed)
        self._all = join_bits(place for places in rules.values() for place in places)

    def restrict(self, codes: I32, batch: Batch, interest: Interest, *, from_start: bool) -> I32:
        """Codes restricted to the groups whose indexed comparisons hold. `from_start`: all tuples count for all."""
        if self._indexed_for is not interest:
            self._indexes, self._indexed_for = {}, interest
        for column in self._conditions:
            codes = interest.intersect(codes, self._get_index(column, interest).encode(batch.columns[column.name]))
        if not from_start and batch.numbers is not None:
            codes = interest.intersect(codes, self._get_index(_ARRIVAL, interest).encode(batch.numbers))
        return codes

    def _get_index(self, column: Column, interest: Interest) -> PredicateIndex:
        if column not in self._indexes:
            conditions = self._starts if column is _ARRIVAL else self._conditions[column]
            others = self._all & ~join_bits(conditions)
            groups = len(interest.filter_groups)
            self._indexes[column] = PredicateIndex(conditions, others, interest.encode_set, groups)
        return self._indexes[column]


_ARRIVAL = Column("", ROW_NUMBER, INT)
"""Stands for the arrival number of a tuple."""


def _find_comparisons(filters: Sequence[Expr]) -> dict[Column, list[Comparison]] | None:
    """The comparisons that filters consist of, by column; None if they are more than comparisons with constants."""
    found: dict[Column, list[Comparison]] = {}
    for expr in filters:
        for term in split_conjuncts(expr):
            comparison = find_comparison(term)
            if comparison is None:
                return None
            found.setdefault(comparison.column, []).append(comparison)
    return found


class Admission:
    """Decides which tuples of a batch are stored for the filter groups of a join."""

    def __init__(self, filter_groups: Sequence[FilterGroup], maintenance: Maintenance = SHIPPED) -> None:
        self._filter_groups = tuple(filter_groups)
        self._maintenance = maintenance
        self._rules: dict[str, StreamRules] = {}
        self.has_failures = any(group.failure for group in filter_groups)

    def admit(self, alias: str, batch: Batch, interest: Interest | None) -> tuple[Batch, I32 | None]:
        """The tuples that arrived late enough for some group, and their codes of interest.

        No codes: all groups that read the stream need all tuples. Without `interest` there is one group: the codes are
        1 for the tuples it needs.
        """
        if alias not in self._rules:
            self._rules[alias] = self._collect_rules(alias)
        stream = self._rules[alias]
        if interest is None and stream.takes_all:
            return batch, None
        earliest = _find_earliest(batch) if stream.newest > 0 else None
        if earliest is not None and earliest < stream.oldest and batch.numbers is not None:
            batch, earliest = batch.take(np.flatnonzero(batch.numbers >= stream.oldest)), stream.oldest
        always, some = stream.indexed, []
        for rule in stream.evaluated:
            passing = self._find_passing(rule, batch, earliest)
            if passing is None:
                always |= rule.filter_groups
            else:
                some.append((rule.filter_groups, passing))
        if interest is not None:
            if not some and not stream.indexed and always == stream.readers:
                return batch, None
            codes = interest.encode_rows(always, some, len(batch))
            if not stream.indexed:
                return batch, codes
            from_start = earliest is None or earliest >= stream.newest
            return batch, stream.restrict(codes, batch, interest, from_start=from_start)
        wanted = some[0][1] if some else np.zeros(len(batch), np.bool_)
        return batch, None if always else wanted.astype(np.int32)

    def _collect_rules(self, alias: str) -> StreamRules:
        """The distinct rules; a group that stopped has none. A single group has one rule, which is evaluated."""
        found: dict[tuple[tuple[Expr, ...], int], list[int]] = {}
        for place, group in enumerate(self._filter_groups):
            if group.reads(alias) and group.failure is None:
                condition = group.filters_of(alias), group.first_number(alias)
                found.setdefault(condition, []).append(place)
        rules = {AdmissionRule(*condition, join_bits(places)): places for condition, places in found.items()}
        readers = [place for place, group in enumerate(self._filter_groups) if group.reads(alias)]
        return StreamRules(rules, readers, self._maintenance)

    def _find_passing(self, rule: AdmissionRule, batch: Batch, earliest: int | None) -> Mask | None:
        """Which tuples pass; None for all."""
        passing: Mask | None = None
        if rule.filters:
            try:
                passing = compute_mask(rule.filters, lambda column: batch.columns[column.name], len(batch))
            except MemoryError:
                raise
            except EVALUATION_ERRORS as error:
                self._fail_groups(rule, error)
                return np.zeros(len(batch), np.bool_)
        if earliest is None or earliest >= rule.first_number or batch.numbers is None:
            return passing
        arrived: Mask = batch.numbers >= rule.first_number
        return arrived if passing is None else passing & arrived

    def _fail_groups(self, rule: AdmissionRule, error: Exception) -> None:
        failure = make_evaluation_error(" AND ".join(map(to_sql, rule.filters)), error)
        for place, group in enumerate(self._filter_groups):
            if rule.filter_groups >> place & 1:
                group.failure = failure
        self.has_failures = True
        self._rules = {}


def _find_earliest(batch: Batch) -> int | None:
    """The first arrival number of a batch; None if it has none."""
    return None if batch.numbers is None or not batch.numbers.size else int(batch.numbers.min())
