"""A node of a join tree that has come further than the tree: queries over its streams alone do not wait for the others.

Law: the node's rows are found once. Queries that read the node are given them as soon as its own streams allow, the
tree above takes the same rows when all streams have come that far. `Tap.retreat` undoes what is ahead, so that the join
can be changed as if no part of it were; `Tap.again` is what must be read again then, without telling anybody.

State: rows the tree has not taken yet, and for each stream a second place in its arc, that of the whole join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_store import LeafStore
from penstock.ops.protocol import Batch, Inlet
from penstock.state.kernels import ALWAYS
from penstock.state.renumbering import Renumbering


@dataclass
class PendingRows:
    """The rows of a node that the tree above it has not taken, and the time up to which it takes them."""

    aliases: tuple[str, ...]
    until: int = int(ALWAYS)
    _parts: list[JoinRows] = field(default_factory=list)

    def add(self, rows: JoinRows) -> None:
        if len(rows):
            self._parts.append(rows)

    def has_due(self, until: int) -> bool:
        """Whether the tree has something to take up to a time."""
        return any(bool((rows.born <= until).any()) for rows in self._parts)

    def take(self) -> JoinRows:
        """The rows whose time has come."""
        rows = concat_rows(self._parts, len(self.aliases))
        now = rows.born <= self.until
        self._parts = []
        if now.all():
            return rows
        self.add(rows.take(~now))
        return rows.take(now)

    def clear(self) -> None:
        self._parts = []

    def renumber(self, renumbered: Mapping[str, Renumbering]) -> None:
        """Leaf rows got new ids; those of rows that wait all live."""
        for rows in self._parts:
            for place, alias in enumerate(self.aliases):
                if alias in renumbered:
                    rows.ids[place] = renumbered[alias].apply(rows.ids[place])[0]


class EarlyReader:
    """The streams of a node that runs ahead: how far it is, and where the whole join stands in arcs and windows."""

    def __init__(self, inlets: Mapping[str, Inlet], stores: Mapping[str, LeafStore], done: int) -> None:
        self.inlets = inlets
        self.done = done
        self._stores = stores
        self._join_inlets = {alias: inlet.fork() for alias, inlet in inlets.items()}
        self._marks = {alias: stores[alias].rows.end for alias in inlets}

    def advance(self, until: int) -> None:
        """The whole join has come to `until`."""
        for alias, place in self._join_inlets.items():
            place.read(until)
            self._marks[alias] = self._stores[alias].rows.find_first_after(until)

    def mark(self, alias: str) -> int:
        """The first row of a window that the whole join has not seen."""
        return self._marks[alias]

    def unread(self, alias: str) -> int:
        """How many tuples of a stream the whole join has not read."""
        return self._join_inlets[alias].waiting()

    def roll_back(self) -> dict[str, int]:
        """Put windows and arcs back to where the whole join stands; returns how many tuples were ahead, by stream."""
        ahead = {}
        for alias, inlet in self.inlets.items():
            unread = self.unread(alias)
            ahead[alias] = unread - inlet.waiting()
            inlet.rewind(unread)
            self._stores[alias].truncate(self._marks[alias], ahead[alias])
        return ahead

    def read_again(self, ahead: Mapping[str, int]) -> dict[str, list[Batch]]:
        """The tuples that were ahead before a retreat."""
        return {alias: inlet.take(ahead[alias]) for alias, inlet in self.inlets.items()}

    def close(self) -> None:
        for place in self._join_inlets.values():
            place.close()
