"""How a declared pipeline continues a checkpoint. Pure functions over values.

Queries are compared as bound queries, so spaces, comments and the case of keywords do not matter. What differs is
refused, or with `evolve` taken over: a query continues with the rows of its windows if these are the rows it needs, and
otherwise starts with empty windows. Each such change gives a note for the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.cql import format_duration, to_arrow_type
from penstock.errors import QueryError
from penstock.spark.driver.pipeline_record import PipelineRecord, digest_tables, record_pipeline
from penstock.spark.driver.query_comparison import EVOLVE_HINT, QueryComparison
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import PipelineConfig, QuerySpec
from penstock.spark.spec import PipelineSpec, count_digest_rows


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
    queries = QueryComparison(place, record, spec, generation, evolve=evolve)
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
    inlets = {
        number: replace(inlet, columns=_adopt_columns(inlet.columns, now["streams"].get(inlet.stream)))
        for number, inlet in record.inlets.items()
    }
    return replace(record, declared={**record.declared, **adopted}, inlets=inlets)


def _adopt_kind(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {**entry, "columns": _adopt_columns(entry["columns"], now.get(name))} for name, entry in before.items()
    }


def _adopt_columns(before: Mapping[str, str], now: Mapping[str, Any] | None) -> dict[str, str]:
    declared = {} if now is None else now["columns"]
    zoned = ("timestamp", "timestamp(UTC)")
    return {name: zoned[1] if (kind, declared.get(name)) == zoned else kind for name, kind in before.items()}


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
                f"the checkpoint {place} has another stream {name}: {'; '.join(parts)}; {EVOLVE_HINT} to continue with "
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
