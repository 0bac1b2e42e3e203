"""Admission: which tuples of a batch somebody wants, and who.

Law: a party wants a tuple of a stream that it reads if the tuple came since the party takes tuples and passes all of
the party's filters on that stream. A filter that cannot be evaluated stops its parties: they want nothing from then on.
Cost: each distinct filter is evaluated once a batch, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.expr.evaluate import compute_mask
from penstock.expr.nodes import Expr
from penstock.expr.sql import to_sql
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.member import EVALUATION_ERRORS, make_evaluation_error
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.ops.protocol import Batch
from penstock.state.code_set import Mask
from penstock.state.kernels import I32


@dataclass(frozen=True)
class AdmissionRule:
    """What some parties, the bits of a number, ask of a stream's tuples: filters, and to have come `since`."""

    filters: tuple[Expr, ...]
    first_number: int
    filter_groups: int


class Admission:
    """The door of a join for those who share it."""

    def __init__(self, filter_groups: Sequence[FilterGroup]) -> None:
        self._filter_groups = tuple(filter_groups)
        self._rules: dict[str, tuple[int, tuple[AdmissionRule, ...]]] = {}

    def admit(self, alias: str, batch: Batch, interest: Interest | None) -> tuple[Batch, I32 | None]:
        """The tuples that count for somebody, and their codes of interest.

        Without `interest` there is one party: the codes are 1 for what it wants, None for all.
        """
        if alias not in self._rules:
            self._rules[alias] = self._collect_rules(alias)
        oldest, claims = self._rules[alias]
        earliest = _find_earliest(batch)
        if earliest is not None and earliest < oldest and batch.numbers is not None:
            batch, earliest = batch.take(np.flatnonzero(batch.numbers >= oldest)), oldest
        always, some = 0, []
        for claim in claims:
            passing = self._find_passing(claim, batch, earliest)
            if passing is None:
                always |= claim.filter_groups
            else:
                some.append((claim.filter_groups, passing))
        if interest is not None:
            return batch, interest.encode_rows(always, some, len(batch))
        wanted = some[0][1] if some else np.zeros(len(batch), np.bool_)
        return batch, None if always else wanted.astype(np.int32)

    def _collect_rules(self, alias: str) -> tuple[int, tuple[AdmissionRule, ...]]:
        """The first arrival that counts for somebody, and the distinct claims; a party that stopped makes none."""
        found: dict[tuple[tuple[Expr, ...], int], int] = {}
        for place, party in enumerate(self._filter_groups):
            if party.reads(alias) and party.failure is None:
                claim = party.filters_of(alias), party.first_number(alias)
                found[claim] = found.get(claim, 0) | 1 << place
        oldest = min((since for _, since in found), default=0)
        return oldest, tuple(AdmissionRule(*claim, parties) for claim, parties in found.items())

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
        came: Mask = batch.numbers >= rule.first_number
        return came if passing is None else passing & came

    def _fail_groups(self, rule: AdmissionRule, error: Exception) -> None:
        failure = make_evaluation_error(" AND ".join(map(to_sql, rule.filters)), error)
        for place, party in enumerate(self._filter_groups):
            if rule.filter_groups >> place & 1:
                party.failure = failure
        self._rules = {}


def _find_earliest(batch: Batch) -> int | None:
    """The first arrival number of a batch; None if it has none."""
    return None if batch.numbers is None or not batch.numbers.size else int(batch.numbers.min())
