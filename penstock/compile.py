"""From the plan of a query to operators in the graph.

A plan is a tree of parts; each becomes a stage: an operator (a sequence: one a step) behind the stages of its inputs.
A stage below others writes changes: rows that enter with +1 and, where `ends` are asked for, rows that leave with -1,
and with `whole` only whole instants. A stage asked for no ends writes the rows that enter, and nothing else.

Stages also rest: `dump` gives base data only (windows, waiting tuples, unread tuples of arcs between operators), and
`revive` rebuilds the rest from the rows that live, stage by stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from penstock.cql.bound import Emit, Source
from penstock.graph.buffers import Buffer, Reader
from penstock.graph.graph import Graph, Node
from penstock.ops.aggregate import AggregateOperator, SlidingAggregateOperator
from penstock.ops.changelog import as_batch, as_table, undo
from penstock.ops.difference import DifferenceOperator
from penstock.ops.distinct import DistinctOperator
from penstock.ops.emit import DerivedStreamOperator, DStreamOperator, IStreamOperator, RStreamOperator
from penstock.ops.join import Arrivals, JoinOperator
from penstock.ops.join_tree import Policy
from penstock.ops.operator import Batch, Operator
from penstock.ops.sequence import SequenceInput, SequenceOperator
from penstock.ops.source import SourceOperator
from penstock.ops.union import UnionOperator
from penstock.plan.query import DifferencePart, DistinctPart, GroupPart, JoinPart, Part, SequencePart, UnionPart
from penstock.state.windows import lifetime


@dataclass(frozen=True)
class Rest:
    """A stage at rest: plain values and tables."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


class Stage(Protocol):
    """A part of a query in the graph."""

    @property
    def node(self) -> Node: ...

    @property
    def inputs(self) -> tuple[Stage, ...]: ...

    def dump(self) -> Rest: ...

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:
        """Come back from a dump, given the living rows of the inputs; returns those of the stage, None if unknown."""


@dataclass(frozen=True)
class JoinStage:
    """A join over its sources."""

    node: Node
    join: JoinOperator
    inputs: tuple[Stage, ...] = ()

    def dump(self) -> Rest:
        return Rest({"unread": self.join.unread(), "since": self.join.since()}, self.join.dump())

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:  # noqa: ARG002
        return self.join.revive(rest.tables, rest.values["unread"], rest.values["since"])


@dataclass(frozen=True)
class SequenceStage:
    """One step of a sequence; `readers` are those of its streams."""

    node: Node
    step: SequenceOperator
    readers: tuple[Reader, ...]
    inputs: tuple[Stage, ...]
    arcs: tuple[Reader, ...]

    def dump(self) -> Rest:
        values = {"unread": [reader.waiting() for reader in self.readers], "since": self.step.since()}
        return Rest(values, {**self.step.dump(), **_unread(self.arcs)})

    def revive(self, rest: Rest, living: Sequence[Batch | None]) -> Batch | None:
        for reader, rows in zip(self.readers, rest.values["unread"], strict=True):
            reader.rewind(rows)
        _restock(self.arcs, rest, living)
        return self.step.revive(rest.tables, rest.values["since"])


@dataclass(frozen=True)
class PipeStage:
    """An operator that reads other stages only."""

    node: Node
    inputs: tuple[Stage, ...]
    arcs: tuple[Reader, ...]

    def dump(self) -> Rest:
        return Rest({}, _unread(self.arcs))

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


def _restock(arcs: Sequence[Reader], rest: Rest, living: Sequence[Batch | None]) -> list[Batch | None]:
    """Put back what waited on the arcs; returns what lived, by input, when the reader stopped."""
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


@dataclass
class Compiler:
    """Places the operators of one query. `classes` are the user-defined aggregates."""

    name: str
    graph: Graph
    tables: Mapping[str, pa.Table]
    policy: Policy
    classes: Mapping[str, type]
    stages: list[Stage] = field(default_factory=list)

    def query(self, part: Part, emit: Emit) -> Stage:
        """The stage whose rows are the query's results."""
        if emit == "istream":
            return self._part(part, ends=False, whole=False)
        below = self._part(part, ends=True, whole=emit == "rstream")
        kind = DStreamOperator if emit == "dstream" else RStreamOperator
        return self._behind(emit, [below], lambda id_, arcs, outlet: kind(id_, arcs[0], outlet))

    def derived(self, stage: Stage, operator: Any) -> Stage:
        """The operator others read a query's results from."""
        return self._behind("", [stage], lambda _, arcs, outlet: operator(arcs[0], outlet))

    def _part(self, part: Part, *, ends: bool, whole: bool) -> Stage:
        match part:
            case JoinPart():
                return self._join(part, ends, whole)
            case SequencePart():
                return self._sequence(part, ends, whole)
            case UnionPart():
                below = [self._part(each, ends=ends, whole=whole) for each in part.inputs]
                names = [name for name, _ in part.columns]
                return self._behind(
                    "union", below, lambda id_, arcs, outlet: UnionOperator(id_, arcs, outlet, names, whole=whole)
                )
        stage = self._changing(part)
        if ends:
            return stage
        return self._behind("istream", [stage], lambda id_, arcs, outlet: IStreamOperator(id_, arcs[0], outlet))

    def _changing(self, part: GroupPart | DistinctPart | DifferencePart) -> Stage:
        """Stages that always write ends: their rows leave when others come."""
        if isinstance(part, DifferencePart):
            sides = [self._part(side, ends=True, whole=True) for side in part.inputs]

            def subtracting(id_: str, arcs: list[Reader], outlet: Buffer) -> Operator:
                return DifferenceOperator(id_, arcs, outlet, dict(part.columns), part.order)

            return self._behind("except", sides, subtracting)
        below = [self._part(part.input, ends=True, whole=True)]
        if isinstance(part, DistinctPart):
            return self._behind(
                "distinct", below, lambda id_, arcs, outlet: DistinctOperator(id_, arcs[0], outlet, dict(part.columns))
            )
        plan = part.plan

        def grouping(id_: str, arcs: list[Reader], outlet: Buffer) -> Operator:
            if plan.slide is None:
                return AggregateOperator(id_, arcs[0], outlet, plan, self.classes)
            return SlidingAggregateOperator(id_, arcs[0], outlet, plan, self.classes, plan.slide)

        return self._behind("aggregate", below, grouping)

    def _join(self, part: JoinPart, ends: bool, whole: bool) -> Stage:
        producers = {s.alias: self.graph[f"source {s.relation.name}"] for s in part.sources if not s.is_table}
        readers = {alias: producer.outlet.open() for alias, producer in producers.items()}
        arrivals = [Arrivals(alias, reader, _arrived(producers[alias])) for alias, reader in readers.items()]
        tables = {source.alias: self.tables[source.relation.name] for source in part.sources if source.is_table}
        outlet = Buffer()
        join = JoinOperator(
            self._id("join"), part.plan, dict(part.outputs), arrivals, tables, outlet,
            ends=ends, strict=whole, policy=self.policy,
        )  # fmt: skip
        node = self.graph.add(join, outlet, {readers[alias]: producers[alias] for alias in readers})
        return self._added(JoinStage(node, join))

    def _sequence(self, part: SequencePart, ends: bool, whole: bool) -> Stage:
        stage: Stage | None = None
        for place, step in enumerate(part.steps):
            outlet = Buffer()
            last = step.outputs is not None
            readers: dict[Reader, Node] = {}
            arcs: tuple[Reader, ...] = ()
            if stage is None:
                left = self._item(part.sources[0], part.filters[0], readers)
            else:
                arcs = (stage.node.outlet.open(),)
                left = SequenceInput(arcs[0])
            right = self._item(part.sources[place + 1], part.filters[place + 1], readers)
            operator = SequenceOperator(
                self._id("sequence"), step, left, right, outlet, ends=ends and last, strict=whole and last
            )
            producers = {**({arcs[0]: stage.node} if stage is not None else {}), **readers}
            node = self.graph.add(operator, outlet, producers)
            below = () if stage is None else (stage,)
            stage = self._added(SequenceStage(node, operator, tuple(readers), below, arcs))
        assert stage is not None
        return stage

    def _item(self, source: Source, filters: tuple[Any, ...], readers: dict[Reader, Node]) -> SequenceInput:
        producer = self.graph[f"source {source.relation.name}"]
        reader = producer.outlet.open()
        readers[reader] = producer
        return SequenceInput(reader, source.alias, filters, lifetime(source.window), _arrived(producer))

    def _behind(self, what: str, below: Sequence[Stage], make: Any) -> Stage:
        arcs = [stage.node.outlet.open() for stage in below]
        outlet = Buffer()
        operator: Operator = make(self._id(what), arcs, outlet)
        node = self.graph.add(operator, outlet, dict(zip(arcs, (stage.node for stage in below), strict=True)))
        return self._added(PipeStage(node, tuple(below), tuple(arcs)))

    def _added(self, stage: Stage) -> Stage:
        self.stages.append(stage)
        return stage

    def _id(self, what: str) -> str:
        """A name for an operator, numbered if the query has several of its kind."""
        first = f"{self.name}: {what}"
        taken = sum(stage.node.id == first or stage.node.id.startswith(f"{first} ") for stage in self.stages)
        return f"{first} {taken + 1}" if taken else first


def _arrived(producer: Node) -> int:
    operator = producer.operator
    return operator.arrived if isinstance(operator, (SourceOperator, DerivedStreamOperator)) else 0
