"""Admission: which tuples of a batch somebody wants, and who.

Law: a party wants a tuple of a stream that it reads if the tuple came since the party takes tuples and passes all of
the party's filters on that stream. A filter that cannot be evaluated stops its parties: they want nothing from then on.
Cost: each distinct filter is evaluated once a batch, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.expr.evaluate import mask
from penstock.expr.nodes import Expr
from penstock.expr.sql import to_sql
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.member import EVALUATION_ERRORS, failed
from penstock.join.sharing.shared_needs import Sharers
from penstock.ops.protocol import Batch
from penstock.state.code_set import Mask
from penstock.state.kernels import I32


@dataclass(frozen=True)
class Claim:
    """What some parties, the bits of a number, ask of a stream's tuples: filters, and to have come `since`."""

    filters: tuple[Expr, ...]
    since: int
    parties: int


class Admission:
    """The door of a join for those who share it."""

    def __init__(self, parties: Sequence[Sharers]) -> None:
        self._parties = tuple(parties)
        self._claims: dict[str, tuple[int, tuple[Claim, ...]]] = {}

    def admitted(self, alias: str, batch: Batch, interest: Interest | None) -> tuple[Batch, I32 | None]:
        """The tuples that count for somebody, and their codes of interest.

        Without `interest` there is one party: the codes are 1 for what it wants, None for all.
        """
        if alias not in self._claims:
            self._claims[alias] = self._asked(alias)
        oldest, claims = self._claims[alias]
        earliest = _earliest(batch)
        if earliest is not None and earliest < oldest and batch.numbers is not None:
            batch, earliest = batch.take(np.flatnonzero(batch.numbers >= oldest)), oldest
        always, some = 0, []
        for claim in claims:
            passing = self._passing(claim, batch, earliest)
            if passing is None:
                always |= claim.parties
            else:
                some.append((claim.parties, passing))
        if interest is not None:
            return batch, interest.codes(always, some, len(batch))
        wanted = some[0][1] if some else np.zeros(len(batch), np.bool_)
        return batch, None if always else wanted.astype(np.int32)

    def _asked(self, alias: str) -> tuple[int, tuple[Claim, ...]]:
        """The first arrival that counts for somebody, and the distinct claims; a party that stopped makes none."""
        found: dict[tuple[tuple[Expr, ...], int], int] = {}
        for place, party in enumerate(self._parties):
            if party.reads(alias) and party.failure is None:
                claim = party.filters_of(alias), party.first(alias)
                found[claim] = found.get(claim, 0) | 1 << place
        oldest = min((since for _, since in found), default=0)
        return oldest, tuple(Claim(*claim, parties) for claim, parties in found.items())

    def _passing(self, claim: Claim, batch: Batch, earliest: int | None) -> Mask | None:
        """Which tuples pass; None for all."""
        passing: Mask | None = None
        if claim.filters:
            try:
                passing = mask(claim.filters, lambda column: batch.columns[column.name], len(batch))
            except MemoryError:
                raise
            except EVALUATION_ERRORS as error:
                self._stop(claim, error)
                return np.zeros(len(batch), np.bool_)
        if earliest is None or earliest >= claim.since or batch.numbers is None:
            return passing
        came: Mask = batch.numbers >= claim.since
        return came if passing is None else passing & came

    def _stop(self, claim: Claim, error: Exception) -> None:
        failure = failed(" AND ".join(map(to_sql, claim.filters)), error)
        for place, party in enumerate(self._parties):
            if claim.parties >> place & 1:
                party.failure = failure
        self._claims = {}


def _earliest(batch: Batch) -> int | None:
    """The first arrival number of a batch; None if it has none."""
    return None if batch.numbers is None or not batch.numbers.size else int(batch.numbers.min())
