"""Stages: the parts of a running query in the graph, what they tell of themselves, and how they rest.

A stage is an operator of the graph, or a place in a join that queries share. It rests as base data only (windows,
waiting tuples, unread tuples of arcs between operators); `revive` rebuilds everything else from the rows that live,
stage by stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from penstock.engine.join_registry import dump_join, revive_join
from penstock.graph.buffers import Buffer, Reader
from penstock.graph.graph import Node
from penstock.join.join_metrics import notes
from penstock.join.match_batch import Harvest
from penstock.join.operator import JoinOperator, Migration
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import Slice
from penstock.ops.aggregate.operator import AggregateOperator, SlidingAggregateOperator
from penstock.ops.changelog import as_batch, as_table, undo
from penstock.ops.difference import DifferenceOperator
from penstock.ops.distinct import DistinctOperator
from penstock.ops.emit import DStreamOperator, IStreamOperator, RStreamOperator
from penstock.ops.protocol import Batch
from penstock.ops.sequence.operator import SequenceOperator
from penstock.ops.union import UnionOperator
from penstock.plan.explain import Properties, duration_text
from penstock.plan.physical import JoinPlan
from penstock.plan.query import JoinPart
from penstock.plan.tree import Eddy, Outline, Tree, fixed, grafted, leaves, renamed, subtrees
from penstock.state.kernels import ALWAYS

_SLICES_TOLD = 10

Told = dict[tuple[JoinOperator, frozenset[str] | None], int]
"""The numbers of joins that were dumped; those who read only a node of one rest apart, as a join of their own."""


@dataclass(frozen=True)
class Rest:
    """A stage at rest: plain values and tables."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def but(self, **values: Any) -> Rest:
        """With some values more."""
        return Rest({**self.values, **values}, self.tables)


class Stage(Protocol):
    """A part of a query in the graph."""

    @property
    def node(self) -> Node: ...

    @property
    def inputs(self) -> tuple[Stage, ...]: ...

    @property
    def outlet(self) -> Buffer: ...

    def told(self) -> dict[str, object]:
        """The metrics of its operator, as the query sees them."""

    def dump(self, shared: Told) -> Rest:
        """`shared` numbers the joins that were dumped already."""

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:
        """Come back from a dump, given the living rows of the inputs; returns those of the stage, None if unknown."""


@dataclass(frozen=True)
class JoinStage:
    """A query's place in a join over its sources, which others may share."""

    node: Node
    part: JoinPart
    join: JoinOperator
    member: Member
    buffer: Buffer | None
    """Where the member writes; None if it shows its rows when asked."""
    inputs: tuple[Stage, ...] = ()

    @property
    def outlet(self) -> Buffer:
        assert self.buffer is not None, "nothing is read behind a query that shows its rows when asked"
        return self.buffer

    @property
    def own(self) -> dict[str, str]:
        """The query's alias for each of the join's."""
        return {theirs: mine for mine, theirs in self.member.renaming.items()}

    def tree(self) -> Outline:
        """The shape of the join in the query's own aliases."""
        tapped = self.join.tree.tapped if self.member.need.scope is not None else None
        return renamed(self.join.tree.plan.tree if tapped is None else tapped.plan.tree, self.own)

    def planned(self, tree: Outline) -> JoinPlan:
        """The plan of the join in another shape, given in the query's own aliases."""
        shape = renamed(tree, self.member.renaming)
        if self.member.need.scope is not None:
            shape = grafted(fixed(self.join.tree.plan.tree), fixed(shape))
        return self.join.group.sharing.plan(shape)

    def migrate(self, tree: Outline, how: Migration) -> None:
        """Go on with another shape, given in the query's own aliases, for all who share the join."""
        self.join.migrate(self.planned(tree), how)

    def breaks(self, tree: Outline) -> bool:
        """Whether others read a node that the join has not in another shape, given in the query's own aliases."""
        tap = self.join.tree.tap
        if tap is None or self.member.need.scope is not None:
            return tap is not None and isinstance(tree, Eddy)
        nodes = () if isinstance(tree, Eddy) else subtrees(renamed(tree, self.member.renaming))
        return tap not in {frozenset(leaves(node)) for node in nodes}

    def notes(self, allowances: Mapping[Tree, str]) -> dict[str, Properties]:
        """What the parts of the join keep and did, by their text in the query's own aliases, and how they may probe."""
        found = notes(self.join.tree, self.own)
        for tree, allowed in allowances.items():
            name = str(renamed(tree, self.own))
            found[name] = (*found.get(name, ()), ("probes", allowed))
        return found

    def told(self) -> dict[str, object]:
        own_figures = {
            "living": len(self.member.lives),
            "emitted": self.join.group.emitted(self.member),
            "stale": self.member.stale,
            "complete_since": None if self.member.complete_since == ALWAYS else self.member.complete_since,
        }
        return {**self.join.metrics(self.own), **own_figures}

    def slices(self) -> list[Slice]:
        """The slices of the join, with the query's own aliases."""
        own = self.own
        return [
            replace(each, rows={own[alias]: rows for alias, rows in each.rows.items() if alias in own})
            for each in self.join.group.slices(self.join.done)
        ]

    def told_taps(self) -> Iterator[str]:
        """Who reads a node of the join, as lines."""
        tapped, members = self.join.tree.tapped, self.join.group.members
        if tapped is None:
            return
        readers = _listed([member.name for member in members if member.need.scope is not None])
        if self.member.need.scope is None:
            yield f"{renamed(tapped.plan.tree, self.own)} is read by {readers}"
        else:
            whole = _listed([member.name for member in members if member.need.scope is None])
            yield f"reads a node of the join of {whole}; it is read by {readers}"

    def told_slices(self, time_type: pa.DataType) -> Iterator[str]:
        """The slices as lines: the first ones, and how many more there are."""
        found = self.slices()
        for each in found[:_SLICES_TOLD]:
            ages = f"{duration_text(each.low, time_type)} to {duration_text(each.high, time_type)}"
            held = ", ".join(f"{alias} {rows}" for alias, rows in each.rows.items())
            yield f"age {ages}: tuples {held}; results {each.results}; up to here read {_listed(each.readers)}"
        if len(found) > _SLICES_TOLD:
            yield f"and {len(found) - _SLICES_TOLD} slices more"

    def results(self, harvests: Sequence[Harvest]) -> list[Batch]:
        """What the member shows of harvests."""
        shown = (self.member.shown(each) for each in harvests if each.scope == self.member.need.scope)
        return [batch for batch in shown if batch is not None]

    def dump(self, shared: Told) -> Rest:
        """The join as it rests is told by the first of those who share it."""
        place = self.join, self.member.need.scope
        if place in shared:
            return Rest({"seat": shared[place]})
        shared[place] = len(shared)
        values, tables = dump_join(self.join, self.member, self.part)
        return Rest({"seat": shared[place], **values}, tables)

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:  # noqa: ARG002
        if "members" in rest.values:
            revive_join(self.join, rest.values, rest.tables)
        return self.join.living(self.member)


def _listed(members: Sequence[str]) -> str:
    """The queries of some members, the first of them by name."""
    names = [name.rpartition(": ")[0] for name in members]
    more = f" and {len(names) - _SLICES_TOLD} more" if len(names) > _SLICES_TOLD else ""
    return ", ".join(names[:_SLICES_TOLD]) + more


@dataclass(frozen=True)
class _OwnStage:
    """A stage that is an operator of its own."""

    node: Node

    @property
    def outlet(self) -> Buffer:
        return self.node.outlet

    def told(self) -> dict[str, object]:
        return self.node.operator.metrics()


@dataclass(frozen=True)
class SequenceStage(_OwnStage):
    """One step of a sequence; `readers` are those of its streams."""

    step: SequenceOperator
    readers: tuple[Reader, ...]
    inputs: tuple[Stage, ...]
    arcs: tuple[Reader, ...]

    def dump(self, shared: Told) -> Rest:  # noqa: ARG002
        values = {"unread": [reader.waiting() for reader in self.readers], "since": self.step.since()}
        return Rest({**values, **_frontiers(self.arcs)}, {**self.step.dump(), **_unread(self.arcs)})

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:
        for reader, rows in zip(self.readers, rest.values["unread"], strict=True):
            reader.rewind(rows)
        _restock(self.arcs, rest, living)
        return self.step.revive(rest.tables, rest.values["since"])


@dataclass(frozen=True)
class PipeStage(_OwnStage):
    """An operator that reads other stages only."""

    inputs: tuple[Stage, ...]
    arcs: tuple[Reader, ...]

    def dump(self, shared: Told) -> Rest:  # noqa: ARG002
        return Rest(_frontiers(self.arcs), _unread(self.arcs))

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:
        before = _restock(self.arcs, rest, living)
        if None in before:
            return None
        known = [batch for batch in before if batch is not None]
        match self.node.operator:
            case UnionOperator() | DifferenceOperator() as merging:
                return merging.revive(known)
            case AggregateOperator() | SlidingAggregateOperator() | DistinctOperator() as changing:
                return changing.revive(known[0])
            case IStreamOperator() | DStreamOperator() | RStreamOperator() as emitting:
                emitting.revive(known[0])
        return None


def _unread(arcs: Sequence[Reader]) -> dict[str, pa.Table]:
    """What waits on arcs between the operators of a query."""
    waiting = {f"arc {place}": arc.buffer.unread() for place, arc in enumerate(arcs)}
    return {name: as_table(batch) for name, batch in waiting.items() if batch is not None}


def _frontiers(arcs: Sequence[Reader]) -> dict[str, list[int]]:
    """How far the producers of arcs have come: what merges them by time goes on from there."""
    return {"frontiers": [arc.frontier for arc in arcs]}


def _restock(arcs: Sequence[Reader], rest: Rest, living: Sequence[Batch | None]) -> list[Batch | None]:
    """Put back what waited on the arcs; returns what lived, by input, when the reader stopped."""
    for arc, frontier in zip(arcs, rest.values["frontiers"], strict=True):
        arc.buffer.advance(frontier)
    before = list(living)
    for place, (arc, rows) in enumerate(zip(arcs, living, strict=True)):
        table = rest.tables.get(f"arc {place}")
        if table is None:
            continue
        unread = as_batch(table)
        if rows is not None:
            before[place], unread = undo(rows, unread)
        arc.buffer.restock(unread)
    return before
