"""How the queries of a declared pipeline continue those of a checkpoint, and an altered query its own windows.

Queries are compared as bound queries, so spaces, comments and the case of keywords do not matter. A query continues
with the rows of its windows if these are the rows it needs, and otherwise starts with empty windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.adapt import AlterQuery
from penstock.cql import Query, Source, Subquery, Table
from penstock.errors import PenstockError, QueryError
from penstock.spark.driver.pipeline_record import PipelineRecord
from penstock.spark.from_items import map_sources
from penstock.spark.grid import count_items
from penstock.spark.inlet_record import find_query_difference, record_inlets
from penstock.spark.layout import Layout, StreamScan
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.shipped_functions import ShippedFunction
from penstock.spark.spec import PipelineSpec

_NO_COLUMNS = pa.schema([])
EVOLVE_HINT = "start with evolve=True (`penstock run --evolve`)"


class QueryComparison:
    """The queries of a declared pipeline, compared with those of a record."""

    def __init__(
        self, place: str, record: PipelineRecord, spec: PipelineSpec, generation: int, *, evolve: bool
    ) -> None:
        self._place = place
        self._record = record
        self._known = {query.name.casefold(): query for query in record.config.queries}
        self._generation = generation
        self._evolve = evolve
        self.notes: list[str] = []
        self._check_related(spec)
        self.restored = tuple(self._list_restored(spec))
        wanted = (*spec.queries, *self.restored)
        self._trial = Layout(spec.with_config(PipelineConfig(tuple(map(self._forget_inlets, wanted)))))
        given = {query.name: query for query in wanted}
        self._wanted = tuple(given.get(each.name) or replace(each, inlets=()) for each in self._trial.spec.queries)
        self._old_queries = _bind_queries(record, spec.functions)
        self._old_scans = _list_scans(record, spec.functions)

    def choose(self) -> tuple[QuerySpec, ...]:
        """The queries of the run: those that continue, with their inlets, and new ones."""
        changed = [query.name for query in self._wanted if self._is_changed(query)]
        lost = self._find_lost_windows(changed)
        for query in self._wanted:
            self._note_query(query, changed, lost)
        names = {query.name.casefold() for query in self._wanted}
        for key, query in self._known.items():
            if key not in names and not query.added and query.copy_of is None:
                self.notes.append(f"query {query.name} is not declared any more; its windows are dropped")
        return tuple(self._choose_query(query, changed, lost) for query in self._wanted)

    def _forget_inlets(self, query: QuerySpec) -> QuerySpec:
        """A query without inlets, that began as in the record, or begins now."""
        same = self._known.get(query.name.casefold())
        return replace(query, inlets=(), since=self._generation if same is None else same.since)

    def _check_related(self, spec: PipelineSpec) -> None:
        """Refuse a checkpoint that has queries, but none of the declared ones."""
        if self._known and not self._evolve and not any(q.name.casefold() in self._known for q in spec.queries):
            names = ", ".join(query.name for query in self._known.values())
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {self._place} belongs to another pipeline: its queries are {names}; "
                f"give this pipeline a checkpoint of its own, or {EVOLVE_HINT} to replace them",
                checkpoint=self._place,
            )

    def _list_restored(self, spec: PipelineSpec) -> Iterator[QuerySpec]:
        """The queries that were added while running and are not declared."""
        declared = {query.name.casefold() for query in spec.queries}
        for key, query in self._known.items():
            if key in declared or not query.added:
                continue
            if query.sink is not None:
                yield query
            elif self._evolve:
                self.notes.append(f"query {query.name} was added while running; it is dropped, as it is not declared")
            else:
                raise QueryError(
                    "QUERY_NOT_DECLARED",
                    f"the checkpoint {self._place} has the query {query.name}, which was added while running, and its "
                    f"sink cannot be made again: declare it before the start with pipe.query({query.name!r}, "
                    f"{query.text!r}, sink=...), or {EVOLVE_HINT} to drop it",
                    query=query.name,
                )

    def _is_changed(self, query: QuerySpec) -> bool:
        """Whether a query is not the one of the record; without `evolve` that is an error."""
        same = self._known.get(query.name.casefold())
        if same is None:
            return False
        old = self._old_queries.get(same.name)
        if old is not None and _strip_text(old) == _strip_text(self._trial.spec.bound_queries[query.name]):
            return False
        if not self._evolve:
            raise QueryError(
                "QUERY_DIFFERS",
                f"the checkpoint {self._place} has another query {query.name}; it was\n  {same.text}\nand is\n"
                f"  {query.text}\n{EVOLVE_HINT} to take over the new one, "
                "give it a name of its own, or start with a new checkpoint",
                query=query.name,
            )
        return True

    def _find_lost_windows(self, changed: Collection[str]) -> dict[str, str]:
        """The queries that cannot continue with their windows, with the reasons."""
        lost: dict[str, str] = {}
        reads = self._find_derived_reads()
        connected = {name for reader, streams in reads.items() for name in (reader, *streams)}
        for query in self._wanted:
            same = self._known.get(query.name.casefold())
            if same is None:
                if self._evolve and query.name in connected:
                    lost[query.name] = "it is new"
                continue
            before = self._old_scans.get(same.name, []) if query.name in changed else None
            scans = self._trial.scans[query.name]
            why = find_query_difference(self._record.inlets, same.inlets, scans, before)
            if why is None and query.name in changed and query.name in connected:
                why = "it derives or reads a derived stream"
            if why is not None and not self._evolve:
                raise QueryError(
                    "INLETS_DIFFER",
                    f"query {query.name} cannot use the rows in the checkpoint {self._place}: {why}; "
                    f"`penstock rescale {self._place} NEW --cells {self._record.cells}` divides them again, or "
                    f"{EVOLVE_HINT} to start this query with empty windows",
                    query=query.name,
                )
            if why is not None:
                lost[query.name] = why
        return _spread_over_derived(lost, reads)

    def _find_derived_reads(self) -> dict[str, list[str]]:
        """For each query that reads derived streams, these streams."""
        derived = self._trial.spec.derived_streams
        bound = self._trial.spec.bound_queries
        found = {name: [each.relation.name for each in query.body.inputs] for name, query in bound.items()}
        reads = {name: [stream for stream in streams if stream in derived] for name, streams in found.items()}
        return {name: streams for name, streams in reads.items() if streams}

    def _note_query(self, query: QuerySpec, changed: Collection[str], lost: Mapping[str, str]) -> None:
        known = query.name.casefold() in self._known
        if known and query.name in lost:
            what = "is changed and" if query.name in changed else "is as it was, but"
            self.notes.append(f"query {query.name} {what} starts with empty windows: {lost[query.name]}")
        elif query.name in changed:
            self.notes.append(f"query {query.name} is changed and keeps its windows")
        elif not known and query.name.casefold() in map(str.casefold, self._record.dropped):
            self.notes.append(
                f"query {query.name} was dropped while running and is declared; it starts again with empty windows"
            )

    def _choose_query(self, query: QuerySpec, changed: Collection[str], lost: Mapping[str, str]) -> QuerySpec:
        same = self._known.get(query.name.casefold())
        if same is None:
            return replace(query, since=self._generation, inlets=())
        plan = query.plan if query.name in changed else query.plan or same.plan
        found = replace(
            same, name=query.name, text=query.text, plan=plan, state=query.state or same.state, derived=query.derived,
            added=query.added, sink=query.sink,
        )  # fmt: skip
        if query.name in lost:
            return replace(found, since=self._generation, inlets=())
        return replace(found, inlets=_place_inlets(self._trial, query.name, same.inlets))


def alter_query(layout: Layout, command: AlterQuery, generation: int) -> tuple[PipelineConfig, str]:
    """The config of a running pipeline after a query got another text, and a sentence on its windows.

    If it keeps its windows, it stays the same query with another text, so cells load its rows into new engines.
    """
    old = layout.spec.config.find_query(command.name)
    config = command.configure(layout.spec.config, generation)
    trial = Layout(layout.spec.with_config(config))
    why = find_query_difference(record_inlets(layout), old.inlets, trial.scans[old.name], layout.scans[old.name])
    queries = (layout.spec.bound_queries[old.name], trial.spec.bound_queries[old.name])
    if any(each.relation.name in trial.spec.derived_streams | layout.spec.derived_streams
           for query in queries for each in query.body.inputs):  # fmt: skip
        why = "it reads a derived stream"
    if why is not None:
        return config, f"query {old.name} is changed and starts with empty windows: {why}"
    inlets = _place_inlets(trial, old.name, old.inlets)
    return (
        config.change_query(old.name, inlets=inlets, since=old.since),
        f"query {old.name} is changed and keeps its windows",
    )


def _place_inlets(layout: Layout, name: str, inlets: Sequence[int]) -> tuple[int, ...]:
    """The inlets of a query by FROM item: tables may stand elsewhere than before."""
    items = [scan.item_index for scan in layout.scans[name]]
    by_item = dict(zip(items, filter(None, inlets), strict=True))
    return tuple(by_item.get(item, 0) for item in range(count_items(layout.spec.bound_queries[name].body)))


def _bind_queries(record: PipelineRecord, functions: tuple[ShippedFunction, ...]) -> dict[str, Query]:
    """The queries of a record that this version can bind."""
    found: dict[str, Query] = {}
    spec = record.build_spec(record.config, functions)
    for query in record.config.queries:
        try:
            found[query.name] = spec.bind(query)
        except PenstockError:
            continue
    return found


def _list_scans(record: PipelineRecord, functions: tuple[ShippedFunction, ...]) -> Mapping[str, list[StreamScan]]:
    """The FROM items of the queries of a record."""
    try:
        return Layout(record.build_spec(record.config, functions)).scans
    except PenstockError:
        return {}


def _strip_text(query: Query) -> Query:
    """A bound query without its text and without the declarations of its relations: only their names count."""

    def strip_relation(source: Source) -> Source:
        if isinstance(source.relation, Subquery):
            return source
        return replace(source, relation=Table(source.relation.name, _NO_COLUMNS))

    return replace(query, text="", body=map_sources(query.body, strip_relation))


def _spread_over_derived(lost: dict[str, str], reads: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Queries connected by derived streams start together: if one starts with empty windows, all do."""
    pairs = [(reader, stream) for reader, streams in reads.items() for stream in streams]
    while split := next((pair for pair in pairs if (pair[0] in lost) != (pair[1] in lost)), None):
        empty, other = split if split[0] in lost else split[::-1]
        lost[other] = f"{empty} starts with empty windows"
    return lost
