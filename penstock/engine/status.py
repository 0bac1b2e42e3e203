"""The status of an engine for a page or a picture: operators, arcs, queries and streams as frozen values.

Law: a status is read between two calls of the engine and never changes results. Counters are those since the engine
was created; rates follow from two statuses (`penstock.web.series`).

Cost: a few counters for each operator, join node, stream and query; no row is read. Slices count rows, so they are
read only where a query asks for them (`Engine.slices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from penstock.cql import Stream, Subquery
from penstock.engine.components import EngineComponents
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.join_figures import estimate_completeness
from penstock.engine.push_cycle import PushCycle
from penstock.engine.query import RunningQuery
from penstock.engine.results import Results
from penstock.errors import name_arguments
from penstock.graph import Node
from penstock.join import JoinNode, JoinOperator, LeafNode, Member, TreeNode
from penstock.ops import FrontierBypass, make_stream_id
from penstock.state import ALWAYS, FOREVER

_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class OperatorStatus:
    """A source, a table, a node of a join, or another operator."""

    id: str
    kind: str
    """source, table, join, window, or the kind of the operator such as aggregate."""
    title: str
    rows_out: int = 0
    """The rows that it has written; for a join node, those it has built."""
    state_rows: int = 0
    bytes: int = 0
    waiting: int = 0
    """The rows on its inputs that it has not read."""
    suppressed: int = 0
    """Rows that were not built, because no result can use them yet."""
    policy: str | None = None
    demanded: float | None = None
    """The part of its rows that demand let through; None without demand."""
    complete: float | None = None
    """1.0 if no key lacks rows, less while a plan change is being completed; None without state."""
    members: int = 0
    """How many queries share it."""
    scope: str | None = None
    """The operator of the graph that a join node belongs to."""


@dataclass(frozen=True)
class ArcStatus:
    """Rows from an operator to another. `ets`: time passes the target without waiting for rows (an ETS arc)."""

    source: str
    target: str
    label: str = ""
    ets: bool = False


@dataclass(frozen=True)
class QueryStatus:
    """A query, and the operator that has its results."""

    name: str
    text: str
    plan: str | None
    state: str
    operator: str
    emitted: int
    completeness: float = 1.0
    stale: int = 0
    error: str | None = None
    derived: bool = False
    """Whether its results are a stream or a view for other queries."""
    budget: str | None = None
    sink: str | None = None


@dataclass(frozen=True)
class StreamStatus:
    """A stream and how far it has come. `frontier` is in seconds, or in ticks of an integer time column."""

    name: str
    arrived: int
    late: int
    dead: int
    frontier: float | None
    derived: bool = False
    in_seconds: bool = True
    """Whether the frontier is in seconds; else in ticks."""


@dataclass(frozen=True)
class EngineStatus:
    """An engine at one moment."""

    pushes: int
    busy: float
    """The seconds that pushes took."""
    operators: tuple[OperatorStatus, ...]
    arcs: tuple[ArcStatus, ...]
    queries: tuple[QueryStatus, ...]
    streams: tuple[StreamStatus, ...]
    notices: tuple[str, ...] = ()


Emitted = Mapping[str, int]
"""The results of queries by name."""


def count_results(components: EngineComponents) -> dict[str, int]:
    """The results of every query so far. Counting merges the counts of shared joins, so it is a change."""
    found: dict[str, int] = {}
    shared: dict[JoinOperator, dict[str, Member]] = {}
    for running in components.queries:
        last = running.nodes[-1].operator
        if isinstance(last, JoinOperator):
            found[running.name] = 0
            shared.setdefault(last, {})[running.name] = running.join_parts[-1].member
        else:
            metrics = last.metrics()
            found[running.name] = _add_up(metrics.get("emitted", metrics.get("arrived")))
    for join, members in shared.items():
        found.update(zip(members, join.shared_join.counts.count_members(members.values()), strict=True))
    return found


def read_status(
    components: EngineComponents, cycle: PushCycle, notices: tuple[str, ...], emitted: Emitted
) -> EngineStatus:
    """The status of an engine; the caller holds its guard."""
    most: dict[str, int] = {}
    for running in components.queries:
        last = running.nodes[-1].id
        most[last] = max(most.get(last, 0), emitted[running.name])
    operators: dict[str, OperatorStatus] = {}
    arcs: dict[tuple[str, str, str], ArcStatus] = {}
    for node in components.graph:
        for status, inputs in _read_node(node, most):
            operators.setdefault(status.id, status)
            for arc in inputs:
                arcs[arc.source, arc.target, arc.label] = arc
    queries = tuple(_read_query(running, components, emitted[running.name]) for running in components.queries)
    streams = tuple(_read_stream(name, components) for name in components.relations.nodes)
    return EngineStatus(
        cycle.pushes, cycle.busy_seconds, tuple(operators.values()), tuple(arcs.values()), queries, streams, notices
    )


NodeStatus = tuple[OperatorStatus, list[ArcStatus]]


def _read_node(node: Node, most: Emitted) -> Iterator[NodeStatus]:
    operator = node.operator
    if isinstance(operator, JoinOperator):
        yield from _read_join(node, operator, most.get(node.id, 0))
        return
    metrics = operator.metrics()
    ets = isinstance(operator, FrontierBypass)
    is_source = "arrived" in metrics
    title = node.id.removeprefix("source ") if is_source else node.id
    kind = "source" if is_source else node.id.rpartition(": ")[2].rstrip(" 0123456789")
    if node.id.startswith("view "):
        kind = "view"
    written = metrics.get("arrived", metrics.get("emitted", 0))
    kept = sum(_add_up(metrics.get(key)) for key in ("rows", "groups", "living", "answer_rows", "pending", "held"))
    status = OperatorStatus(node.id, kind, title, _add_up(written), kept, waiting=_add_up(metrics.get("waiting")))
    yield status, [ArcStatus(before.id, node.id, ets=ets) for before in node.predecessors]


def _read_join(node: Node, join: JoinOperator, emitted: int) -> Iterator[NodeStatus]:
    """The nodes of a join tree, inputs first. The root has the id of the operator."""
    tree, members = join.tree, len(join.shared_join.members)
    parts = list(tree.walk_nodes())
    is_eddy = all(isinstance(part, LeafNode) for part in parts) and len(parts) > 1
    others = [before for before in node.predecessors if not before.id.startswith("source ")]
    leaves: list[ArcStatus] = []
    for part in parts:
        if isinstance(part, LeafNode):
            table = _read_table(part)
            if table is not None:
                yield table, []
            leaves += _list_leaf_arcs(part, node, others, None if table is None else table.id)
    for part in parts:
        if isinstance(part, JoinNode):
            yield _read_join_node(part, join, members), _list_inputs(part, join, leaves)
    if is_eddy or isinstance(tree.root, LeafNode):
        stores = tree.stores.values()
        read = 0 if is_eddy else sum(store.tuples_read for store in stores)
        title = f"eddy {tree.plan.tree}" if is_eddy else str(tree.plan.tree)
        yield (
            OperatorStatus(
                join.id, "join" if is_eddy else "window", title, emitted or read, sum(len(store) for store in stores),
                sum(store.nbytes for store in stores), sum(join.inputs.unread().values()),
                policy=join.state if is_eddy else None, members=members, scope=join.id,
            ),
            [ArcStatus(arc.source, join.id, arc.label, arc.ets) for arc in leaves],
        )  # fmt: skip


def _read_join_node(part: JoinNode, join: JoinOperator, members: int) -> OperatorStatus:
    state, gate = part.state, part.gate
    suppressed = sum(part.suppressed.values())
    gated = gate is not None and (gate.closed or suppressed > 0)
    stores = [join.tree.stores[leaf.plan.alias] for leaf in _children(part) if isinstance(leaf, LeafNode)]
    size = sum(store.nbytes for store in stores) + (state.nbytes if state else 0) + (gate.nbytes if gate else 0)
    return OperatorStatus(
        _name_part(part, join), "join", str(part.plan.tree), part.built,
        (0 if state is None else len(state)) + sum(len(store) for store in stores), size,
        sum(join.inputs.unread().values()) if part is join.tree.root else 0,
        suppressed, join.state,
        part.built / max(1, part.built + suppressed) if gated else None,
        _measure_completeness(part), members, join.id,
    )  # fmt: skip


def _measure_completeness(part: JoinNode) -> float | None:
    state = part.state
    if state is None:
        return None
    if state.complete_keys is None:
        return 1.0
    return min(0.99, len(state.complete_keys) / max(1, len(state.complete_keys) + len(state)))


def _children(part: JoinNode) -> tuple[TreeNode, ...]:
    return part.left, part.right


def _name_part(part: TreeNode, join: JoinOperator) -> str:
    return join.id if part is join.tree.root else f"{join.id} {part.plan.tree}"


def _list_inputs(part: JoinNode, join: JoinOperator, leaves: list[ArcStatus]) -> list[ArcStatus]:
    target, found = _name_part(part, join), list[ArcStatus]()
    for child in _children(part):
        if isinstance(child, LeafNode):
            found += [
                ArcStatus(arc.source, target, arc.label, arc.ets) for arc in leaves if arc.target == child.plan.alias
            ]
        else:
            found.append(ArcStatus(_name_part(child, join), target))
    return found


def _read_table(part: LeafNode) -> OperatorStatus | None:
    if part.plan.source.is_table and not isinstance(part.plan.source.relation, Subquery):
        name = part.plan.source.relation.name
        return OperatorStatus(f"table {name}", "table", name, state_rows=len(part.store))
    return None


def _list_leaf_arcs(part: LeafNode, node: Node, others: list[Node], table: str | None) -> list[ArcStatus]:
    """The arcs into a leaf; their target is its alias until the node above is known."""
    source, alias = part.plan.source, part.plan.alias
    relation = source.relation
    window = "" if not isinstance(relation, Stream) else f" {source.window.text(relation.time_type)}"
    label = f"{alias}{window}" if alias != relation.name or window else ""
    if table is not None:
        return [ArcStatus(table, alias, label)]
    name = make_stream_id(relation.name)
    if any(before.id == name for before in node.predecessors):
        return [ArcStatus(name, alias, label)]
    return [ArcStatus(before.id, alias) for before in others]


def _read_query(running: RunningQuery, components: EngineComponents, emitted: int) -> QueryStatus:
    budgets = components.budgets.join_budgets(running)
    completeness = 1.0
    if budgets:
        parts = running.join_parts
        completeness = estimate_completeness(parts, [part.metrics() for part in parts])
    stale = sum(part.member.stale for part in running.join_parts)
    return QueryStatus(
        running.name, running.query.text, running.plan.text, running.state, running.nodes[-1].id, emitted, completeness,
        stale, None if running.failure is None else str(running.failure), running.is_relation,
        f"{len(budgets)} joins under a budget" if budgets else None,
    )  # fmt: skip


def _read_stream(name: str, components: EngineComponents) -> StreamStatus:
    writer = components.relations.nodes[name].writer
    metrics = writer.metrics()
    return StreamStatus(
        name, writer.arrival_count, _add_up(metrics.get("late")), _add_up(metrics.get("dead")),
        convert_frontier(metrics["frontier"], writer.stream.time_type), name in components.queries.derived,
        pa.types.is_timestamp(writer.stream.time_type),
    )  # fmt: skip


def convert_frontier(tick: object, type_: pa.DataType) -> float | None:
    """A frontier in seconds, or in ticks of an integer time; None before the first tuple and after the end."""
    if not isinstance(tick, int) or tick in (int(ALWAYS), int(FOREVER)):
        return None
    return tick / _MICROSECONDS if pa.types.is_timestamp(type_) else float(tick)


def _add_up(value: Any) -> int:
    """A figure as a number; one by stream or node is added up."""
    if isinstance(value, Mapping):
        return sum(map(_add_up, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_add_up, value))
    return int(value) if isinstance(value, int | float) else 0


@guard_calls(nests=(), always=())
@name_arguments
class ObservableEngine:
    """The methods of an engine for a page that shows it."""

    _guard: Guard
    _components: EngineComponents
    _cycle: PushCycle
    _notices: Any

    def status(self) -> EngineStatus:
        """Operators, arcs, queries and streams with their counters, as one frozen value; see docs/page.md.

        >>> [operator.title for operator in eng.status().operators]
        ['A', 'B', '(A B)']
        """
        with self._guard.change():
            emitted = count_results(self._components)
        self._guard.complete_change()
        return read_status(self._components, self._cycle, tuple(map(str, self._notices.list_active())), emitted)


class ServedEngine(ObservableEngine):
    """The part of an engine that opens the page. Not guarded: the page reads the engine from its own thread."""

    _result_watcher: Callable[[Results], object] | None = None

    def watch_results(self, function: Callable[[Results], object] | None) -> None:
        """Call a function with what every push returns, in the thread of the push; None ends it. The page uses it.

        >>> eng.watch_results(None)
        """
        self._result_watcher = function

    def _show_results(self, results: Results) -> Results:
        if self._result_watcher is not None:
            self._result_watcher(results)
        return results

    def serve(self, port: int = 0, *, interval: float = 1.0) -> Any:
        """Show the engine on a page at 127.0.0.1 until the returned server is closed; needs `penstock[ui]`.

        `port` 0 takes a free one. `interval` is the time between two readings in seconds. `url` of the server has the
        token that changes of queries need; see docs/page.md.

        >>> with eng.serve() as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
        """
        return import_module("penstock.web").serve_engine(self, port, interval)  # a higher package, and an extra
