"""The arcs of a graph in a snapshot: their frontiers, and the rows that were written and not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.graph import Buffer, Reader
from penstock.ops import Changes, SavedState, as_batch, as_changes, as_table, undo


def dump_outlet(outlet: Buffer) -> SavedState:
    """The outlet of an operator that several queries read: each reader knows how many rows it has not read."""
    unread = outlet.unread()
    return SavedState({"frontier": outlet.frontier}, {} if unread is None else {"unread": as_table(unread)})


def restore_outlet(outlet: Buffer, saved: SavedState) -> None:
    """Put the unread rows back; readers go back to them with `rewind`."""
    outlet.advance(saved.values["frontier"])
    if "unread" in saved.tables:
        outlet.append(as_batch(saved.tables["unread"]))


def dump_arcs(arcs: Sequence[Reader]) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The arcs between the operators of one query, as values and tables."""
    unread = {f"arc {place}": arc.buffer.unread() for place, arc in enumerate(arcs)}
    tables = {name: as_table(batch) for name, batch in unread.items() if batch is not None}
    return {"frontiers": [arc.frontier for arc in arcs]}, tables


def restore_arcs(
    arcs: Sequence[Reader], values: Mapping[str, Any], tables: Mapping[str, pa.Table], current: Sequence[Changes | None]
) -> list[Changes | None]:
    """Put back the unread rows of the arcs.

    `current` are the current rows of each producer, None if it does not keep them. Returns those without the changes
    that the reader had not read.
    """
    for arc, frontier in zip(arcs, values["frontiers"], strict=True):
        arc.buffer.advance(frontier)
    seen = list(current)
    for place, (arc, rows) in enumerate(zip(arcs, current, strict=True)):
        if f"arc {place}" not in tables:
            continue
        unread = as_batch(tables[f"arc {place}"])
        if rows is not None:
            seen[place], unread = undo(rows, as_changes(unread))
        arc.buffer.append(unread)
    return seen
