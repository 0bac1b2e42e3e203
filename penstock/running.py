"""A running query: its plan, its operators in the graph, and the results nobody has taken yet."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.cql.bound import Query, Select
from penstock.errors import UnsupportedError
from penstock.expr.nodes import Aggregate, walk
from penstock.graph.buffers import Buffer
from penstock.graph.graph import Graph, Node
from penstock.ops.emit import DStreamOperator, RStreamOperator
from penstock.ops.join import Arrivals, JoinOperator, Migration
from penstock.ops.join_tree import POLICIES
from penstock.ops.source import SourceOperator
from penstock.plan.cost import assumed_statistics
from penstock.plan.joins import JoinGraph, join_graph
from penstock.plan.order import best_tree
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.tree import parse_tree
from penstock.state.kernels import FOREVER


def executable(query: Query) -> Select:
    """The SELECT of a query this version can run; everything else is refused by name."""
    body = query.body
    if not isinstance(body, Select):
        raise _not_yet(body.kind.upper())
    used = {
        "SEQ": body.sequence is not None,
        "GROUP BY": bool(body.group_by),
        "an aggregate": any(isinstance(node, Aggregate) for item in body.items for node in walk(item.expr)),
        "HAVING": body.having is not None,
        "DISTINCT": body.distinct,
        "SLIDE": any(source.window is not None and source.window.slide is not None for source in body.sources),
    }
    for feature, present in used.items():
        if present:
            raise _not_yet(feature)
    return body


def _not_yet(feature: str) -> UnsupportedError:
    return UnsupportedError("NOT_EXECUTABLE_YET", f"{feature} is understood but cannot be run yet", feature=feature)


class RunningQuery:
    """One continuous query of an engine."""

    def __init__(
        self, name: str, query: Query, plan: str | None, state: str, graph: Graph, tables: Mapping[str, pa.Table]
    ) -> None:
        self.name = name
        self.query = query
        self.state = state
        self.select = executable(query)
        self._graph = graph
        sources = self.select.sources
        self._tables = {source.alias: tables[source.relation.name] for source in sources if source.is_table}
        self._joins: JoinGraph = join_graph(tuple(source.alias for source in sources), self.select.where)
        self.plan = self.planned(plan)
        self.join, last = self._place()
        self._sink = last.outlet.open()

    def planned(self, plan: str | None) -> JoinPlan:
        """The physical plan for a plan string, or the one the cost model prefers."""
        if plan is not None:
            tree = parse_tree(plan, self._joins.aliases)
        else:
            rows = {alias: table.num_rows for alias, table in self._tables.items()}
            tree = best_tree(self._joins, assumed_statistics(self._joins, self.select.sources, rows))
        outputs = tuple(item.expr for item in self.select.items)
        return plan_join(self._joins, self.select.sources, outputs, tree)

    def _place(self) -> tuple[JoinOperator, Node]:
        """Put the operators of the query into the graph; returns the join and the last node."""
        producers = {
            source.alias: self._graph[f"source {source.relation.name}"]
            for source in self.select.sources
            if not source.is_table
        }
        readers = {alias: producer.outlet.open() for alias, producer in producers.items()}
        arrivals = [Arrivals(alias, reader, _arrived(producers[alias])) for alias, reader in readers.items()]
        emit = self.query.emit
        outlet = Buffer()
        join = JoinOperator(
            f"{self.name}: join", self.plan, {item.name: item.expr for item in self.select.items}, arrivals,
            self._tables, outlet, ends=emit != "istream", strict=emit == "rstream",
            policy=POLICIES[self.state],
        )  # fmt: skip
        node = self._graph.add(join, outlet, {readers[alias]: producers[alias] for alias in readers})
        self._nodes = [node]
        self._emit: DStreamOperator | RStreamOperator | None = None
        if emit != "istream":
            reader, behind = outlet.open(), Buffer()
            kind = DStreamOperator if emit == "dstream" else RStreamOperator
            self._emit = kind(f"{self.name}: {emit}", reader, behind)
            self._nodes.append(self._graph.add(self._emit, behind, {reader: node}))
        return join, self._nodes[-1]

    def results(self) -> pa.Table:
        """What became certain since the last call, in temporal order."""
        schema = self.query.schema
        tables = []
        for batch in self._sink.read(int(FOREVER)):
            times = pa.array(batch.times).cast(schema.field("_ts").type)
            tables.append(pa.Table.from_arrays([*batch.columns.values(), times], schema=schema))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def remove(self) -> None:
        """Take the query out of the graph."""
        self._sink.buffer.close(self._sink)
        for node in reversed(self._nodes):
            self._graph.remove(node)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        self.join.migrate(plan, how)
        self.plan = plan

    def revive(self, windows: Mapping[str, pa.Table], unread: Mapping[str, int], since: Mapping[str, int]) -> None:
        """Go on where a snapshot stopped."""
        living = self.join.revive(windows, unread, since)
        if living is not None and self._emit is not None:
            self._emit.revive(living)

    def metrics(self) -> dict[str, object]:
        return {"plan": str(self.plan.tree), "state": self.state, **self.join.metrics()}


def _arrived(producer: Node) -> int:
    operator = producer.operator
    return operator.arrived if isinstance(operator, SourceOperator) else 0
