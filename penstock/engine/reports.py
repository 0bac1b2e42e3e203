"""What an engine reports of a query: its plan, its metrics, its slices."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.components import EngineComponents
from penstock.engine.memory import MemoryControl
from penstock.engine.notices import Notices
from penstock.engine.sharing_report import build_slice_table, format_sharing
from penstock.errors import QueryError
from penstock.graph import find_awaited_time
from penstock.ops import Notice, make_stream_id
from penstock.plan import ExplainNode, QueryWarning, WarningContext, as_mermaid, as_text, list_query_warnings


class Reports:
    """Reads the components of one engine. Counting slices merges their counts, so it is a change."""

    def __init__(self, components: EngineComponents, notices: Notices, memory: MemoryControl) -> None:
        self._guard = components.guard
        self._graph = components.graph
        self._relations = components.relations
        self._queries = components.queries
        self._budgets = components.budgets
        self._notices = notices
        self._memory = memory

    def list_warnings(self, name: str) -> tuple[QueryWarning, ...]:
        """The warnings about the text of a query."""
        rows = {table: data.num_rows for table, data in self._relations.tables.items()}
        return list_query_warnings(self._queries[name].query, WarningContext(table_rows=rows))

    def warn_of_query(self, name: str) -> None:
        """Emit the warnings about a query that was added."""
        if self._guard.warns:
            query = self._queries[name].query
            for warning in self.list_warnings(name):
                self._guard.warn(f"{name}: {warning.format(query.text, query.offset)}")

    def explain(self, name: str, format_: str) -> str:
        """The plan of a query as text, as a Mermaid diagram, or as its part of the state table."""
        running = self._queries[name]
        if format_ == "table":
            return self._format_state_table(name)
        picture = running.plan.explain(self._budgets.format_allowances(running))
        if format_ == "mermaid":
            return as_mermaid(picture)
        if format_ != "text":
            raise QueryError("UNKNOWN_FORMAT", f"explain knows the formats text, mermaid and table, not {format_!r}")
        plan = "" if running.plan.text is None else f", plan {running.plan.text}"
        with self._guard.change():
            shared = format_sharing(running.join_parts, running.query.time_type)
        remarks = [f"warning: {each}" for each in self.list_warnings(name)]
        remarks += [f"notice: {each}" for each in self._list_notices(name)]
        return "\n".join([f"{running.name}: {running.query.emit.upper()}{plan}", as_text(picture), *shared, *remarks])

    def _list_notices(self, name: str) -> list[Notice]:
        """The active notices about the streams that a query reads, directly or through derived streams."""
        nodes = self._queries.find_nodes(name, self._graph)
        upstream = {other.id for node in nodes for other in self._graph.list_upstream(node)}
        return [each for each in self._notices.list_active() if make_stream_id(each.stream) in upstream]

    def _format_state_table(self, name: str) -> str:
        nodes = self._queries.find_nodes(name, self._graph)
        upstream = {other.id for node in nodes for other in self._graph.list_upstream(node)}
        return self._graph.table.restrict_to(upstream).as_text()

    def picture(self, name: str) -> ExplainNode:
        """The plan of a query as a tree."""
        return self._queries[name].plan.explain({})

    def slices(self, name: str) -> pa.Table:
        """The slices of the join of a query."""
        running = self._queries[name]
        part = running.require_single_join()
        with self._guard.change():
            return build_slice_table(part, running.query.time_type)

    def metrics(self, name: str | None) -> dict[str, object]:
        """The metrics of a query, its budget and its streams; without a name, those of the engine."""
        if name is None:
            streams = {source.stream.name: source.metrics() for source in self._relations.streams}
            return {"memory": self._memory.describe(), "queries": len(list(self._queries)), "streams": streams}
        running = self._queries[name]
        read = dict.fromkeys(source.relation.name for source in running.query.body.inputs if not source.is_table)
        with self._guard.change():
            metrics = running.metrics()
        return {
            **metrics,
            **self._budgets.metrics(running),
            "streams": {stream: self._relations.nodes[stream].writer.metrics() for stream in read},
        }

    def awaits(self, name: str) -> int | None:
        """The time of the first tuple that a query holds and may not process yet; None if it holds none."""
        times = (find_awaited_time(node) for node in self._queries[name].nodes)
        return min((time for time in times if time is not None), default=None)
