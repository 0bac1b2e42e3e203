"""The joins of an engine that queries can share, and how such a join rests in a snapshot.

A query takes a place in a running join that fits (see `plan.join_sharing`), has its state policy and waits for whole
instants if it does. A join at rest is told in the aliases and classes of the first query that shares it: that one
founds it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from penstock.graph.graph import Node
from penstock.join.demand.gate import Kept
from penstock.join.operator import JoinOperator
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import Slicing
from penstock.join.sharing.shared_needs import Since
from penstock.join.state_policy import Policy
from penstock.plan.join_sharing import fitting, nested, terms
from penstock.plan.query import JoinPart
from penstock.plan.tree import fixed, renamed, subtrees


@dataclass(frozen=True)
class Place:
    """A join to share, and its alias for each of the query's."""

    node: Node
    join: JoinOperator
    renaming: Mapping[str, str]
    nested: bool = False
    """Whether the query reads a node of the join's tree, not all of it."""


@dataclass(frozen=True)
class Terms:
    """What queries that share a join must agree on besides the join: what it keeps, and whether instants are whole."""

    state: str
    demand: Kept
    whole: bool


class Groups:
    """The joins there are, by what must agree at first sight."""

    def __init__(self, *, share: bool, slicing: Slicing, nest: bool) -> None:
        """`nest`: queries may read a node of another's join, which binds that one's plan."""
        self._share = share
        self._nest = share and nest
        self.slicing = slicing
        self.purse: object = None
        """Of the query that is placed next: it shares joins of that purse only; see `JoinOperator.purse`."""
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
            join.reslice(slicing)

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
        self._seated = {}

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
            if renaming is None or join.purse is not self.purse:
                continue
            if not _counts_alike(join, renaming, counting):
                continue
            if not planned or renamed(part.plan.tree, renaming) == join.shape:
                return Place(node, join, renaming)
        return None

    def nested(self, part: JoinPart, agreed: Terms, counting: Mapping[str, int], *, planned: bool) -> Place | None:
        """A running join one of whose nodes is the query's, of the shape asked for; `counting` as in `fitting`.

        Only where all rows are built, or may be: `auto` builds all then.
        """
        if (
            not self._nest
            or self._seats is not None
            or self.purse is not None
            or agreed.whole
            or agreed.state not in _NESTING
        ):
            return None
        for node, join, whole in self._joins:
            busy = join.purse is not None or join.tree.shedding is not None
            if whole or busy or (join.state, join.demand) != (agreed.state, agreed.demand):
                continue
            renaming = nested(part, join.group.sharing.host, join.shape)
            if renaming is None or join.tree.tap not in (None, frozenset(renaming.values())):
                continue
            if not _counts_alike(join, renaming, counting):
                continue
            shape = renamed(part.plan.tree, renaming)
            if not planned or shape in list(subtrees(fixed(join.shape))):
                return Place(node, join, renaming, nested=True)
        return None


_NESTING = ("eager", "auto")


def _counts_alike(join: JoinOperator, renaming: Mapping[str, str], counting: Mapping[str, int]) -> bool:
    """Whether all who read these items of a join count them from the same arrivals on."""
    return all(
        party.first(renaming[alias]) == first
        for alias, first in counting.items()
        for party in join.group.sharing.parties
        if party.reads(renaming[alias])
    )


def _sight(part: JoinPart, agreed: Terms) -> object:
    return tuple(sorted((source.relation.name, source.is_table) for source in part.sources)), agreed


# ── at rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def dump_join(join: JoinOperator, founder: Member, part: JoinPart) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """A join as plain values and tables, in the words of the query that will found it again."""
    own = {theirs: mine for mine, theirs in founder.renaming.items()}
    mine = {terms(class_, founder.renaming): class_.id for class_ in part.graph.classes}
    classes = {}
    for class_ in join.tree.plan.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in own)
        if bound in mine:
            classes[f"_term{class_.id}"] = f"_term{mine[bound]}"
    rest = join.dump(founder.need.scope)
    parties = rest.parties
    values = {
        "done": rest.done,
        "unread": {own[alias]: rows for alias, rows in rest.unread.items()},
        "parties": [
            {
                "numbers": {own[a]: n for a, n in party.since.numbers},
                "drained": party.since.drained,
                "lacks": party.lacks,
            }
            for party in parties
        ],
        "members": {m.name: parties.index(m.party) for m in join.group.members if m.need.scope == founder.need.scope},
        "complete_since": {m.name: m.complete_since for m in join.group.members},
        "interest": rest.sets,
        "kept_after": {own[alias]: times for alias, times in rest.kept_after.items()},
        "slicing": join.group.slicing,
        "policies": [
            {"node": sorted(own[alias] for alias in node), "policy": asdict(policy)}
            for node, policy in join.tree.exceptions.items()
            if node <= own.keys()
        ],
    }
    tables = {}
    for alias, table in rest.tables.items():
        told = table.select([name for name in table.column_names if name in classes or not name.startswith("_term")])
        tables[own[alias]] = told.rename_columns([classes.get(name, name) for name in told.column_names])
    return values, tables


def revive_join(join: JoinOperator, values: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Put a join that all of its queries have entered back to where a dump found it."""
    for each in values["policies"]:
        join.tree.adopt(Policy(**each["policy"]), frozenset(each["node"]))
    sinces = [Since(tuple(sorted(p["numbers"].items())), p["drained"]) for p in values["parties"]]
    lacks = [p["lacks"] for p in values["parties"]]
    join.group.arrange(sinces, lacks, values["members"], values["complete_since"])
    join.revive(tables, values["kept_after"], values["unread"], values["done"], values["interest"])
    join.reslice(values["slicing"])
