"""The joins of an engine that queries can share, and how such a join rests in a snapshot.

A query takes a place in a running join that fits (see `plan.share`), has its state policy and waits for whole instants
if it does. A join at rest is told in the aliases and classes of the first query that shares it: that one founds it
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.graph.graph import Node
from penstock.ops.group import Slicing
from penstock.ops.join import JoinOperator
from penstock.ops.member import Member
from penstock.ops.sharing import Since
from penstock.plan.query import JoinPart
from penstock.plan.share import fitting, terms
from penstock.plan.tree import renamed
from penstock.state.demand import Kept


@dataclass(frozen=True)
class Place:
    """A join to share, and its alias for each of the query's."""

    node: Node
    join: JoinOperator
    renaming: Mapping[str, str]


@dataclass(frozen=True)
class Terms:
    """What queries that share a join must agree on besides the join: what it keeps, and whether instants are whole."""

    state: str
    demand: Kept
    whole: bool


class Groups:
    """The joins there are, by what must agree at first sight."""

    def __init__(self, *, share: bool, slicing: Slicing) -> None:
        self._share = share
        self.slicing = slicing
        self._joins: list[tuple[Node, JoinOperator, bool]] = []
        self._by_sight: dict[object, list[tuple[Node, JoinOperator]]] = {}
        self._seats: Iterator[int] | None = None
        self._seated: dict[int, tuple[Node, JoinOperator]] = {}

    def __iter__(self) -> Iterator[JoinOperator]:
        return (join for _, join, _ in self._joins)

    def add(self, node: Node, join: JoinOperator, whole: bool) -> None:
        """Let others share a join; `whole`: it waits for whole instants."""
        self._joins.append((node, join, whole))
        join.group.slicing = self.slicing
        self._sort()
        if self._seats is not None:
            self._seated[self._seat] = node, join

    def remove(self, join: JoinOperator) -> None:
        self._joins = [entry for entry in self._joins if entry[1] is not join]
        self._sort()

    def reslice(self, slicing: Slicing) -> None:
        """Let all joins, and those to come, keep tuples by other slices."""
        self.slicing = slicing
        for join in self:
            join.group.reslice(slicing)

    def adopt(self, join: JoinOperator, state: str, demand: Kept) -> None:
        """Change the policy of a join for all who share it."""
        join.adopt(state, demand)
        self._sort()

    def _sort(self) -> None:
        self._by_sight = {}
        for node, join, whole in self._joins:
            self._by_sight.setdefault(
                _sight(join.group.sharing.host, Terms(join.state, join.demand, whole)), []
            ).append((node, join))

    def seat(self, seats: Iterable[int] | None) -> None:
        """From now on the next join to be placed takes the next of these seats, with all who had it; None: no more.

        So joins come back from a snapshot as they were, whatever could be shared otherwise.
        """
        self._seats = None if seats is None else iter(seats)

    def fitting(self, part: JoinPart, agreed: Terms, counting: Mapping[str, int], *, planned: bool) -> Place | None:
        """A running join in which the query can take a place; if its plan was asked for, one of that shape.

        `counting`: items whose tuples die by a count that must start with these arrivals, for all who share.
        """
        if self._seats is not None:
            self._seat = next(self._seats)
            found = self._seated.get(self._seat)
            renaming = None if found is None else fitting(part, found[1].group.sharing.host)
            return None if found is None or renaming is None else Place(*found, renaming)
        if not self._share or sum(not source.is_table for source in part.sources) < 2:
            return None
        for node, join in self._by_sight.get(_sight(part, agreed), ()):
            renaming = fitting(part, join.group.sharing.host)
            if renaming is None or join.private:
                continue
            if any(
                party.first(renaming[alias]) != first
                for alias, first in counting.items()
                for party in join.group.sharing.parties
            ):
                continue
            if not planned or renamed(part.plan.tree, renaming) == join.tree.plan.tree:
                return Place(node, join, renaming)
        return None


def _sight(part: JoinPart, agreed: Terms) -> object:
    return tuple(sorted((source.relation.name, source.is_table) for source in part.sources)), agreed


# ── at rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def dump_join(join: JoinOperator, founder: Member, part: JoinPart) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """A join as plain values and tables, in the words of the query that will found it again."""
    own = {theirs: mine for mine, theirs in founder.renaming.items()}
    mine = {terms(class_, founder.renaming): class_.id for class_ in part.graph.classes}
    classes = {class_.id: mine[frozenset(class_.terms)] for class_ in join.tree.plan.classes}
    parties = join.group.sharing.parties
    values = {
        "done": join.done,
        "unread": {own[alias]: rows for alias, rows in join.unread().items()},
        "parties": [
            {"numbers": {own[a]: n for a, n in party.since.numbers}, "drained": party.since.drained}
            for party in parties
        ],
        "members": {member.name: parties.index(member.party) for member in join.group.members},
        "interest": None if join.tree.interest is None else join.tree.interest.sets,
    }
    tables = {}
    for alias, table in join.dump().items():
        names = [f"_term{classes[int(name[5:])]}" if name.startswith("_term") else name for name in table.column_names]
        tables[own[alias]] = table.rename_columns(names)
    return values, tables


def revive_join(join: JoinOperator, values: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Put a join that all of its queries have entered back to where a dump found it."""
    sinces = [Since(tuple(sorted(p["numbers"].items())), p["drained"]) for p in values["parties"]]
    join.group.arrange(sinces, values["members"])
    join.revive(tables, values["unread"], values["done"], values["interest"])
