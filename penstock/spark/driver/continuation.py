"""How a declared pipeline continues a checkpoint. Pure functions over values.

Queries are compared as bound queries, so spaces, comments and the case of keywords do not matter. What differs is
refused, or with `evolve` taken over: a query continues with the rows of its windows if these are the rows it needs, and
otherwise starts with empty windows. Each such change gives a note for the user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.cql import Query, Source, Subquery, Table, bind_query, format_duration, to_arrow_type
from penstock.errors import PenstockError, QueryError
from penstock.spark.driver.pipeline_record import PipelineRecord, digest_tables, record_pipeline
from penstock.spark.grid import count_items
from penstock.spark.inlet_record import find_query_difference
from penstock.spark.layout import Layout, StreamScan, map_sources
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.spec import PipelineSpec, count_digest_rows

_NO_COLUMNS = pa.schema([])
_EVOLVE = "start with evolve=True (`penstock run --evolve`)"


@dataclass(frozen=True)
class Continuation:
    """A pipeline that continues a checkpoint."""

    layout: Layout
    record: PipelineRecord
    restored: tuple[QuerySpec, ...] = ()
    """The queries that were added while running and are not declared."""
    notes: tuple[str, ...] = ()
    """What is not as it was, in sentences."""


def start_pipeline(spec: PipelineSpec) -> Continuation:
    """The start of a pipeline with a new checkpoint."""
    layout = Layout(spec.with_config(spec.config.clear_shedding()))
    return Continuation(layout, record_pipeline(layout, 0))


def continue_pipeline(
    place: str, record: PipelineRecord, declared: PipelineSpec, generation: int, *, evolve: bool
) -> Continuation:
    """The pipeline that continues the one of a record; QueryError if it cannot.

    `generation`: the number of this change of the pipeline, if it is one.
    """
    check_cells(place, record.cells, declared.cells)
    record = _adopt_zones(record, declared)
    spec = _order_streams(place, record, declared)
    notes = [*_compare_streams(place, record, spec, evolve=evolve), *_compare_tables(record, spec)]
    queries = _QueryComparison(place, record, spec, generation, evolve=evolve)
    chosen = queries.choose()
    names = {query.name for query in chosen}
    orders = tuple(order for order in record.config.orders if order.query is None or order.query in names)
    config = PipelineConfig(chosen, orders, record.config.next_inlet).clear_shedding()
    layout = Layout(spec.with_config(config))
    changed = layout.spec.config != record.config
    found = replace(
        record_pipeline(layout, generation if changed else record.generation),
        dropped=tuple(name for name in record.dropped if name not in names),
    )
    if not changed:  # a micro-batch that is repeated may need the older config of the schedule
        found = replace(found, schedule=record.schedule)
    return Continuation(layout, found, queries.restored, (*notes, *queries.notes))


def _adopt_zones(record: PipelineRecord, spec: PipelineSpec) -> PipelineRecord:
    """The record with the zone UTC where it is declared now.

    Earlier versions declared the TIMESTAMP of a script without its zone. Its values are the same instants.
    """
    now = spec.describe()
    adopted = {kind: _adopt_kind(record.declared[kind], now[kind]) for kind in ("streams", "tables")}
    return replace(record, declared={**record.declared, **adopted})


def _adopt_kind(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    def adopt(name: str, column: str, type_: str) -> str:
        declared = now.get(name, {"columns": {}})["columns"].get(column)
        return declared if (type_, declared) == ("timestamp", "timestamp(UTC)") else type_

    return {
        name: {**entry, "columns": {column: adopt(name, column, type_) for column, type_ in entry["columns"].items()}}
        for name, entry in before.items()
    }


def check_cells(place: str, before: int, now: int) -> None:
    if before != now:
        raise QueryError(
            "CELLS_DIFFER",
            f"the checkpoint {place} was made with {before} cells, not {now}: its state is divided that way; start "
            f"without `cells` or with cells={before}, or divide it again: "
            f"`penstock rescale {place} NEW --cells {now}`, then start with the checkpoint NEW",
            cells=before,
        )


def is_same_pipeline(record: PipelineRecord, spec: PipelineSpec) -> bool:
    """Whether a record is that of a declared pipeline, word by word."""
    recorded = {query.name: query.text for query in record.config.queries}
    return record.declared == spec.describe() and recorded == {query.name: query.text for query in spec.queries}


# ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _order_streams(place: str, record: PipelineRecord, spec: PipelineSpec) -> PipelineSpec:
    """The spec with its streams in the order of the checkpoint: Spark finds the offsets of a source by its place."""
    before, now = list(record.declared["streams"]), {stream.name: stream for stream in spec.streams}
    if set(before) != set(now):
        gone, new = sorted(set(before) - set(now)), sorted(set(now) - set(before))
        parts = [f"{', '.join(names)} {what}" for names, what in ((gone, "is not declared"), (new, "is new")) if names]
        raise QueryError(
            "CHECKPOINT_DIFFERS",
            f"the checkpoint {place} belongs to a pipeline with the streams {', '.join(before)}: {'; '.join(parts)}; "
            "Spark keeps the offsets of exactly these sources, so give this pipeline a checkpoint of its own",
            checkpoint=place,
        )
    return replace(spec, streams=tuple(now[name] for name in before))


def _compare_streams(place: str, record: PipelineRecord, spec: PipelineSpec, *, evolve: bool) -> Iterator[str]:
    now = spec.describe()["streams"]
    for name, before in record.declared["streams"].items():
        fixed = list(_list_differences(_list_fixed_parts(before), _list_fixed_parts(now[name])))
        if fixed:
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {place} has another time for the stream {name}: {'; '.join(fixed)}; the times in it "
                "cannot be compared, so give this pipeline a checkpoint of its own",
                checkpoint=place,
            )
        parts = [
            *_list_differences(_describe_lateness(before), _describe_lateness(now[name])),
            *_list_differences(before["columns"], now[name]["columns"]),
        ]
        if parts and not evolve:
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {place} has another stream {name}: {'; '.join(parts)}; {_EVOLVE} to continue with "
                "the new declaration, or give this pipeline a checkpoint of its own",
                checkpoint=place,
            )
        if parts:
            yield f"stream {name}: {'; '.join(parts)}"


def _describe_lateness(stream: Mapping[str, Any]) -> dict[str, str]:
    return {"LATENESS": format_duration(stream["lateness"], to_arrow_type(stream["columns"][stream["time"]]))}


def _list_fixed_parts(stream: Mapping[str, Any]) -> dict[str, str]:
    time = stream["time"]
    return {
        "time column": time,
        "type of the time column": stream["columns"][time],
        "timestamps": stream.get("timestamps", "external"),
    }


def _list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*before, *now)):
        if key not in before:
            yield f"{key} {now[key]} is new"
        elif key not in now:
            yield f"{key} {before[key]} is gone"
        elif before[key] != now[key]:
            yield f"{key} is {now[key]}, was {before[key]}"


def _compare_tables(record: PipelineRecord, spec: PipelineSpec) -> Iterator[str]:
    """Notes on tables that are not as they were: the run uses them as they are now."""
    now, digests = spec.describe()["tables"], digest_tables(spec)
    for name, before in record.declared["tables"].items():
        if name not in now:
            continue
        parts = list(_list_differences(before["columns"], now[name]["columns"]))
        old = record.table_digests.get(name, digests[name])
        if old != digests[name]:
            parts.append(f"other rows ({count_digest_rows(digests[name])}, was {count_digest_rows(old)})")
        if parts:
            yield f"table {name}: {'; '.join(parts)}; results from now on use the table as it is now"


# ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _QueryComparison:
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
        numberless = tuple(replace(query, inlets=(), since=0) for query in wanted)
        self._trial = Layout(spec.with_config(PipelineConfig(numberless)))
        self._wanted = wanted
        self._old_queries = _bind_queries(record)
        self._old_scans = _list_scans(record)

    def choose(self) -> tuple[QuerySpec, ...]:
        """The queries of the run: those that continue, with their inlets, and new ones."""
        changed = [query.name for query in self._wanted if self._is_changed(query)]
        lost = self._find_lost_windows(changed)
        for query in self._wanted:
            self._note_query(query, changed, lost)
        names = {query.name.casefold() for query in self._wanted}
        for key, query in self._known.items():
            if key not in names and not query.added:
                self.notes.append(f"query {query.name} is not declared any more; its windows are dropped")
        return tuple(self._choose_query(query, changed, lost) for query in self._wanted)

    def _check_related(self, spec: PipelineSpec) -> None:
        """Refuse a checkpoint that has queries, but none of the declared ones."""
        if self._known and not self._evolve and not any(q.name.casefold() in self._known for q in spec.queries):
            names = ", ".join(query.name for query in self._known.values())
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {self._place} belongs to another pipeline: its queries are {names}; "
                f"give this pipeline a checkpoint of its own, or {_EVOLVE} to replace them",
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
                    f"{query.text!r}, sink=...), or {_EVOLVE} to drop it",
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
                f"  {query.text}\n{_EVOLVE} to take over the new one, "
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
                    f"{_EVOLVE} to start this query with empty windows",
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
        return replace(found, inlets=self._place_inlets(query.name, same.inlets))

    def _place_inlets(self, name: str, inlets: Sequence[int]) -> tuple[int, ...]:
        """The inlets of a query by FROM item: tables may stand elsewhere than before."""
        items = [scan.item_index for scan in self._trial.scans[name]]
        by_item = dict(zip(items, filter(None, inlets), strict=True))
        return tuple(by_item.get(item, 0) for item in range(count_items(self._trial.spec.bound_queries[name].body)))


def _bind_queries(record: PipelineRecord) -> dict[str, Query]:
    """The queries of a record that this version can bind."""
    found: dict[str, Query] = {}
    catalog = record.build_spec(PipelineConfig(tuple(q for q in record.config.queries if q.derived))).catalog
    for query in record.config.queries:
        try:
            found[query.name] = bind_query(query.text, catalog)
        except PenstockError:
            continue
    return found


def _list_scans(record: PipelineRecord) -> Mapping[str, list[StreamScan]]:
    """The FROM items of the queries of a record."""
    try:
        return Layout(record.build_spec(record.config)).scans
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
