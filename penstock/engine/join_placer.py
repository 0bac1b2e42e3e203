"""How a query gets its joins: a place in a running join that it shares, or a join of its own.

A member starts from now on: rows that have arrived do not count, nor do those that a source still holds back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.cql import Stream
from penstock.engine.checked_query import CheckedQuery
from penstock.engine.join_registry import JoinMatch, JoinPlacement, JoinRequest, SharingTerms
from penstock.engine.parts import JoinSubqueries
from penstock.engine.relations import Relations
from penstock.engine.streams import StreamNode
from penstock.graph import Buffer, Graph, Node
from penstock.join import JoinInput, JoinOperator, JoinSpec, Member, SelectionOperator, StartPoint
from penstock.ops import OutputMode
from penstock.plan import JoinPart, JoinRequirement, derive_requirement
from penstock.state import ALWAYS, Maintenance


@dataclass(frozen=True)
class JoinChoice:
    """How a query gets its join: `match` is the running join that it shares; None: it creates one."""

    request: JoinRequest
    match: JoinMatch | None
    renaming: Mapping[str, str]
    need: JoinRequirement
    streams: Mapping[str, StreamNode]
    subqueries: JoinSubqueries


@dataclass(frozen=True)
class JoinPlacer:
    """Chooses the joins of one query, and adds the query to them."""

    spec: CheckedQuery
    graph: Graph
    relations: Relations
    joins: JoinPlacement
    maintenance: Maintenance

    def request(
        self, part: JoinPart, subqueries: JoinSubqueries, place: int, mode: OutputMode, *, grouped: bool, nested: bool
    ) -> JoinChoice:
        """The join of a part, the `place`-th of the query. `nested`: it may be a node of another query's join."""
        streams = {
            s.alias: self.relations.nodes[s.relation.name] for s in part.sources if isinstance(s.relation, Stream)
        }
        spec = self.spec
        terms, starts = SharingTerms(spec.state, spec.demand, grouped), _find_count_starts(part, streams)
        request = JoinRequest(
            place, part, terms, mode.whole, mode.reads_ends, starts, spec.budget_scope, spec.plan_given
        )
        match = self.joins.find_match(request)
        if match is None and nested:
            match = self.joins.find_nested_match(request)
        renaming = {source.alias: source.alias for source in part.sources} if match is None else match.renaming
        need = derive_requirement(part, renaming, nested=match is not None and match.nested)
        return JoinChoice(request, match, renaming, need, streams, subqueries)

    def place(self, choice: JoinChoice, member: Member, name: str, outlet: Buffer | None) -> tuple[Node, JoinOperator]:
        """Add the query to the join that it shares, or create one of this name; `outlet`: that of a selection."""
        subqueries = choice.subqueries
        known = None if choice.match is None else choice.match.start
        start = known or _find_start(
            {choice.renaming[alias]: stream for alias, stream in choice.streams.items()}, subqueries.aliases
        )
        if choice.match is not None:
            choice.match.join.add_member(member, start, history=self.spec.history)
            return choice.match.node, choice.match.join
        part, terms = choice.request.part, choice.request.terms
        readers = {alias: stream.node.outlet.open() for alias, stream in choice.streams.items()}
        arcs = {readers[alias]: choice.streams[alias].node for alias in readers}
        for alias, below, arc in zip(subqueries.aliases, subqueries.parts, subqueries.arcs, strict=True):
            readers[alias] = arc
            arcs[arc] = below.node
        arrivals = [JoinInput(alias, reader) for alias, reader in readers.items()]
        tables = self.relations.read_tables(part.sources)
        spec = JoinSpec(name, part, terms.state, terms.demand, self.maintenance)
        kind = JoinOperator if outlet is None else SelectionOperator
        join = kind(spec, member, start, arrivals, tables)
        node = self.graph.add(join, Buffer() if outlet is None else outlet, arcs)
        self.joins.add(choice.request, node, join)
        return node, join


def _find_count_starts(part: JoinPart, streams: Mapping[str, StreamNode]) -> dict[str, int]:
    """The items with a ROWS window on a source that holds rows back, and the first arrival that counts for them.

    Rows that are held back do not count for a new query, but may lie between rows that do.
    """
    counted = [s.alias for s in part.sources if s.window.counted]
    writers = {alias: streams[alias].writer for alias in counted}
    return {alias: writer.arrival_count for alias, writer in writers.items() if writer.holds_rows()}


def _find_start(streams: Mapping[str, StreamNode], subqueries: Sequence[str]) -> StartPoint:
    """From now on; all rows of subqueries count."""
    writers = {alias: stream.writer for alias, stream in streams.items()}
    numbers = {alias: writer.arrival_count for alias, writer in writers.items()}
    drained = [writer.find_newest_time() for alias, writer in writers.items() if numbers[alias]]
    numbers |= dict.fromkeys(subqueries, int(ALWAYS))
    return StartPoint(tuple(sorted(numbers.items())), max(drained, default=int(ALWAYS)))
