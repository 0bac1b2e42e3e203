"""Probes: what rows of one child look for in the other, and the rows found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.join.join_rows import JoinRows
from penstock.join.leaf_indexes import KeyCodes
from penstock.join.lookup_meter import LookupMeter
from penstock.join.partner_filter import PartnerFilter
from penstock.join.range_probes import ProbeRanges
from penstock.state import ALWAYS, FOREVER, I64


@dataclass(frozen=True)
class Probes:
    """A batch of probes: codes in some classes, lifetimes to overlap with, and perhaps a range of numbers."""

    key_codes: KeyCodes
    born: I64
    dies: I64
    old_only: bool = False
    """Match only rows without a tuple of the current batch."""
    ranges: ProbeRanges | None = None
    born_after: I64 | None = None
    """Match only rows born after this time."""
    from_leaves: bool = False
    """Compute the rows from the leaves, whatever the states hold."""
    partners: PartnerFilter | None = None
    """If the probed node is incomplete and there is no key: which of its leaf rows may be part of a match."""
    meter: LookupMeter | None = None
    """If rows are computed in place of a state: counts what that costs."""

    def __len__(self) -> int:
        return self.born.size

    def narrow(self, key_codes: KeyCodes, born: I64, dies: I64) -> Probes:
        """The same lookup in a child: by codes alone."""
        return Probes(key_codes, born, dies, self.old_only, from_leaves=self.from_leaves, meter=self.meter)


@dataclass(frozen=True)
class ProbeResult:
    """Rows that match probes: rows[i] matches probe[i], with the interval they share."""

    probe: I64
    rows: JoinRows

    def take(self, places: I64 | None) -> ProbeResult:
        """The matches at some places; None for all."""
        return self if places is None else ProbeResult(self.probe[places], self.rows.take(places))


def make_full_intervals(rows: int) -> tuple[I64, I64]:
    """Lifetimes that overlap every other."""
    return np.full(rows, ALWAYS), np.full(rows, FOREVER)
