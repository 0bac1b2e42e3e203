"""From the plan of a query to operators in the graph.

A plan is a tree of parts. Each becomes an operator (a sequence: one operator a step) behind the operators of its
inputs. An operator below others writes changes: rows that enter with sign +1 and, with `ends`, rows that leave with
sign -1; with `whole` only whole instants. Without `ends` it writes the rows that enter and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from types import MappingProxyType

from penstock.cql import Emit, Source, Stream, View
from penstock.engine.checked_query import CheckedQuery
from penstock.engine.join_placer import JoinChoice, JoinPlacer
from penstock.engine.join_registry import JoinPlacement
from penstock.engine.parts import (
    BufferedJoinPart,
    GroupedJoinPart,
    JoinQueryPart,
    JoinSubqueries,
    OperatorQueryPart,
    PartOperator,
    QueryPart,
    ReadablePart,
)
from penstock.engine.query_output import BufferedOutput, DerivedOutput, PulledOutput, QueryOutput, ViewOutput
from penstock.engine.relations import Relations
from penstock.engine.streams import StreamNode, ViewNode
from penstock.errors import InternalError
from penstock.expr import Expr
from penstock.graph import Buffer, Graph, Node, Reader
from penstock.join import (
    AggregateMember,
    JoinOperator,
    Member,
    WritingMember,
    is_selection,
)
from penstock.ops import (
    CHANGES,
    INSERTS,
    AggregateOperator,
    DerivedStreamOperator,
    DifferenceOperator,
    DistinctOperator,
    DStreamOperator,
    EmitChangesOperator,
    FinalRowsOperator,
    FrameOperator,
    IStreamOperator,
    OperatorId,
    OuterJoinOperator,
    OutputMode,
    ProjectionOperator,
    RankOperator,
    Reports,
    RowReports,
    RStreamOperator,
    SequenceInput,
    SequenceOperator,
    SessionOperator,
    SetOperationOperator,
    SlidingAggregateOperator,
    TimedOuterJoinOperator,
    TimeReports,
    UnionOperator,
    ViewOperator,
    ViewReaderOperator,
    WindowCloseOperator,
    WindowOperator,
    can_be_sliced,
)
from penstock.plan import (
    DifferencePart,
    DistinctPart,
    FinalRowsPart,
    FramePart,
    GroupPart,
    JoinPart,
    OuterJoinPart,
    PlanPart,
    ProjectPart,
    RankPart,
    RelationPart,
    SequencePart,
    SetOperationPart,
    UnionPart,
    ViewPart,
    WindowPart,
    count_readers,
    groups_one_window,
    is_append_only,
)
from penstock.state import Maintenance

_EMIT_OPERATORS: Mapping[Emit, Callable[[str, Reader, Buffer], PartOperator]] = {
    "dstream": DStreamOperator,
    "rstream": RStreamOperator,
    "changes": EmitChangesOperator,
    "close": WindowCloseOperator,
}
MakeOperator = Callable[[str, list[Reader], Buffer], PartOperator]
"""Creates an operator, given its name in the graph, the readers of its inputs and its outlet."""


@dataclass(frozen=True)
class CompiledQuery:
    """The operators of a query: all parts, inputs first, and those of them that a new plan changes."""

    parts: tuple[QueryPart, ...]
    joins: tuple[JoinQueryPart, ...]
    differences: tuple[DifferenceOperator, ...]
    output: QueryOutput


@dataclass
class Compiler:
    """Adds the operators of one query to the graph. `joins` decides which running joins it shares."""

    spec: CheckedQuery
    graph: Graph
    relations: Relations
    joins: JoinPlacement
    maintenance: Maintenance
    _parts: list[QueryPart] = field(default_factory=list)
    _joins: list[JoinQueryPart] = field(default_factory=list)
    _differences: list[DifferenceOperator] = field(default_factory=list)
    _relations: dict[tuple[RelationPart, OutputMode], ReadablePart] = field(default_factory=dict)
    _view_readers: list[ViewReaderOperator] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._placer = JoinPlacer(self.spec, self.graph, self.relations, self.joins, self.maintenance)

    def compile_query(self) -> CompiledQuery:
        output = self._compile_output(self.spec.derived_stream)
        for reader in self._view_readers:  # after all readers of their outlets were opened
            reader.start()
        return CompiledQuery(tuple(self._parts), tuple(self._joins), tuple(self._differences), output)

    def _compile_output(self, stream: Stream | None) -> QueryOutput:
        if self.spec.view is not None:
            return self._compile_view(self.spec.view)
        if stream is not None:
            return self._compile_derived(self._compile_answer(), stream)
        if self.spec.query.emit == "istream" and isinstance(self.spec.plan, JoinPart):
            return self._compile_last_join(self.spec.plan)
        return BufferedOutput(self._compile_answer().outlet.open())

    def _compile_answer(self) -> ReadablePart:
        """The part whose rows are the results of the query."""
        emit, plan = self.spec.query.emit, self.spec.plan
        if emit == "istream":
            return self._compile_part(plan, INSERTS)
        mode = OutputMode(ends=True, whole=emit != "dstream", current=emit == "rstream")
        below = self._compile_part(plan, mode)
        kind = _EMIT_OPERATORS[emit]
        return self._append_operator(emit, [below], lambda id_, arcs, outlet: kind(id_, arcs[0], outlet))

    def _compile_derived(self, answer: ReadablePart, stream: Stream) -> DerivedOutput:
        """The operator that other queries read the results from."""
        arc, outlet = answer.outlet.open(), Buffer()
        writer = DerivedStreamOperator(stream, arc, outlet)
        node = self.graph.add(writer, outlet, {arc: answer.node})
        self._parts.append(OperatorQueryPart(self._make_id("stream"), node, writer, (answer,), (arc,)))
        return DerivedOutput(StreamNode(writer, node))

    def _compile_view(self, view: View) -> ViewOutput:
        """The operator that other queries read the answer from."""
        answer = self._compile_part(self.spec.plan, CHANGES)
        arc, outlet = answer.outlet.open(), Buffer()
        columns = {field.name: field.type for field in view.schema}
        writer = ViewOperator(view.name, arc, outlet, columns, self.maintenance)
        node = self.graph.add(writer, outlet, {arc: answer.node})
        self._parts.append(OperatorQueryPart(self._make_id("view"), node, writer, (answer,), (arc,)))
        return ViewOutput(ViewNode(writer, node))

    def _compile_view_reader(self, part: ViewPart) -> ReadablePart:
        view, id_, outlet = self.relations.views[part.name], self._make_id("read view"), Buffer()
        arc = view.node.outlet.open()
        reader = ViewReaderOperator(self._make_unique_name(id_), view.writer, arc, outlet)
        node = self.graph.add(reader, outlet, {arc: view.node})
        compiled = OperatorQueryPart(id_, node, reader, (), ())
        self._parts.append(compiled)
        self._view_readers.append(reader)
        return compiled

    def _compile_part(self, part: PlanPart, mode: OutputMode) -> ReadablePart:
        match part:
            case JoinPart():
                return self._compile_join(part, mode)
            case SequencePart():
                return self._compile_steps(part, len(part.steps) - 1, mode)
            case UnionPart():
                below = [self._compile_part(each, mode) for each in part.inputs]
                names = [name for name, _ in part.columns]
                return self._append_operator(
                    "union", below, lambda id_, arcs, outlet: UnionOperator(id_, arcs, outlet, names, whole=mode.whole)
                )
            case DifferencePart():
                return self._compile_inserts(self._compile_difference(part), mode)
            case OuterJoinPart():
                return self._compile_outer_join(part, mode)
            case FinalRowsPart():
                return self._compile_final_rows(part)
            case SetOperationPart():
                return self._compile_inserts(self._compile_set_operation(part), mode)
            case DistinctPart():
                return self._compile_inserts(self._compile_distinct(part), mode)
            case GroupPart() if not mode.ends and self._can_share_rows(part):
                return self._compile_shared_group(part)
            case GroupPart():
                return self._compile_inserts(self._compile_group(part), mode)
            case ProjectPart() | RelationPart() | FramePart() if is_append_only(part):
                return self._compile_appends(part, mode)
            case ProjectPart():
                return self._compile_projection(part, mode)
            case RankPart():
                return self._compile_inserts(self._compile_rank(part), mode)
            case WindowPart():
                return self._compile_inserts(self._compile_window(part), mode)
            case RelationPart():
                return self._compile_relation(part, mode)
            case ViewPart():
                return self._compile_inserts(self._compile_view_reader(part), mode)
        raise InternalError("UNKNOWN_PART", f"the compiler has no operator for a {type(part).__name__}")

    # ── operators that always write ends: a row leaves when another one enters ───────────────────────────────────

    def _compile_inserts(self, changing: ReadablePart, mode: OutputMode) -> ReadablePart:
        """Leave out the ends where the reader does not need them."""
        if mode.ends:
            return changing
        return self._append_operator(
            "istream", [changing], lambda id_, arcs, outlet: IStreamOperator(id_, arcs[0], outlet)
        )

    def _compile_distinct(self, part: DistinctPart) -> ReadablePart:
        below, columns = [self._compile_part(part.input, CHANGES)], dict(part.columns)
        return self._append_operator(
            "distinct",
            below,
            lambda id_, arcs, outlet: DistinctOperator(id_, arcs[0], outlet, columns, self.maintenance),
        )

    def _compile_difference(self, part: DifferencePart) -> ReadablePart:
        sides = [self._compile_part(side, CHANGES) for side in part.inputs]

        def make(id_: str, arcs: list[Reader], outlet: Buffer) -> PartOperator:
            operator = DifferenceOperator(id_, arcs, outlet, dict(part.columns), part.order, self.maintenance)
            self._differences.append(operator)
            return operator

        return self._append_operator("except", sides, make)

    def _compile_set_operation(self, part: SetOperationPart) -> ReadablePart:
        kind, columns = part.kind, dict(part.columns)
        return self._append_operator(
            kind,
            [self._compile_part(side, CHANGES) for side in part.inputs],
            lambda id_, arcs, outlet: SetOperationOperator(id_, arcs, outlet, kind, columns, self.maintenance),
        )

    def _compile_outer_join(self, part: OuterJoinPart, mode: OutputMode) -> ReadablePart:
        name = f"{part.kind} join"
        if part.has_known_ends:
            pairs = OutputMode(ends=mode.ends, whole=True, current=not part.final, end_times=True)
            kept = OutputMode(ends=False, whole=True, current=False, end_times=True)
            return self._append_operator(
                name,
                [self._compile_part(part.pairs, pairs), *(self._compile_part(each, kept) for each in part.kept)],
                lambda id_, arcs, outlet: TimedOuterJoinOperator(
                    id_, arcs, outlet, part, self.maintenance, emits_ends=mode.ends
                ),
            )
        below = [self._compile_part(each, CHANGES) for each in part.inputs]
        counted = self._append_operator(
            name, below, lambda id_, arcs, outlet: OuterJoinOperator(id_, arcs, outlet, part, self.maintenance)
        )
        return self._compile_inserts(counted, mode)

    def _compile_final_rows(self, part: FinalRowsPart) -> ReadablePart:
        return self._append_operator(
            "final rows",
            [self._compile_part(each, CHANGES) for each in part.inputs],
            lambda id_, arcs, outlet: FinalRowsOperator(id_, arcs, outlet, part, self.maintenance),
        )

    def _compile_group(self, part: GroupPart) -> ReadablePart:
        plan, classes = part.plan, self.relations.catalog.aggregates
        counted = None if plan.row_slide is None else self.relations.nodes[plan.row_slide.stream]
        since = 0 if counted is None else counted.writer.arrival_count
        rows = None if counted is None else counted.node.outlet.open()

        def make(id_: str, arcs: list[Reader], outlet: Buffer) -> PartOperator:
            reports: Reports
            if plan.row_slide is not None and rows is not None:
                reports = RowReports(rows, plan.row_slide.rows, since)
            elif plan.slide is not None:
                reports = TimeReports(plan.slide)
            else:
                return AggregateOperator(id_, arcs[0], outlet, plan, classes, self.maintenance)
            return SlidingAggregateOperator(id_, arcs[0], outlet, plan, classes, reports, self.maintenance)

        below = [self._compile_part(part.input, CHANGES)]
        streams = {} if counted is None or rows is None else {rows: counted.node}
        return self._append_operator("aggregate", below, make, streams)

    def _can_share_rows(self, part: GroupPart) -> bool:
        """Whether other queries can group the rows of the same join."""
        built_in = not any(each.function in self.relations.catalog.aggregates for each in part.plan.aggregates)
        return self.joins.shares_groups and built_in and groups_one_window(part) and all(
            map(can_be_sliced, part.plan.aggregates)
        )  # fmt: skip

    def _compile_shared_group(self, part: GroupPart) -> ReadablePart:
        """A group and its join as one operator, for all queries over the stream with windows in time."""
        below = part.input
        assert isinstance(below, JoinPart)
        choice, outlet = self._request_join(below, CHANGES, nested=False, grouped=True), Buffer()
        member = AggregateMember(self._make_id("aggregate"), choice.need, outlet, choice.renaming, part.plan)
        node, join = self._place_member(choice, member)
        placed = GroupedJoinPart(node, below, join, member, choice.subqueries, outlet)
        self._add_join(placed)
        return placed

    def _compile_relation(self, part: RelationPart, mode: OutputMode) -> ReadablePart:
        """The relation, computed once for all parts that read it."""
        if not mode.ends and count_readers(self.spec.plan, part) == 1:
            return self._compile_part(part.input, mode)
        if (part, CHANGES) not in self._relations:
            self._relations[part, CHANGES] = self._compile_part(part.input, CHANGES)
        return self._compile_inserts(self._relations[part, CHANGES], mode)

    def _compile_projection(self, part: ProjectPart, mode: OutputMode) -> ReadablePart:
        return self._append_operator(
            "select",
            [self._compile_part(part.input, CHANGES if mode.ends else INSERTS)],
            lambda id_, arcs, outlet: ProjectionOperator(id_, arcs[0], outlet, part.conditions, part.outputs),
        )

    # ── functions over frames, final rows: rows only come ────────────────────────────────────────────────────────

    def _compile_appends(self, part: PlanPart, mode: OutputMode) -> ReadablePart:
        """A part whose rows never leave: it writes no ends, and keeps its rows only if the mode asks for them."""
        match part:
            case OuterJoinPart():
                return self._compile_outer_join(part, INSERTS)
            case RelationPart():
                if (part, mode) not in self._relations:
                    self._relations[part, mode] = self._compile_appends(part.input, mode)
                return self._relations[part, mode]
            case ProjectPart():
                below = [self._compile_appends(part.input, mode)]
                return self._append_operator(
                    "select",
                    below,
                    lambda id_, arcs, outlet: ProjectionOperator(id_, arcs[0], outlet, part.conditions, part.outputs),
                )
            case FramePart():
                classes = self.relations.catalog.aggregates
                return self._append_operator(
                    "over",
                    [self._compile_appends(part.input, INSERTS)],
                    lambda id_, arcs, outlet: FrameOperator(
                        id_, arcs[0], outlet, part, mode, classes, self.maintenance
                    ),
                )
        return self._compile_part(part, mode)

    def _compile_rank(self, part: RankPart) -> ReadablePart:
        return self._append_operator(
            part.function,
            [self._compile_part(part.input, CHANGES)],
            lambda id_, arcs, outlet: RankOperator(id_, arcs[0], outlet, part, self.maintenance),
        )

    def _compile_window(self, part: WindowPart) -> ReadablePart:
        kind = SessionOperator if part.window.kind == "session" else WindowOperator
        return self._append_operator(
            part.window.kind,
            [self._compile_part(part.input, CHANGES)],
            lambda id_, arcs, outlet: kind(id_, arcs[0], outlet, part, self.maintenance),
        )

    # ── joins ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compile_join(self, part: JoinPart, mode: OutputMode) -> ReadablePart:
        return self._place_buffered(self._request_join(part, mode, nested=False), mode)

    def _compile_last_join(self, part: JoinPart) -> QueryOutput:
        """A join whose rows are the results. Rows that need no tests of their own are built when the user reads."""
        choice = self._request_join(part, INSERTS, nested=True)
        need = choice.need
        if need.common_lifetime is None or need.residuals or need.freshness_checks or need.clock_checks:
            return BufferedOutput(self._place_buffered(choice, INSERTS).outlet.open())
        member = Member(self._make_id("join"), need, choice.renaming, INSERTS)
        node, join = self._place_member(choice, member, Buffer() if is_selection(part, INSERTS) else None)
        placed = JoinQueryPart(node, part, join, member, choice.subqueries)
        self._add_join(placed)
        return PulledOutput(placed)

    def _request_join(self, part: JoinPart, mode: OutputMode, *, nested: bool, grouped: bool = False) -> JoinChoice:
        subqueries, place = self._compile_subqueries(part), len(self._joins)
        return self._placer.request(part, subqueries, place, mode, grouped=grouped, nested=nested)

    def _compile_subqueries(self, part: JoinPart) -> JoinSubqueries:
        parts = tuple(self._compile_part(each, CHANGES) for each in part.subqueries)
        return JoinSubqueries(part.subquery_aliases, parts, tuple(each.outlet.open() for each in parts))

    def _place_buffered(self, choice: JoinChoice, mode: OutputMode) -> BufferedJoinPart:
        outlet = Buffer()
        clock = self.relations.streams.read_clock
        member = WritingMember(self._make_id("join"), choice.need, outlet, choice.renaming, mode, clock)
        node, join = self._place_member(choice, member, outlet if is_selection(choice.request.part, mode) else None)
        placed = BufferedJoinPart(node, choice.request.part, join, member, choice.subqueries, outlet)
        self._add_join(placed)
        return placed

    def _add_join(self, part: JoinQueryPart) -> None:
        self._parts.append(part)
        self._joins.append(part)

    def _place_member(
        self, choice: JoinChoice, member: Member, outlet: Buffer | None = None
    ) -> tuple[Node, JoinOperator]:
        """Add the query to the join that it shares, or create one. `outlet`: that of a selection, which time bypasses.

        The outlets of a join are those of its members.
        """
        return self._placer.place(choice, member, self._make_unique_name(member.id), outlet)

    # ── sequences ────────────────────────────────────────────────────────────────────────────────────────────────

    def _compile_steps(self, part: SequencePart, place: int, mode: OutputMode) -> ReadablePart:
        """The steps of a sequence up to `place`: the pairs of a step are the left input of the next."""
        if place:
            left = _read_pairs(self._compile_steps(part, place - 1, INSERTS))
        else:
            left = self._read_stream(part.sources[0], part.filters[0])
        right = self._read_stream(part.sources[place + 1], part.filters[place + 1])
        id_, outlet = self._make_id("sequence"), Buffer()
        operator = SequenceOperator(
            self._make_unique_name(id_), part.steps[place], left.input, right.input, outlet, mode, self.maintenance
        )
        node = self.graph.add(operator, outlet, {left.reader: left.node, right.reader: right.node})
        arcs = (left.reader,) if left.pairs else ()
        compiled = OperatorQueryPart(id_, node, operator, left.pairs, arcs)
        self._parts.append(compiled)
        return compiled

    def _read_stream(self, source: Source, filters: tuple[Expr, ...]) -> _StepInput:
        stream = self.relations.nodes[source.relation.name]
        reader, since = stream.node.outlet.open(), stream.writer.arrival_count
        input_ = SequenceInput(reader, source.alias, filters, source.window.lifetime, since)
        return _StepInput(input_, reader, stream.node)

    # ── all others ───────────────────────────────────────────────────────────────────────────────────────────────

    def _append_operator(
        self,
        kind: str,
        below: Sequence[ReadablePart],
        make: MakeOperator,
        streams: Mapping[Reader, Node] = MappingProxyType({}),
    ) -> ReadablePart:
        """`streams`: readers of streams that it has besides those of the parts below it."""
        id_, outlet = self._make_id(kind), Buffer()
        arcs = [part.outlet.open() for part in below]
        operator = make(self._make_unique_name(id_), arcs, outlet)
        producers = dict(zip(arcs, (part.node for part in below), strict=True))
        node = self.graph.add(operator, outlet, {**producers, **streams})
        compiled = OperatorQueryPart(id_, node, operator, tuple(below), tuple(arcs))
        self._parts.append(compiled)
        return compiled

    def _make_id(self, kind: str) -> OperatorId:
        """An id that is unique in the query."""
        return OperatorId(self.spec.name, kind, 1 + sum(part.id.kind == kind for part in self._parts))

    def _make_unique_name(self, id_: OperatorId) -> str:
        """A name that is unique in the graph: a join keeps the name of its first query after that one was dropped."""
        numbered = (f"{id_} {number}" for number in count(2))
        return next(name for name in chain([str(id_)], numbered) if name not in self.graph)


@dataclass(frozen=True)
class _StepInput:
    """An input of a sequence step, and the node that it reads. `pairs`: the step before, if it reads one."""

    input: SequenceInput
    reader: Reader
    node: Node
    pairs: tuple[ReadablePart, ...] = ()


def _read_pairs(pairs: ReadablePart) -> _StepInput:
    reader = pairs.outlet.open()
    return _StepInput(SequenceInput(reader), reader, pairs.node, (pairs,))
