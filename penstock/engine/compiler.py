"""From the plan of a query to operators in the graph.

A plan is a tree of parts; each becomes a stage: an operator (a sequence: one a step) behind the stages of its inputs.
A stage below others writes changes: rows that enter with +1 and, where `ends` are asked for, rows that leave with -1,
and with `whole` only whole instants. A stage asked for no ends writes the rows that enter, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import pyarrow as pa

from penstock.cql.bound import Emit, Source
from penstock.engine.join_registry import JoinRegistry, SharingTerms
from penstock.engine.parts import JoinQueryPart, OperatorQueryPart, QueryPart, SequenceQueryPart
from penstock.graph.buffers import Buffer, Reader
from penstock.graph.graph import Graph, Node
from penstock.join.demand.gate import DemandFilter
from penstock.join.join_inputs import JoinInput
from penstock.join.operator import JoinOperator, JoinSpec
from penstock.join.sharing.member import make_member
from penstock.join.sharing.shared_needs import StartPoint
from penstock.ops.aggregate.operator import AggregateOperator, SlidingAggregateOperator
from penstock.ops.difference import DifferenceOperator
from penstock.ops.distinct import DistinctOperator
from penstock.ops.emit import DerivedStreamOperator, DStreamOperator, IStreamOperator, RStreamOperator
from penstock.ops.protocol import Operator
from penstock.ops.sequence.operator import SequenceInput, SequenceOperator
from penstock.ops.source import LatentSource, SourceOperator
from penstock.ops.time_merge import clamp_time
from penstock.ops.union import UnionOperator
from penstock.plan.join_sharing import derive_requirement
from penstock.plan.query import DifferencePart, DistinctPart, GroupPart, JoinPart, PlanPart, SequencePart, UnionPart
from penstock.state.kernels import ALWAYS, FOREVER
from penstock.state.maintenance import Maintenance
from penstock.state.windows import get_lifetime


@dataclass
class Compiler:
    """Places the operators of one query.

    `classes` are the user-defined aggregates, `groups` the joins it may share; `planned`: its plan was asked for;
    `history`: it looks back at what the windows of a join it shares hold.
    """

    name: str
    graph: Graph
    tables: Mapping[str, pa.Table]
    state: str
    demand: DemandFilter
    aggregate_classes: Mapping[str, type]
    join_registry: JoinRegistry
    plan_given: bool
    history: bool
    maintenance: Maintenance
    parts: list[QueryPart] = field(default_factory=list)

    def compile_query(self, part: PlanPart, emit: Emit, *, read_on: bool) -> QueryPart:
        """The stage whose rows are the query's results; `read_on` if operators will read them."""
        if emit == "istream":
            if isinstance(part, JoinPart):
                return self._compile_join(part, ends=False, whole=False, pull=not read_on)
            return self._compile_part(part, ends=False, whole=False)
        below = self._compile_part(part, ends=True, whole=emit == "rstream")
        kind = DStreamOperator if emit == "dstream" else RStreamOperator
        return self._append_operator(emit, [below], lambda id_, arcs, outlet: kind(id_, arcs[0], outlet))

    def compile_derived(self, stage: QueryPart, operator: Any) -> QueryPart:
        """The operator others read a query's results from."""
        return self._append_operator("", [stage], lambda _, arcs, outlet: operator(arcs[0], outlet))

    def _compile_part(self, part: PlanPart, *, ends: bool, whole: bool) -> QueryPart:
        match part:
            case JoinPart():
                return self._compile_join(part, ends, whole)
            case SequencePart():
                return self._compile_sequence(part, ends, whole)
            case UnionPart():
                below = [self._compile_part(each, ends=ends, whole=whole) for each in part.inputs]
                names = [name for name, _ in part.columns]
                return self._append_operator(
                    "union", below, lambda id_, arcs, outlet: UnionOperator(id_, arcs, outlet, names, whole=whole)
                )
        stage = self._compile_changing(part)
        if ends:
            return stage
        return self._append_operator(
            "istream", [stage], lambda id_, arcs, outlet: IStreamOperator(id_, arcs[0], outlet)
        )

    def _compile_changing(self, part: GroupPart | DistinctPart | DifferencePart) -> QueryPart:
        """Stages that always write ends: their rows leave when others come."""
        if isinstance(part, DifferencePart):
            sides = [self._compile_part(side, ends=True, whole=True) for side in part.inputs]

            def subtracting(id_: str, arcs: list[Reader], outlet: Buffer) -> Operator:
                return DifferenceOperator(id_, arcs, outlet, dict(part.columns), part.order, self.maintenance)

            return self._append_operator("except", sides, subtracting)
        below = [self._compile_part(part.input, ends=True, whole=True)]
        if isinstance(part, DistinctPart):
            return self._append_operator(
                "distinct",
                below,
                lambda id_, arcs, outlet: DistinctOperator(id_, arcs[0], outlet, dict(part.columns), self.maintenance),
            )
        plan = part.plan

        def grouping(id_: str, arcs: list[Reader], outlet: Buffer) -> Operator:
            if plan.slide is None:
                return AggregateOperator(id_, arcs[0], outlet, plan, self.aggregate_classes, self.maintenance)
            return SlidingAggregateOperator(
                id_, arcs[0], outlet, plan, self.aggregate_classes, plan.slide, self.maintenance
            )

        return self._append_operator("aggregate", below, grouping)

    def _compile_join(self, part: JoinPart, ends: bool, whole: bool, *, pull: bool = False) -> QueryPart:
        """A join of its own, or a place in one that fits. `asked`: its rows may be shown when somebody asks."""
        producers = {s.alias: self.graph[f"source {s.relation.name}"] for s in part.sources if not s.is_table}
        agreed, counting = SharingTerms(self.state, self.demand, whole), _find_count_starts(part, producers)
        host = self.join_registry.find_match(part, agreed, counting, plan_given=self.plan_given)
        if host is None and pull:
            host = self.join_registry.find_nested_match(part, agreed, counting, plan_given=self.plan_given)
        renaming = {source.alias: source.alias for source in part.sources} if host is None else host.renaming
        needed = derive_requirement(part, renaming, nested=host is not None and host.nested)
        plain = needed.common_lifetime is not None and not needed.residuals and not needed.freshness_checks
        buffer = None if pull and plain else Buffer()
        member = make_member(self._make_id("join"), needed, buffer, renaming, emits_ends=ends)
        since = _make_since({renaming[alias]: producer for alias, producer in producers.items()})
        if host is not None:
            host.join.add_member(member, since, history=self.history)
            return self._add_part(JoinQueryPart(host.node, part, host.join, member, buffer))
        readers = {alias: producer.outlet.open() for alias, producer in producers.items()}
        arrivals = [JoinInput(alias, reader) for alias, reader in readers.items()]
        tables = {source.alias: self.tables[source.relation.name] for source in part.sources if source.is_table}
        id_ = self._make_unique_id(member.name)
        spec = JoinSpec(id_, part, self.state, self.demand, self.maintenance, strict=whole)
        join = JoinOperator(spec, member, since, arrivals, tables)
        node = self.graph.add(join, Buffer(), {readers[alias]: producers[alias] for alias in readers})
        self.join_registry.add(node, join, whole)
        return self._add_part(JoinQueryPart(node, part, join, member, buffer))

    def _compile_sequence(self, part: SequencePart, ends: bool, whole: bool) -> QueryPart:
        stage: QueryPart | None = None
        for place, step in enumerate(part.steps):
            outlet = Buffer()
            last = step.outputs is not None
            readers: dict[Reader, Node] = {}
            arcs: tuple[Reader, ...] = ()
            if stage is None:
                left = self._open_input(part.sources[0], part.filters[0], readers)
            else:
                arcs = (stage.outlet.open(),)
                left = SequenceInput(arcs[0])
            right = self._open_input(part.sources[place + 1], part.filters[place + 1], readers)
            operator = SequenceOperator(
                self._make_unique_id(self._make_id("sequence")),
                step,
                left,
                right,
                outlet,
                ends=ends and last,
                strict=whole and last,
                maintenance=self.maintenance,
            )
            producers = {**({arcs[0]: stage.node} if stage is not None else {}), **readers}
            node = self.graph.add(operator, outlet, producers)
            below = () if stage is None else (stage,)
            stage = self._add_part(SequenceQueryPart(node, operator, tuple(readers), below, arcs))
        assert stage is not None
        return stage

    def _open_input(self, source: Source, filters: tuple[Any, ...], readers: dict[Reader, Node]) -> SequenceInput:
        producer = self.graph[f"source {source.relation.name}"]
        reader = producer.outlet.open()
        readers[reader] = producer
        return SequenceInput(reader, source.alias, filters, get_lifetime(source.window), _count_arrivals(producer))

    def _append_operator(self, what: str, below: Sequence[QueryPart], make: Any) -> QueryPart:
        arcs = [stage.outlet.open() for stage in below]
        outlet = Buffer()
        operator: Operator = make(self._make_unique_id(self._make_id(what)), arcs, outlet)
        node = self.graph.add(operator, outlet, dict(zip(arcs, (stage.node for stage in below), strict=True)))
        return self._add_part(OperatorQueryPart(node, tuple(below), tuple(arcs)))

    def _add_part(self, stage: QueryPart) -> QueryPart:
        self.parts.append(stage)
        return stage

    def _make_id(self, what: str) -> str:
        """A name for an operator, numbered if the query has several of its kind."""
        first = f"{self.name}: {what}"
        names = [stage.member.name if isinstance(stage, JoinQueryPart) else stage.node.id for stage in self.parts]
        taken = sum(name == first or name.startswith(f"{first} ") for name in names)
        return f"{first} {taken + 1}" if taken else first

    def _make_unique_id(self, id_: str) -> str:
        """A name that no operator has: a join keeps the name of the query that founded it while others share it."""
        numbered = (f"{id_} {number}" for number in count(2))
        return next(name for name in chain([id_], numbered) if name not in self.graph)


def _count_arrivals(producer: Node) -> int:
    operator = producer.operator
    return operator.arrival_count if isinstance(operator, (SourceOperator, DerivedStreamOperator)) else 0


def _find_count_starts(part: JoinPart, producers: Mapping[str, Node]) -> dict[str, int]:
    """The items with a ROWS window on a stream that holds tuples back, and the first arrival that counts for them.

    What is held back does not count for a new query, but may stand between tuples that do.
    """
    counted = [s.alias for s in part.sources if s.window is not None and s.window.kind == "rows"]
    operators = {alias: producers[alias].operator for alias in counted}
    return {
        alias: source.arrival_count
        for alias, source in operators.items()
        if isinstance(source, SourceOperator) and source.held_rows() is not None
    }


def _make_since(producers: Mapping[str, Node]) -> StartPoint:
    """From now on: what has arrived so far does not count, also what its source still holds back."""
    numbers = {alias: _count_arrivals(producer) for alias, producer in producers.items()}
    drained = [_find_newest_time(producer) for alias, producer in producers.items() if numbers[alias]]
    return StartPoint(tuple(sorted(numbers.items())), max(drained, default=int(ALWAYS)))


def _find_newest_time(producer: Node) -> int:
    """A time not before that of any tuple that has arrived; those of a latent stream have none yet."""
    operator = producer.operator
    if isinstance(operator, LatentSource):
        return int(FOREVER)
    if isinstance(operator, SourceOperator):
        return clamp_time(operator.frontier + operator.stream.lateness)
    return producer.outlet.frontier
