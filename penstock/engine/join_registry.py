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
from penstock.join.demand.gate import DemandFilter
from penstock.join.operator import JoinOperator
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import StartPoint
from penstock.join.sharing.slices import Slicing
from penstock.join.state_policy import StatePolicy
from penstock.plan.join_sharing import find_nested_renaming, find_shared_renaming, rename_terms
from penstock.plan.query import JoinPart
from penstock.plan.tree import list_joins, rename_leaves, require_tree


@dataclass(frozen=True)
class JoinMatch:
    """A join to share, and its alias for each of the query's."""

    node: Node
    join: JoinOperator
    renaming: Mapping[str, str]
    nested: bool = False
    """Whether the query reads a node of the join's tree, not all of it."""


@dataclass(frozen=True)
class SharingTerms:
    """What queries that share a join must agree on besides the join: what it keeps, and whether instants are whole."""

    state: str
    demand: DemandFilter
    whole_instants: bool


class JoinRegistry:
    """The joins there are, by what must agree at first sight."""

    def __init__(self, *, share: bool, slicing: Slicing, nest: bool) -> None:
        """`nest`: queries may read a node of another's join, which binds that one's plan."""
        self._allow_sharing = share
        self._allow_nesting = share and nest
        self.slicing = slicing
        self.budget_scope: object = None
        """Of the query that is placed next: it shares joins of that purse only; see `JoinOperator.purse`."""
        self._joins: list[tuple[Node, JoinOperator, bool]] = []
        self._by_signature: dict[object, list[tuple[Node, JoinOperator]]] = {}
        self._join_ids: Iterator[int] | None = None
        self._joins_by_id: dict[int, tuple[Node, JoinOperator]] = {}

    def __iter__(self) -> Iterator[JoinOperator]:
        return (join for _, join, _ in self._joins)

    def add(self, node: Node, join: JoinOperator, whole: bool) -> None:
        """Let others share a join; `whole`: it waits for whole instants."""
        self._joins.append((node, join, whole))
        join.shared_join.slicing = self.slicing
        self._reindex()
        if self._join_ids is not None:
            self._joins_by_id[self._join_id] = node, join

    def remove(self, join: JoinOperator) -> None:
        self._joins = [entry for entry in self._joins if entry[1] is not join]
        self._reindex()

    def reslice(self, slicing: Slicing) -> None:
        """Let all joins, and those to come, keep tuples by other slices."""
        self.slicing = slicing
        for join in self:
            join.reslice(slicing)

    def set_policy(self, join: JoinOperator, state: str, demand: DemandFilter) -> None:
        """Change the policy of a join for all who share it."""
        join.set_policy(state, demand)
        self._reindex()

    def _reindex(self) -> None:
        self._by_signature = {}
        for node, join, whole in self._joins:
            self._by_signature.setdefault(
                _make_signature(join.shared_join.needs.host, SharingTerms(join.state, join.demand, whole)), []
            ).append((node, join))

    def assign_join_ids(self, join_ids: Iterable[int] | None) -> None:
        """From now on the next join to be placed takes the next of these seats, with all who had it; None: no more.

        So joins come back from a snapshot as they were, whatever could be shared otherwise.
        """
        self._join_ids = None if join_ids is None else iter(join_ids)
        self._joins_by_id = {}

    def find_match(
        self, part: JoinPart, agreed: SharingTerms, count_starts: Mapping[str, int], *, plan_given: bool
    ) -> JoinMatch | None:
        """A running join in which the query can take a place; if its plan was asked for, one of that shape.

        `counting`: items whose tuples die by a count that must start with these arrivals, for all who share.
        """
        if self._join_ids is not None:
            self._join_id = next(self._join_ids)
            found = self._joins_by_id.get(self._join_id)
            renaming = None if found is None else find_shared_renaming(part, found[1].shared_join.needs.host)
            return None if found is None or renaming is None else JoinMatch(*found, renaming)
        if not self._allow_sharing or sum(not source.is_table for source in part.sources) < 2:
            return None
        for node, join in self._by_signature.get(_make_signature(part, agreed), ()):
            renaming = find_shared_renaming(part, join.shared_join.needs.host)
            if renaming is None or join.budget_scope is not self.budget_scope:
                continue
            if not _has_same_counts(join, renaming, count_starts):
                continue
            if not plan_given or rename_leaves(part.plan.tree, renaming) == join.shape:
                return JoinMatch(node, join, renaming)
        return None

    def find_nested_match(
        self, part: JoinPart, agreed: SharingTerms, count_starts: Mapping[str, int], *, plan_given: bool
    ) -> JoinMatch | None:
        """A running join one of whose nodes is the query's, of the shape asked for; `counting` as in `fitting`.

        Only where all rows are built, or may be: `auto` builds all then.
        """
        if (
            not self._allow_nesting
            or self._join_ids is not None
            or self.budget_scope is not None
            or agreed.whole_instants
            or agreed.state not in _NESTABLE_POLICIES
        ):
            return None
        for node, join, whole in self._joins:
            busy = join.budget_scope is not None or join.tree.shedding is not None
            if whole or busy or (join.state, join.demand) != (agreed.state, agreed.demand):
                continue
            renaming = find_nested_renaming(part, join.shared_join.needs.host, join.shape)
            if renaming is None or join.tree.early_aliases not in (None, frozenset(renaming.values())):
                continue
            if not _has_same_counts(join, renaming, count_starts):
                continue
            shape = rename_leaves(part.plan.tree, renaming)
            if not plan_given or shape in list(list_joins(require_tree(join.shape))):
                return JoinMatch(node, join, renaming, nested=True)
        return None


_NESTABLE_POLICIES = ("eager", "auto")


def _has_same_counts(join: JoinOperator, renaming: Mapping[str, str], count_starts: Mapping[str, int]) -> bool:
    """Whether all who read these items of a join count them from the same arrivals on."""
    return all(
        party.first_number(renaming[alias]) == first
        for alias, first in count_starts.items()
        for party in join.shared_join.needs.filter_groups
        if party.reads(renaming[alias])
    )


def _make_signature(part: JoinPart, agreed: SharingTerms) -> object:
    return tuple(sorted((source.relation.name, source.is_table) for source in part.sources)), agreed


# ── at rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def dump_join(join: JoinOperator, founder: Member, part: JoinPart) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """A join as plain values and tables, in the words of the query that will found it again."""
    own = {theirs: mine for mine, theirs in founder.renaming.items()}
    mine = {rename_terms(class_, founder.renaming): class_.id for class_ in part.graph.classes}
    classes = {}
    for class_ in join.tree.plan.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in own)
        if bound in mine:
            classes[f"_term{class_.id}"] = f"_term{mine[bound]}"
    rest = join.dump(founder.need.scope)
    parties = rest.filter_groups
    values = {
        "done": rest.done,
        "unread": {own[alias]: rows for alias, rows in rest.unread.items()},
        "parties": [
            {
                "numbers": {own[a]: n for a, n in party.start.first_numbers},
                "drained": party.start.drained_until,
                "lacks": party.missing_until,
            }
            for party in parties
        ],
        "members": {
            m.name: parties.index(m.filter_group)
            for m in join.shared_join.members
            if m.need.scope == founder.need.scope
        },
        "complete_since": {m.name: m.complete_since for m in join.shared_join.members},
        "interest": rest.sets,
        "kept_after": {own[alias]: times for alias, times in rest.column_gaps.items()},
        "slicing": join.shared_join.slicing,
        "policies": [
            {"node": sorted(own[alias] for alias in node), "policy": asdict(policy)}
            for node, policy in join.tree.node_policies.items()
            if node <= own.keys()
        ],
    }
    tables = {}
    for alias, table in rest.tables.items():
        told = table.select([name for name in table.column_names if name in classes or not name.startswith("_term")])
        tables[own[alias]] = told.rename_columns([classes.get(name, name) for name in told.column_names])
    return values, tables


def restore_join(join: JoinOperator, values: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """Put a join that all of its queries have entered back to where a dump found it."""
    for each in values["policies"]:
        join.tree.set_policy(StatePolicy(**each["policy"]), frozenset(each["node"]))
    sinces = [StartPoint(tuple(sorted(p["numbers"].items())), p["drained"]) for p in values["parties"]]
    lacks = [p["lacks"] for p in values["parties"]]
    join.shared_join.assign_filter_groups(sinces, lacks, values["members"], values["complete_since"])
    join.restore(tables, values["kept_after"], values["unread"], values["done"], values["interest"])
    join.reslice(values["slicing"])
