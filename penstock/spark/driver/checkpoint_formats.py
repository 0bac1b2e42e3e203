"""The formats of `penstock.json`: this version reads its own and the one before, which it converts.

A converter takes the parsed file of its format and returns that of the next one. A new format needs a converter here
and a stored checkpoint in tests/spark/fixtures.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.expr import to_sql
from penstock.spark.inlet_record import record_inlets
from penstock.spark.layout import Layout, StreamScan
from penstock.spark.pipeline_config import PipelineConfig
from penstock.spark.route import RouteDimension
from penstock.spark.spec import build_declared_spec

FORMAT = 4


def convert_file(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parsed file in the present format; ValueError if this version cannot read it."""
    found = saved["format"]
    if isinstance(found, int) and found > FORMAT:
        raise ValueError(
            f"format {found} is that of a newer version of Penstock, this one reads up to {FORMAT}; "
            "update Penstock, or start with a new checkpoint"
        )
    while found != FORMAT:
        if found not in _CONVERTERS:
            raise ValueError(
                f"format {found} is too old, this version reads {min(_CONVERTERS)} to {FORMAT}; start it once with "
                "the version of Penstock that follows the one that wrote it, or start with a new checkpoint"
            )
        saved = _CONVERTERS[found](saved)
        found = saved["format"]
    return saved


def _convert_from_3(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Format 3 has no numbers of inlets: they were computed from the text of a route."""
    labels = {
        query["name"]: query["labels"] for _, config in saved["plans"] for query in config["queries"] if query["labels"]
    }
    layouts = []
    for first, entry in saved["plans"]:
        queries = [
            {
                **{key: value for key, value in query.items() if key != "labels"},
                "inlets": [],
                "added": False,
                "sink": None,
            }
            for query in entry["queries"]
        ]
        config = PipelineConfig.from_json({**entry, "queries": queries, "next_inlet": 1})
        layouts.append((first, _number_by_text(saved["declared"], config, labels)))
    record = {
        "first_batch": 0,
        "generation": saved["generation"],
        "declared": saved["declared"],
        "plans": [[first, layout.spec.config.as_json()] for first, layout in layouts],
        "inlets": {str(number): inlet.as_json() for number, inlet in record_inlets(layouts[-1][1]).items()},
        "table_digests": {},
        "dropped": [],
    }
    return {"format": 4, "run": saved["run"], "current": record, "before": record}


def _number_by_text(declared: Mapping[str, Any], config: PipelineConfig, labels: Mapping[str, list[int]]) -> Layout:
    layout = Layout(build_declared_spec(declared, config, declared["cells"]))
    queries = []
    for query in layout.spec.queries:
        numbers = [0] * len(query.inlets)
        for scan in layout.scans[query.name]:
            label = labels[query.name][scan.item_index] if query.name in labels else 0
            numbers[scan.item_index] = _compute_inlet_number(scan, label)
        queries.append(replace(query, inlets=tuple(numbers)))
    return Layout(layout.spec.with_inlets(replace(config, queries=tuple(queries))))


def _compute_inlet_number(scan: StreamScan, label: int) -> int:
    steps = [(step.share, _format_coordinate(step)) for step in scan.route.dimensions]
    return zlib.crc32(repr((scan.stream.name, scan.since, label, scan.route.first_cell, steps)).encode()) >> 1


def _format_coordinate(step: RouteDimension) -> str:
    if step.coordinate is None:
        return "copied"
    if step.coordinate.term is None:
        return "row"
    return to_sql(step.coordinate.term) + (" or NULL" if step.coordinate.keeps_nulls else "")


_CONVERTERS: Mapping[int, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {3: _convert_from_3}
"""By format, the function that converts to the next one."""
