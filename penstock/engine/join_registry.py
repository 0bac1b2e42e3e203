"""The joins of an engine, and how a new query finds one to share.

A query shares a running join that fits (see `plan.join_sharing`) and has the same state policy and budget scope. Some
members may wait for whole instants and others not. Only FRESHNESS keeps them apart: a budget may leave out results of a
query with FRESHNESS, and aggregates that share its join would be wrong then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.graph import Node
from penstock.join import DemandFilter, JoinOperator, Slicing, StartPoint, can_be_taken_over
from penstock.plan import (
    JoinPart,
    PlanShape,
    accepts_losses,
    can_be_shared,
    derive_requirement,
    find_nested_renaming,
    find_shared_renaming,
    list_joins,
    rename_leaves,
    require_tree,
)


@dataclass(frozen=True)
class JoinMatch:
    """A join to share, and its alias for each of the query's."""

    node: Node
    join: JoinOperator
    renaming: Mapping[str, str]
    nested: bool = False
    """Whether the query reads a node of the join's tree, not all of it."""
    start: StartPoint | None = None
    """From where on the query gets tuples, if it has run before."""


@dataclass(frozen=True)
class SharingTerms:
    """What the queries of a join must agree on besides the join: its state."""

    state: str
    demand: DemandFilter
    grouped: bool = False
    """Whether the join groups the rows of one stream for its queries."""


@dataclass(frozen=True)
class JoinRequest:
    """A join of a new query. `place`: the how many-th of the query's joins it is, from 0."""

    place: int
    part: JoinPart
    terms: SharingTerms
    waits: bool
    """Whether the query gets the rows of an instant when all of them are known, and not before."""
    reads_ends: bool
    """Whether it matters to the query when its rows leave."""
    count_starts: Mapping[str, int]
    """The items whose rows expire by a count that must start at these arrivals, for all queries that share."""
    budget_scope: object
    plan_given: bool


class JoinPlacement(Protocol):
    """Decides which running join a new query shares."""

    def find_match(self, request: JoinRequest) -> JoinMatch | None:
        """A running join that the query can share; None: it needs a new one."""

    def find_nested_match(self, request: JoinRequest) -> JoinMatch | None:
        """A running join one of whose nodes is the query's join; None if there is none."""

    @property
    def shares_groups(self) -> bool:
        """Whether the query can be a member of a join that groups rows."""

    def add(self, request: JoinRequest, node: Node, join: JoinOperator) -> None:
        """Register a join that was created for a request."""


@dataclass(frozen=True)
class _RegisteredJoin:
    """A running join, and what queries must agree on to share it."""

    node: Node
    join: JoinOperator
    grouped: bool
    budget_scope: object
    """Queries of the same scope may share the join; None is the scope of the engine."""

    @property
    def signature(self) -> object:
        terms = SharingTerms(self.join.state, self.join.demand, self.grouped)
        return _make_signature(self.join.shared_join.needs.host, terms)


class JoinRegistry:
    """All joins of an engine. As a placement it shares joins wherever they fit."""

    def __init__(self, *, share: bool, slicing: Slicing, nest: bool) -> None:
        """`nest`: queries may read a node of another query's join, which then keeps this node in its plan."""
        self._allow_sharing = share
        self._allow_nesting = share and nest
        self.slicing = slicing
        self._joins: dict[JoinOperator, _RegisteredJoin] = {}
        self._by_signature: dict[object, list[_RegisteredJoin]] = {}

    def __iter__(self) -> Iterator[JoinOperator]:
        return iter(self._joins)

    @property
    def shares_groups(self) -> bool:
        return self._allow_sharing

    def add(self, request: JoinRequest, node: Node, join: JoinOperator) -> None:
        self._joins[join] = _RegisteredJoin(node, join, request.terms.grouped, request.budget_scope)
        join.shared_join.slicing = self.slicing
        self._reindex()

    def remove(self, join: JoinOperator) -> None:
        del self._joins[join]
        self._reindex()

    def set_budget_scope(self, join: JoinOperator, scope: object) -> None:
        """Change which queries may share a join."""
        if self._joins[join].budget_scope is not scope:
            self._joins[join] = replace(self._joins[join], budget_scope=scope)
            self._reindex()

    def reslice(self, slicing: Slicing) -> None:
        """Change the slices of all joins, and of those that will be added."""
        self.slicing = slicing
        for join in self:
            join.reslice(slicing)

    def set_policy(self, join: JoinOperator, state: str, demand: DemandFilter) -> None:
        """Change the state policy of a join, for all queries that share it."""
        join.set_policy(state, demand)
        self._reindex()

    @contextmanager
    def load(self) -> Iterator[None]:
        """Let the joins store tuples inside, where possible, without joining them."""
        for join in self:
            join.begin_loading()
        stale = [(member, member.stale) for join in self for member in join.shared_join.members]
        yield
        for member, count in stale:  # what was left out is counted where it was found
            member.stale = count
        for join in self:
            join.end_loading()

    def _reindex(self) -> None:
        self._by_signature = {}
        for entry in self._joins.values():
            if can_be_shared(entry.join.shared_join.needs.host):
                self._by_signature.setdefault(entry.signature, []).append(entry)

    def find_match(self, request: JoinRequest) -> JoinMatch | None:
        """If the user gave the plan of the query, the join must have that shape."""
        part = request.part
        streams = sum(not source.is_table for source in part.sources)
        probes = streams > 1 or request.terms.grouped
        if not self._allow_sharing or not probes or not can_be_shared(part):
            return None
        for entry in self._by_signature.get(_make_signature(part, request.terms), ()):
            join = entry.join
            renaming = find_shared_renaming(part, join.shared_join.needs.host)
            if renaming is None or entry.budget_scope is not request.budget_scope or _would_distort(join, request):
                continue
            if not _has_same_counts(join, renaming, request.count_starts):
                continue
            need = derive_requirement(part, renaming)
            if not join.shared_join.fits_counts(need, reads_ends=request.reads_ends):
                continue
            if not request.plan_given or rename_leaves(part.plan.tree, renaming) == join.shape:
                return JoinMatch(entry.node, join, renaming)
        return None

    def find_narrower(self, wide: JoinOperator) -> tuple[JoinOperator, dict[str, str]] | None:
        """A running join that a new one has as a node, with the new join's aliases for its own; the largest of them."""
        place, host = self._joins[wide], wide.shared_join.needs.host
        bound = place.budget_scope is not None or wide.tree.shedding is not None
        if not self._allow_nesting or bound or wide.state not in _NESTABLE_POLICIES or not can_be_shared(host):
            return None
        found = []
        for entry in self._joins.values():
            join, part = entry.join, entry.join.shared_join.needs.host
            apart = entry.grouped or entry.budget_scope is not None or not can_be_shared(part)
            if apart or (join.state, join.demand) != (wide.state, wide.demand) or not can_be_taken_over(join):
                continue
            names = find_nested_renaming(part, host, wide.shape)
            if names is None or wide.shared_join.would_distort(losing=join.shared_join.accepts_losses, waiting=False):
                continue
            nodes: list[PlanShape] = list(list_joins(require_tree(wide.shape)))
            if rename_leaves(join.shape, names) in nodes:
                found.append((join, names))
        return max(found, key=lambda each: len(each[1]), default=None)

    def find_node(self, join: JoinOperator) -> Node:
        """The join in the graph."""
        return self._joins[join].node

    def find_nested_match(self, request: JoinRequest) -> JoinMatch | None:
        """Only joins under a policy that builds all rows, or can: `auto` builds all rows then."""
        part, terms = request.part, request.terms
        if (
            not self._allow_nesting
            or request.budget_scope is not None
            or request.waits
            or terms.state not in _NESTABLE_POLICIES
            or not can_be_shared(part)
        ):
            return None
        for entry in self._joins.values():
            join = entry.join
            bound = entry.budget_scope is not None or join.tree.shedding is not None
            if bound or _would_distort(join, request) or (join.state, join.demand) != (terms.state, terms.demand):
                continue
            if not can_be_shared(join.shared_join.needs.host):
                continue
            renaming = find_nested_renaming(part, join.shared_join.needs.host, join.shape)
            if renaming is None or join.tree.early_aliases not in (None, frozenset(renaming.values())):
                continue
            if not _has_same_counts(join, renaming, request.count_starts):
                continue
            shape = rename_leaves(part.plan.tree, renaming)
            if not request.plan_given or shape in list(list_joins(require_tree(join.shape))):
                return JoinMatch(entry.node, join, renaming, nested=True)
        return None


_NESTABLE_POLICIES = ("eager", "auto")


@dataclass(frozen=True)
class ChosenNode:
    """The placement of a query that reads a node of a join, which was chosen before."""

    match: JoinMatch
    shares_groups: bool = False

    def find_match(self, request: JoinRequest) -> JoinMatch | None:  # noqa: ARG002
        return None

    def find_nested_match(self, request: JoinRequest) -> JoinMatch | None:  # noqa: ARG002
        return self.match

    def add(self, request: JoinRequest, node: Node, join: JoinOperator) -> None:
        """A query that reads a node has no join of its own."""


@dataclass(frozen=True)
class RestoredJoins:
    """The joins of a snapshot: queries share exactly the joins that they shared when it was taken.

    `join_ids` are the numbers of one query's joins, in the order of its plan; `restored` collects the joins by number.
    """

    registry: JoinRegistry
    join_ids: tuple[int, ...] = ()
    shares_groups: bool = False
    restored: dict[int, tuple[Node, JoinOperator]] = field(default_factory=dict)

    def for_query(self, join_ids: tuple[int, ...], *, groups: bool = False) -> RestoredJoins:
        """The placement for a query with joins of these numbers; `groups`: one of them grouped its rows."""
        return RestoredJoins(self.registry, join_ids, groups, self.restored)

    def find_match(self, request: JoinRequest) -> JoinMatch | None:
        found = self.restored.get(self.join_ids[request.place])
        if found is None:
            return None
        renaming = find_shared_renaming(request.part, found[1].shared_join.needs.host)
        return None if renaming is None else JoinMatch(*found, renaming)

    def find_nested_match(self, request: JoinRequest) -> JoinMatch | None:  # noqa: ARG002
        """A query that read a node of another query's join was saved with a join of its own."""
        return None

    def add(self, request: JoinRequest, node: Node, join: JoinOperator) -> None:
        self.registry.add(request, node, join)
        self.restored[self.join_ids[request.place]] = node, join


def _has_same_counts(join: JoinOperator, renaming: Mapping[str, str], count_starts: Mapping[str, int]) -> bool:
    """Whether all queries that read these items of a join count their rows from the same arrivals on."""
    return all(
        group.first_number(renaming[alias]) == first
        for alias, first in count_starts.items()
        for group in join.shared_join.needs.filter_groups
        if group.reads(renaming[alias])
    )


def _would_distort(join: JoinOperator, request: JoinRequest) -> bool:
    """Whether a budget that one of the queries accepts would make another one wrong."""
    return join.shared_join.would_distort(losing=accepts_losses(request.part), waiting=request.waits)


def _make_signature(part: JoinPart, terms: SharingTerms) -> object:
    return tuple(sorted((source.relation.name, source.is_table) for source in part.sources)), terms
