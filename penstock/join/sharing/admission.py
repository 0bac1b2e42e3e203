"""Admission: which filter groups need each tuple of a batch.

Law: a filter group needs a tuple of a stream that it reads if the tuple arrived at or after the group's start and
passes all of the group's filters on that stream. A filter that cannot be evaluated stops its groups: they need no tuple
from then on. Cost: each distinct set of filters is evaluated once per batch, for any number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.expr import Expr, compute_mask, to_sql
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.ops import EVALUATION_ERRORS, Batch, make_evaluation_error
from penstock.state import I32, Mask


@dataclass(frozen=True)
class AdmissionRule:
    """What some filter groups (the bits of a number) require of a stream's tuples: filters and the first arrival."""

    filters: tuple[Expr, ...]
    first_number: int
    filter_groups: int


class Admission:
    """Decides which tuples of a batch are stored for the filter groups of a join."""

    def __init__(self, filter_groups: Sequence[FilterGroup]) -> None:
        self._filter_groups = tuple(filter_groups)
        self._rules: dict[str, tuple[int, tuple[AdmissionRule, ...]]] = {}

    def admit(self, alias: str, batch: Batch, interest: Interest | None) -> tuple[Batch, I32 | None]:
        """The tuples that arrived late enough for some group, and their codes of interest.

        Without `interest` there is one group: the codes are 1 for the tuples it needs; None means all.
        """
        if alias not in self._rules:
            self._rules[alias] = self._collect_rules(alias)
        oldest, rules = self._rules[alias]
        earliest = _find_earliest(batch)
        if earliest is not None and earliest < oldest and batch.numbers is not None:
            batch, earliest = batch.take(np.flatnonzero(batch.numbers >= oldest)), oldest
        always, some = 0, []
        for rule in rules:
            passing = self._find_passing(rule, batch, earliest)
            if passing is None:
                always |= rule.filter_groups
            else:
                some.append((rule.filter_groups, passing))
        if interest is not None:
            return batch, interest.encode_rows(always, some, len(batch))
        wanted = some[0][1] if some else np.zeros(len(batch), np.bool_)
        return batch, None if always else wanted.astype(np.int32)

    def _collect_rules(self, alias: str) -> tuple[int, tuple[AdmissionRule, ...]]:
        """The first arrival that some group needs, and the distinct rules; a group that stopped has none."""
        found: dict[tuple[tuple[Expr, ...], int], int] = {}
        for place, group in enumerate(self._filter_groups):
            if group.reads(alias) and group.failure is None:
                condition = group.filters_of(alias), group.first_number(alias)
                found[condition] = found.get(condition, 0) | 1 << place
        oldest = min((first for _, first in found), default=0)
        return oldest, tuple(AdmissionRule(*condition, groups) for condition, groups in found.items())

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
        self._rules = {}


def _find_earliest(batch: Batch) -> int | None:
    """The first arrival number of a batch; None if it has none."""
    return None if batch.numbers is None or not batch.numbers.size else int(batch.numbers.min())
