"""What the state of a streaming frame records of its query, to compare it after a restart.

A frame has no file in the checkpoint: the user chooses that when the query is started. So every cell keeps the record
in its state. A query whose rows in the state would not be those that it needs is refused, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.cql import Query, bind_query
from penstock.errors import PenstockError, QueryError
from penstock.spark.inlet_record import record_inlets
from penstock.spark.layout import Layout
from penstock.spark.spec import PipelineSpec

FORMAT = 1


def encode_record(layout: Layout) -> bytes:
    """The record of a frame."""
    record = {
        "format": FORMAT,
        "declared": layout.spec.describe(),
        "queries": {query.name: query.text for query in layout.spec.queries},
        "inlets": {str(number): inlet.as_json() for number, inlet in record_inlets(layout).items()},
    }
    return json.dumps(record, sort_keys=True).encode()


def check_record(saved: bytes | None, layout: Layout) -> None:
    """Refuse to continue a state that was made by another query."""
    now = encode_record(layout)
    if saved == now:
        return
    if saved is None:
        message = "the checkpoint is that of another streaming query; give this one a checkpoint of its own"
        raise QueryError("CHECKPOINT_DIFFERS", message)
    old, new = json.loads(saved), json.loads(now)
    if old["format"] != FORMAT:
        message = "the checkpoint was made by another version of Penstock; start with a new checkpoint"
        raise QueryError("BAD_CHECKPOINT", message)
    if old["declared"]["cells"] != layout.spec.cells:
        cells = old["declared"]["cells"]
        raise QueryError(
            "CELLS_DIFFER",
            f"the checkpoint was made with {cells} cells, not {layout.spec.cells}: its state is divided that way; "
            f"write ps.sql(..., cells={cells})",
            cells=cells,
        )
    for name, text in old["queries"].items():
        if not _is_same_query(text, name, layout.spec):
            other = new["queries"].get(name, "is not declared")
            raise QueryError(
                "QUERY_DIFFERS",
                f"the checkpoint has another query; it was\n  {text}\nand is\n  {other}\nstart the new one with a new "
                "checkpoint, or use ps.Pipeline, whose queries may change while their windows stay",
                query=name,
            )
    difference = _find_difference(old["declared"]["streams"], new["declared"]["streams"])
    if difference is not None or old["inlets"] != new["inlets"]:
        reason = difference or "its rows are divided among the cells in another way"
        message = f"the checkpoint was made by a query over other columns: {reason}; start with a new checkpoint"
        raise QueryError("CHECKPOINT_DIFFERS", message)


def _is_same_query(text: str, name: str, spec: PipelineSpec) -> bool:
    """Whether a text is that of a query of the spec, apart from spaces, comments and the case of keywords."""
    query = spec.bound_queries.get(name)
    if query is None:
        return False
    try:
        return _strip_text(bind_query(text, spec.catalog)) == _strip_text(query)
    except PenstockError:
        return False


def _strip_text(query: Query) -> Query:
    return replace(query, text="")


def _find_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    for name in dict.fromkeys((*before, *now)):
        if before.get(name) != now.get(name):
            return f"{name} was {before.get(name)}, is {now.get(name)}"
    return None
