"""Methods of shared joins and early readers, replaced by broken ones; random runs must detect each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock.join.early_reader import EarlyReader, PendingRows
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.member import Member
from penstock.join.tree import JoinTree


@dataclass(frozen=True)
class Mutant:
    """A broken method, and the seeds of runs of which at least one must fail with it."""

    owner: type
    method: str
    broken: Any
    seeds: tuple[int, ...]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(self.owner, self.method, self.broken, raising=False)


_SHARING_SEEDS = (1048, 111, 122, 0, 1, 2, 3)

SHARING_MUTANTS = (
    Mutant(Interest, "membership", lambda self, _group: np.ones(len(self.sets), np.bool_), _SHARING_SEEDS),
    Mutant(LeafStore, "is_freed", lambda _self, ids: np.zeros(ids.size, np.bool_), _SHARING_SEEDS),
    Mutant(Member, "_find_group_at", lambda self, _matches: self.filter_group, _SHARING_SEEDS),
    Mutant(JoinNode, "drop_unwanted", lambda _self, _bound: None, _SHARING_SEEDS),
)

EARLY_READER_MUTANTS = (
    Mutant(PendingRows, "clear", lambda _self: None, (6, 23)),
    Mutant(PendingRows, "has_due", lambda _self, _until: False, (4, 6)),
    Mutant(EarlyReader, "advance", lambda _self, _until: None, (4, 6)),
    Mutant(LeafStore, "null_interest", property(lambda _self: {}, lambda _self, _value: None), (23, 44)),
    Mutant(JoinTree, "intersect_interest", lambda _self, _part, rows, _to: rows, (65,)),
    Mutant(JoinNode, "roll_back", lambda _self, _marks: None, (680,)),
)
