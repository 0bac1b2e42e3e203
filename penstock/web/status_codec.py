"""A status as plain values: whole for a record, and in parts for the page (the graph once, its figures often)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine import ArcStatus, EngineStatus, OperatorStatus, QueryStatus, StreamStatus, split_queries
from penstock.web.graph import GraphPicture
from penstock.web.picture import format_path


def encode_status(status: EngineStatus) -> dict[str, Any]:
    """A status as plain values."""
    return {
        "pushes": status.pushes,
        "busy": status.busy,
        "operators": list(map(vars, status.operators)),
        "arcs": list(map(vars, status.arcs)),
        "queries": list(map(vars, status.queries)),
        "streams": list(map(vars, status.streams)),
        "notices": list(status.notices),
    }


def decode_status(value: Mapping[str, Any]) -> EngineStatus:
    """The status of `encode_status`."""
    return EngineStatus(
        value["pushes"],
        value["busy"],
        tuple(OperatorStatus(**each) for each in value["operators"]),
        tuple(ArcStatus(**each) for each in value["arcs"]),
        *split_queries(QueryStatus(**each) for each in value["queries"]),
        tuple(StreamStatus(**each) for each in value["streams"]),
        tuple(value["notices"]),
    )


def is_same_structure(before: EngineStatus, after: EngineStatus) -> bool:
    """Whether the picture and the list of queries stay: only figures differ."""
    return (
        (before.facts is after.facts or before.facts == after.facts)
        and [(each.id, each.members) for each in before.operators]
        == [(each.id, each.members) for each in after.operators]
        and before.arcs == after.arcs
    )


def _list_operators(status: EngineStatus) -> list[tuple[str, int]]:
    return [(each.id, each.members) for each in status.operators]


def encode_queries(status: EngineStatus) -> list[dict[str, Any]]:
    """The parts of queries that seldom change."""
    return [{key: value for key, value in vars(each).items() if key != "operator"} for each in status.facts]


def encode_figures(status: EngineStatus) -> dict[str, Any]:
    """The figures of a status, in the order of its operators, queries and streams."""
    return {
        "operators": [
            [
                each.rows_out, each.state_rows, each.bytes, each.waiting, each.suppressed, each.demanded,
                each.complete, each.policy, each.members,
            ]
            for each in status.operators
        ],
        "queries": status.counts.emitted,
        "complete": list(status.counts.completeness.items()),
        "streams": [
            [each.name, each.arrived, each.late, each.dead, each.frontier, each.in_seconds] for each in status.streams
        ],
        "notices": list(status.notices),
    }  # fmt: skip


def encode_graph(picture: GraphPicture) -> dict[str, Any]:
    """A picture with its places; a reader only draws it."""
    layout = picture.layout
    return {
        "width": round(layout.width), "height": round(layout.height),
        "boxes": [
            {
                "id": box.id, "kind": box.kind, "title": box.title, "members": box.members, "count": box.count,
                "queries": box.queries, "notes": box.notes, "inner": box.inner,
                "x": round(layout.boxes[box.id][0], 1), "y": round(layout.boxes[box.id][1], 1),
                "width": round(picture.sizes[box.id].width), "height": round(picture.sizes[box.id].height),
            }
            for box in picture.boxes
        ],
        "lines": [
            {
                "source": line.source, "target": line.target, "ets": line.ets,
                "path": format_path(layout.arcs[line.source, line.target]),
                "end": layout.arcs[line.source, line.target][-1],
            }
            for line in picture.lines
        ],
    }  # fmt: skip
