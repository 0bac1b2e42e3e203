"""Methods of shared joins and early readers, replaced by broken ones; random runs must detect each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from penstock.join import JoinNode, MatchBatch, Member, WritingMember
from penstock.join.early_reader import EarlyReader, PendingRows
from penstock.join.join_inputs import JoinInputs
from penstock.join.join_output import JoinOutput, _RestoredMatches
from penstock.join.node_state import NodeState
from penstock.join.range_choice import RangeChoice
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.leaf_interest import LeafInterest
from penstock.join.sharing.row_interest import RowInterest
from penstock.join.sharing.shared_join import SharedJoin
from penstock.join.sharing.shared_needs import SharedNeeds
from penstock.join.stored_rows import StoredRows
from penstock.plan import combine_bounds
from penstock.state import RowsWindow


@dataclass(frozen=True)
class Mutant:
    """A broken method, and the seeds of runs of which at least one must fail with it."""

    owner: Any
    method: str
    broken: Any
    seeds: tuple[int, ...]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(self.owner, self.method, self.broken, raising=False)


_SHARING_SEEDS = (1048, 111, 122, 0, 1, 2, 3)

SHARING_MUTANTS = (
    Mutant(Interest, "membership", lambda self, _group: np.ones(len(self.sets), np.bool_), _SHARING_SEEDS),
    Mutant(Member, "_find_group_at", lambda self, _matches: self.filter_group, _SHARING_SEEDS),
    Mutant(JoinNode, "drop_unwanted", lambda _self, _bound: None, _SHARING_SEEDS),
)


def _read_first_only(self: Any, _part: Any, rows: Any) -> Any:
    leaf = next(iter(self._leaves.values()))
    return self.interest.read_sets()[leaf.read(rows.ids[0])]


def _identify_by_count(self: Any, _group: Any, life: int | None) -> int:
    return len(self) if life is None else int(np.count_nonzero(self.age < life))


CROWD_MUTANTS = (
    Mutant(MatchBatch, "identify_selection", _identify_by_count, (0, 1, 2, 3)),
    Mutant(RowInterest, "read_bits", _read_first_only, (0, 1, 2, 3)),
    Mutant(Interest, "recode", lambda self, codes, _sets: codes % len(self.sets), (0, 1, 2, 3)),
)
"""Detected by `test_law_crowd.check_crowd` with few sets that are numbered."""


def _set_size_only(self: Any, size: int, ids: Any, _row_dies: Any) -> None:
    self.size = size
    self.keep_only(ids)


ROW_COUNT_MUTANTS = (
    Mutant(RowsWindow, "count_newer_until", lambda self, ids, _times: self.count_newer(ids), (1, 2, 3, 4)),
    Mutant(RowsWindow, "set_size", _set_size_only, (21,)),
)
"""Detected by `test_law_crowd.check_crowd` with windows of rows."""

FREED_MUTANT = Mutant(StoredRows, "is_freed", lambda _self, ids: np.zeros(ids.size, np.bool_), ())
"""Detected by `sharing_runs.check_freed_tuples`: queries are rarely dropped and added in this order."""

EARLY_READER_MUTANTS = (
    Mutant(PendingRows, "clear", lambda _self: None, (6, 23)),
    Mutant(PendingRows, "has_due", lambda _self, _until: False, (4, 6)),
    Mutant(EarlyReader, "advance", lambda _self, _until: None, (4, 6)),
    Mutant(LeafInterest, "null_codes", property(lambda _self: {}, lambda _self, _value: None), (23, 44)),
    Mutant(RowInterest, "restrict", lambda self, part, rows, _to: (rows, self.read(part, rows)), (65,)),
    Mutant(NodeState, "roll_back", lambda _self, _marks: None, (680,)),
)


def _test_first_bound(_self: Any, bounds: Any) -> Any:
    return [bounds[0].predicate]


def _test_narrowest_bounds(_self: Any, bounds: Any) -> Any:
    return [combine_bounds(replace(bound, width=-bound.width) for bound in bounds)]


def _test_one_shape(_self: Any, bounds: Any) -> Any:
    return [combine_bounds(bound for bound in bounds if bound.shape == bounds[0].shape)]


def _drop_overflows(_self: Any, bounds: Any) -> Any:
    return [combine_bounds(replace(bound, may_overflow=False) for bound in bounds)]


BOUND_MUTANTS = (
    Mutant(SharedNeeds, "_combine_family", _test_first_bound, (0, 1, 2)),
    Mutant(SharedNeeds, "_combine_family", _test_narrowest_bounds, (0, 1, 2)),
    Mutant(SharedNeeds, "_combine_family", _test_one_shape, (2, 4, 5)),
    Mutant(SharedNeeds, "_combine_family", _drop_overflows, (9, 49)),
)
"""Detected by `bound_runs.check_bounds`."""

RANGE_MUTANT = Mutant(RangeChoice, "find_equal_keys", lambda *arguments: arguments[-1].probe >= 0, (10, 13))
"""Detected by `bound_runs.check_bounds` with the smallest thresholds: a range beside a key is always looked up."""


def _hold_nothing(_self: Any, born: Any, _until: int) -> Any:
    return born


def _forget_held(_self: Any, born: Any, until: int) -> Any:
    return born.slice(0, int(np.searchsorted(born.times, until, side="right")))


def _forget_what_was_written(self: Any, matches: Any, done: int, _complete: int) -> None:
    self._restored = _RestoredMatches(matches, done, done)


INSTANT_MUTANTS = (
    Mutant(JoinInputs, "find_complete", lambda _self, until: until, (4, 14, 17)),
    Mutant(WritingMember, "hold_back", _hold_nothing, (4, 14, 17)),
    Mutant(WritingMember, "hold_back", _forget_held, (14, 17, 19)),
    Mutant(JoinOutput, "keep_restored", _forget_what_was_written, (26, 38)),
    Mutant(SharedJoin, "strict", property(lambda self: self.has_waiting), (14, 16, 22)),
)
"""Detected by `instant_runs.check_instants`."""


def _keep_position(self: Any, done: int, unread: Any) -> None:
    self.done = done
    self._marks.update({alias: self._stores[alias].rows.end for alias in unread})


def _mark_by_time(self: Any, until: int) -> None:
    for alias, inlet in self._join_inlets.items():
        inlet.read(until)
        self._marks[alias] = self._stores[alias].rows.find_first_after(until)


def _give_all_to_all(self: Any, codes: Any, _others: Any, kept: Any) -> Any:
    return np.full(codes.size, self.encode_groups(place for place, old in enumerate(kept) if old is not None), np.int32)


TAKEOVER_MUTANTS = (
    Mutant(EarlyReader, "move_to", _keep_position, (7, 8, 11)),
    Mutant(EarlyReader, "advance", _mark_by_time, (6,)),
    Mutant(Interest, "recode_from", _give_all_to_all, (5, 6, 23)),
)
"""Detected by `nested_runs.check_wider_later`."""
