"""The early reader: a node of a join tree reads ahead of the tree, so that queries over its streams alone do not wait.

Law: the node's rows are found once. Queries that read the node get them as soon as its own streams allow; the tree
above takes the same rows when all streams are that far. `roll_back` removes everything that is ahead, so that the join
can be changed as if no node read ahead; `read_again` returns the tuples to read again afterwards, without output.

State: the rows that the tree has not taken yet, and for each stream a second position in its arc, that of the join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.join.join_rows import JoinRows, concat_rows
from penstock.join.leaf_store import LeafStore
from penstock.ops import Batch, Inlet
from penstock.state import ALWAYS, Renumbering


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
        """Whether the tree can take rows up to a time."""
        return any(bool((rows.born <= until).any()) for rows in self._parts)

    def take(self) -> JoinRows:
        """The rows that are born by `until`."""
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
        """Leaf rows have new ids; the parts of pending rows are all alive."""
        for rows in self._parts:
            for place, alias in enumerate(self.aliases):
                if alias in renumbered:
                    rows.ids[place] = renumbered[alias].apply(rows.ids[place])[0]


class EarlyReader:
    """The streams of an early node: how far it has read, and how far the whole join is in arcs and windows."""

    def __init__(self, inlets: Mapping[str, Inlet], stores: Mapping[str, LeafStore], done: int) -> None:
        self.inlets = inlets
        self.done = done
        self._stores = stores
        self._join_inlets = {alias: inlet.fork() for alias, inlet in inlets.items()}
        self._marks = {alias: stores[alias].rows.end for alias in inlets}

    def move_to(self, done: int, unread: Mapping[str, int]) -> None:
        """Continue where another join was: its rows were stored, and `unread` tuples of each stream wait.

        The whole join does not need these rows: for it they are processed, although some are newer than it.
        """
        self.done = done
        for alias, rows in unread.items():
            self.inlets[alias].rewind(rows)
            self._join_inlets[alias].rewind(rows)
            self._marks[alias] = self._stores[alias].rows.end

    def advance(self, until: int) -> None:
        """The whole join has processed everything up to `until`.

        Rows that were taken over count as processed from the start. None of them dies before the join is past them all,
        so a mark that is ahead of the time is not one of rows that have new ids.
        """
        for alias, inlet in self._join_inlets.items():
            inlet.read(until)
            self._marks[alias] = max(self._marks[alias], self._stores[alias].rows.find_first_after(until))

    def mark(self, alias: str) -> int:
        """The first row of a window that the whole join has not processed."""
        return self._marks[alias]

    def unread(self, alias: str) -> int:
        """How many tuples of a stream the whole join has not read."""
        return self._join_inlets[alias].waiting()

    def roll_back(self) -> dict[str, int]:
        """Reset windows and arcs to the position of the whole join; returns how many tuples were ahead, by stream."""
        ahead = {}
        for alias, inlet in self.inlets.items():
            unread = self.unread(alias)
            ahead[alias] = unread - inlet.waiting()
            inlet.rewind(unread)
            self._stores[alias].truncate(self._marks[alias], ahead[alias])
        return ahead

    def read_again(self, ahead: Mapping[str, int]) -> dict[str, list[Batch]]:
        """The tuples that were ahead before a roll-back."""
        return {alias: inlet.take(ahead[alias]) for alias, inlet in self.inlets.items()}

    def close(self) -> None:
        for inlet in self._join_inlets.values():
            inlet.close()
