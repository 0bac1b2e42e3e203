"""An engine as a snapshot, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.adapt import Rules
from penstock.cql import FunctionSpec, format_type
from penstock.engine.adaptation import Adaptation
from penstock.engine.build import QueryRequest, has_grouped_join, list_join_ids
from penstock.engine.components import EngineComponents
from penstock.engine.join_registry import RestoredJoins
from penstock.engine.parts import DumpedJoins
from penstock.engine.push_cycle import PushCycle
from penstock.engine.query import RunningQuery
from penstock.engine.query_changes import QueryChanges
from penstock.engine.query_output import DerivedOutput, QueryOutput, ViewOutput
from penstock.engine.saved_arcs import dump_outlet, restore_outlet
from penstock.engine.snapshot import SavedQuery, SavedSource, Snapshot
from penstock.graph import Buffer
from penstock.ops import SourceOperator
from penstock.state import Maintenance


class Persistence:
    """Takes snapshots of one engine, and restores one into an engine that was just created."""

    def __init__(
        self, components: EngineComponents, changes: QueryChanges, cycle: PushCycle, adaptation: Adaptation
    ) -> None:
        self._components = components
        self._changes = changes
        self._cycle = cycle
        self._adaptation = adaptation

    # ── taking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def take_snapshot(self) -> Snapshot:
        """Declarations, queries, frontiers and base windows."""
        relations, dumped = self._components.relations, DumpedJoins()
        relations.drop_former_rows(self._components.joins)
        return Snapshot(
            options=asdict(self._components.options) | {"schedule": self._components.graph.strategy},
            adapt=self._adaptation.dump_rules(),
            pushes=self._cycle.pushes,
            budgets=self._components.budgets.dump(self._adaptation.budgeted_queries),
            stream_order=tuple(relations.stream_order),
            aggregates=tuple(relations.catalog.aggregates),
            functions=tuple((each.name, format_type(each.type)) for each in relations.catalog.functions.values()),
            tables=dict(relations.tables),
            replaced=tuple(relations.tables.replaced),
            sources=tuple(map(self._dump_source, relations.streams)),
            queries=tuple(self._dump_query(running, dumped) for running in self._components.queries),
        )

    def _dump_source(self, source: SourceOperator) -> SavedSource:
        graph = self._components.graph
        outlet = dump_outlet(graph[source.id].outlet)
        return SavedSource(source.stream, source.dump(), outlet, graph.run_settings(source.id))

    def _dump_query(self, running: RunningQuery, dumped: DumpedJoins) -> SavedQuery:
        output = running.output
        written = _find_outlet(output)
        outlet = None if written is None else dump_outlet(written)
        return SavedQuery(
            running.name, running.query.text, running.plan.text, running.state, running.own_demand,
            tuple(running.dump(dumped)), outlet, running.view is not None,
        )  # fmt: skip

    # ── restoring ────────────────────────────────────────────────────────────────────────────────────────────────

    def restore(
        self, snapshot: Snapshot, aggregates: Mapping[str, type], functions: Mapping[str, FunctionSpec]
    ) -> None:
        """Continue from a snapshot. `aggregates` and `functions` are the user-defined ones that it names."""
        relations = self._components.relations
        self._cycle.pushes = snapshot.pushes
        for name, table in snapshot.tables.items():
            relations.add_table(name, table)
        relations.tables.replaced = list(snapshot.replaced)
        for source in snapshot.sources:
            self._restore_source(source)
        relations.restore(list(snapshot.stream_order), list(snapshot.aggregates), aggregates)
        relations.restore_functions(snapshot.functions, functions)
        joins = RestoredJoins(self._components.joins)
        for query in snapshot.queries:
            request = QueryRequest(
                query.name, query.text, query.plan, query.state, query.demand,
                derives=query.outlet is not None and not query.view, view=query.view,
            )  # fmt: skip
            self._changes.start(
                request, joins.for_query(list_join_ids(query.parts), groups=has_grouped_join(query.parts))
            )
        for query in snapshot.queries:  # after all queries of a join were added to it
            self._restore_query(query)
        self._components.budgets.restore(snapshot.budgets)

    def _restore_source(self, saved: SavedSource) -> None:
        streams, graph = self._components.relations.streams, self._components.graph
        source = streams.make_source(saved.stream)
        node = streams.add(source)
        source.operator.restore(saved.state, None)
        restore_outlet(source.outlet, saved.outlet)
        graph.restore_settings(source.operator.id, saved.run_settings)
        self._components.relations.register_stream(saved.stream, node)

    def _restore_query(self, saved: SavedQuery) -> None:
        running = self._components.queries[saved.name]
        running.restore(saved.parts)
        written = _find_outlet(running.output)
        if saved.outlet is not None and written is not None:
            restore_outlet(written, saved.outlet)


def _find_outlet(output: QueryOutput) -> Buffer | None:
    """What other queries read of a derived stream or view."""
    match output:
        case DerivedOutput(stream=read) | ViewOutput(view=read):
            return read.node.outlet
    return None


def read_options(snapshot: Snapshot) -> dict[str, Any]:
    """The arguments of `Engine` for a snapshot."""
    options = dict(snapshot.options)
    maintenance = Maintenance(**options.pop("maintenance"))
    return {
        **options,
        "maintenance": maintenance,
        "adapt": False if snapshot.adapt is None else Rules(**snapshot.adapt),
    }
