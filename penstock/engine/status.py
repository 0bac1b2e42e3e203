"""The status of an engine for a page or a picture: operators, arcs, queries and streams as frozen values.

Law: a status is read between two calls of the engine and never changes results. Counters are those since the engine
was created; rates follow from two statuses (`penstock.web.series`).

Cost: a few counters for each operator, join node, stream and query; no row is read. Slices count rows, so they are
read only where a query asks for them (`Engine.slices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

import pyarrow as pa

from penstock.cql import Stream, Subquery
from penstock.engine.components import EngineComponents
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.push_cycle import PushCycle
from penstock.engine.query_reader import Emitted, QueryReader, add_up
from penstock.engine.results import Results
from penstock.engine.status_values import ArcStatus, EngineStatus, OperatorStatus, StreamStatus
from penstock.errors import name_arguments
from penstock.graph import Node
from penstock.join import JoinNode, JoinOperator, LeafNode, TreeNode
from penstock.ops import FrontierBypass, make_stream_id
from penstock.state import ALWAYS, FOREVER

_MICROSECONDS = 1_000_000


class StatusReader:
    """Reads the status of one engine again and again: what seldom changes is built when it changes."""

    def __init__(self, components: EngineComponents) -> None:
        self._components = components
        self._queries = QueryReader(components)

    def count_results(self) -> Emitted:
        """The results of every query so far, see `QueryReader`."""
        return self._queries.count_results()

    def read(self, cycle: PushCycle, notices: tuple[str, ...], emitted: Emitted) -> EngineStatus:
        """The status of the engine with the results that were counted; the caller holds its guard."""
        operators: dict[str, OperatorStatus] = {}
        arcs: dict[tuple[str, str, str], ArcStatus] = {}
        for node in self._components.graph:
            for status, inputs in _read_node(node, emitted.most):
                operators.setdefault(status.id, status)
                for arc in inputs:
                    arcs[arc.source, arc.target, arc.label] = arc
        streams = tuple(_read_stream(name, self._components) for name in self._components.relations.nodes)
        return EngineStatus(
            cycle.pushes, cycle.busy_seconds, tuple(operators.values()), tuple(arcs.values()),
            self._queries.read_facts(), self._queries.read_counts(emitted), streams, notices,
        )  # fmt: skip


NodeStatus = tuple[OperatorStatus, list[ArcStatus]]


def _read_node(node: Node, most: Mapping[str, int]) -> Iterator[NodeStatus]:
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
    kept = sum(add_up(metrics.get(key)) for key in ("rows", "groups", "living", "answer_rows", "pending", "held"))
    status = OperatorStatus(node.id, kind, title, add_up(written), kept, waiting=add_up(metrics.get("waiting")))
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


def _read_stream(name: str, components: EngineComponents) -> StreamStatus:
    writer = components.relations.nodes[name].writer
    metrics = writer.metrics()
    return StreamStatus(
        name, writer.arrival_count, add_up(metrics.get("late")), add_up(metrics.get("dead")),
        convert_frontier(metrics["frontier"], writer.stream.time_type), name in components.queries.derived,
        pa.types.is_timestamp(writer.stream.time_type), describe_source(writer.stream),
    )  # fmt: skip


def describe_source(stream: Stream) -> str | None:
    """Where the rows of a stream come from, if a script says so."""
    return None if stream.connector is None else stream.connector.describe()


def convert_frontier(tick: object, type_: pa.DataType) -> float | None:
    """A frontier in seconds, or in ticks of an integer time; None before the first tuple and after the end."""
    if not isinstance(tick, int) or tick in (int(ALWAYS), int(FOREVER)):
        return None
    return tick / _MICROSECONDS if pa.types.is_timestamp(type_) else float(tick)


@guard_calls(nests=(), always=())
@name_arguments
class ObservableEngine:
    """The methods of an engine for a page that shows it."""

    _guard: Guard
    _components: EngineComponents
    _cycle: PushCycle
    _notices: Any

    @cached_property
    def _status_reader(self) -> StatusReader:
        return StatusReader(self._components)

    def status(self) -> EngineStatus:
        """Operators, arcs, queries and streams with their counters, as one frozen value; see docs/page.md.

        >>> [operator.title for operator in eng.status().operators]
        ['A', 'B', '(A B)']
        """
        with self._guard.change():
            emitted = self._status_reader.count_results()
        self._guard.complete_change()
        return self._status_reader.read(self._cycle, tuple(map(str, self._notices.list_active())), emitted)


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
