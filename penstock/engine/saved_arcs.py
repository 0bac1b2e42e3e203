"""The arcs of a graph in a snapshot: their frontiers, and the rows that were written and not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.graph import Buffer, Reader
from penstock.ops import Batch, Changes, SavedState, apply_changes, as_batch, as_changes, as_table, undo


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
    unread = {_name_arc(place): arc.unread() for place, arc in enumerate(arcs)}
    tables = {name: as_table(batch) for name, batch in unread.items() if batch is not None}
    return {"frontiers": [arc.frontier for arc in arcs]}, tables


@dataclass(frozen=True)
class SavedArc:
    """An arc in a snapshot: its frontier, and the rows that its reader had not read."""

    frontier: int
    unread: Batch | None

    @property
    def waiting(self) -> int:
        return 0 if self.unread is None else len(self.unread)


def read_arcs(saved: SavedState) -> list[SavedArc]:
    """The arcs into an operator, in the order in which they were dumped."""
    tables = [saved.tables.get(_name_arc(place)) for place in range(len(saved.values.get("frontiers", ())))]
    unread = [None if table is None else as_batch(table) for table in tables]
    return [SavedArc(*arc) for arc in zip(saved.values.get("frontiers", ()), unread, strict=True)]


def _name_arc(place: int) -> str:
    return f"arc {place}"


@dataclass(frozen=True)
class WrittenRows:
    """What an operator had written: the current rows before some changes, and these changes, which wait in its outlet.

    `before` is None if the operator does not keep its current rows.
    """

    before: Changes | None
    unread: Batch | None

    def rewind(self, arc: Reader, waiting: int) -> Changes | None:
        """Move a reader to before its last rows; returns the current rows as it had read them."""
        arc.rewind(waiting)
        if self.before is None or self.unread is None or waiting == len(self.unread):
            return self.before
        return apply_changes(self.before, as_changes(self.unread.slice(0, len(self.unread) - waiting)))


def restore_outlet_rows(outlet: Buffer, arcs: Sequence[SavedArc], current: Changes | None) -> WrittenRows:
    """Put back the rows that some reader of a part had not read; `current` are the current rows of the part."""
    for arc in arcs:
        outlet.advance(arc.frontier)
    longest = max(arcs, key=lambda arc: arc.waiting, default=None)
    if longest is None or longest.unread is None:
        return WrittenRows(current, None)
    before, unread = (None, longest.unread) if current is None else undo(current, as_changes(longest.unread))
    outlet.append(unread)
    return WrittenRows(before, unread)


def rewind_arcs(arcs: Sequence[Reader], saved: SavedState, inputs: Sequence[WrittenRows]) -> list[Changes | None]:
    """Move the readers of a part to where they were; returns the current rows of the inputs as they had read them."""
    waiting = (arc.waiting for arc in read_arcs(saved))
    return [rows.rewind(arc, count) for rows, arc, count in zip(inputs, arcs, waiting, strict=True)]
