"""Queries that group the rows of one stream, as members of a join of that stream alone.

Law: a member gets what an aggregate operator above a join of its own would write, whichever other members there are.
Members with the same filters, start and keys are one `SharedAggregation`. It is not saved: it follows from the stored
rows, and is built from them again when its members change.

Cost: O(stored rows) and O(1) for each row and window when members were added, removed or merged, once for all changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.expr import Column, Expr, evaluate
from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.member import WritingMember
from penstock.join.sharing.shared_needs import FilterGroup
from penstock.ops import (
    CHANGES,
    EVALUATION_ERRORS,
    Batch,
    OperatorId,
    Outlet,
    SharedAggregation,
    WindowAggregates,
    make_evaluation_error,
)
from penstock.plan import GroupPlan, JoinRequirement
from penstock.state import I64, Maintenance, Renumbering


class AggregateMember(WritingMember):
    """A query that groups the rows of a stream."""

    def __init__(
        self, id_: OperatorId, need: JoinRequirement, outlet: Outlet, renaming: Mapping[str, str], plan: GroupPlan
    ) -> None:
        super().__init__(id_, need, outlet, renaming, CHANGES)
        inputs = dict(need.outputs)
        self.keys = tuple(inputs[f"{place}"] for place in range(len(plan.keys)))
        assert need.common_lifetime is not None
        self.next_end: int | None = None
        self.aggregates = WindowAggregates(
            need.common_lifetime,
            tuple(
                replace(each, args=tuple(inputs[plan.input_names[arg]] for arg in each.args))
                for each in plan.aggregates
            ),
            tuple((name, plan.to_group_columns(expr)) for name, expr in plan.items),
            None if plan.having is None else plan.to_group_columns(plan.having),
        )  # fmt: skip

    def find_next_change(self) -> int | None:
        return self.next_end

    def count_living(self) -> int:
        return 0

    def write(self, matches: MatchBatch | None, until: int, late_ending: Sequence[int]) -> None:
        """Its rows are written by its `MemberAggregation`."""

    def write_rows(self, batch: Batch) -> None:
        self.emitted += len(batch)
        self._outlet.write(batch)

    def renumber(self, renumbered: Mapping[str, Renumbering], late_ending: Sequence[str]) -> None:
        """Its rows are in a history of their own."""


@dataclass
class MemberAggregation:
    """The members of one filter group with the same keys, and their aggregation once it was built."""

    group: FilterGroup
    members: tuple[AggregateMember, ...]
    running: SharedAggregation | None = None
    _served: tuple[AggregateMember, ...] = ()
    """The members that `running` was built for."""

    @property
    def keys(self) -> tuple[Expr, ...]:
        return self.members[0].keys

    @property
    def living(self) -> tuple[AggregateMember, ...]:
        return tuple(member for member in self.members if member.find_failure() is None)

    def build(self, stored: MatchBatch, done: int, maintenance: Maintenance) -> None:
        """Build the aggregation from the stored rows; the members have seen those up to `done`."""
        while members := self.living:
            running = SharedAggregation(self.keys, [each.aggregates for each in members], done, maintenance)
            found = self._read_inputs(running, stored)
            if found is not None:
                running.load(*found)
                self.running, self._served = running, members
                self._set_next_ends()
                return
        self.running = None

    def apply(self, matches: MatchBatch | None, until: int) -> None:
        """Write the members' rows up to an instant. If members stop, the aggregation must be built again."""
        if self.running is None:
            return
        found = _NO_ROWS if matches is None else self._read_inputs(self.running, matches)
        if found is None:
            self.running = None
            return
        for member, batch in zip(self._served, self.running.apply(*found, until), strict=True):
            if member.find_failure() is not None:
                continue
            if isinstance(batch, Exception):
                member.failure = make_evaluation_error(member.name, batch)
            elif batch is not None:
                member.write_rows(batch)
        self._set_next_ends()
        if self.living != self._served:
            self.running = None

    def _set_next_ends(self) -> None:
        if self.running is not None:
            for member, due in zip(self._served, self.running.find_next_ends(), strict=True):
                member.next_end = due

    def _read_inputs(self, running: SharedAggregation, matches: MatchBatch) -> tuple[I64, dict[Expr, pa.Array]] | None:
        """The times and inputs of the group's rows; None if they cannot be evaluated for members, which stop then."""
        places = matches.select_younger(self.group, None)
        count = len(matches) if places is None else places.size
        read = matches.make_reader(places)
        columns: dict[Expr, pa.Array] = {}
        for expr in running.inputs:
            try:
                columns[expr] = read(expr) if isinstance(expr, Column) else evaluate(expr, read, count)
            except MemoryError:
                raise
            except EVALUATION_ERRORS as error:
                for member in self.living:
                    if expr in dict(member.need.outputs).values():
                        member.failure = make_evaluation_error(member.name, error)
                return None
        return matches.rows.born if places is None else matches.rows.born[places], columns


_NO_ROWS: tuple[I64, dict[Expr, pa.Array]] = np.empty(0, np.int64), {}


def divide_members(members: Sequence[AggregateMember], known: Sequence[MemberAggregation]) -> list[MemberAggregation]:
    """The aggregations of members; those that have the same members as before go on."""
    divided: dict[tuple[FilterGroup, tuple[Expr, ...]], list[AggregateMember]] = {}
    for member in members:
        divided.setdefault((member.filter_group, member.keys), []).append(member)
    before = {(each.group, each.members): each for each in known}
    found = (MemberAggregation(group, tuple(each)) for (group, _), each in divided.items())
    return [before.get((each.group, each.members), each) for each in found]
