"""Who shares a join: the queries' needs summed up into one plan and one interest.

Law: the plan keeps every column some query reads, every tuple as long as some query needs it, and tests only the
predicates that all queries have. Queries with equal filters, that take tuples from the same arrival on, are one party.
Cost: a query that comes or goes is counted in or out; nothing is summed up again for the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.errors import QueryError
from penstock.expr.nodes import Column, Expr, find_aliases, find_columns
from penstock.join.sharing.interest import GroupWindows, Interest
from penstock.plan.join_graph import JoinGraph
from penstock.plan.join_sharing import UNLIMITED, JoinRequirement, widen_window
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.query import JoinPart
from penstock.plan.tree import PlanShape
from penstock.state.kernels import ALWAYS
from penstock.state.maintenance import SHIPPED, Maintenance


@dataclass(frozen=True)
class StartPoint:
    """From when on a query takes tuples: for each stream, the first arrival number that counts.

    All tuples with smaller numbers are of the time `drained` at the latest: after it, none of them can come any more.
    """

    first_numbers: tuple[tuple[str, int], ...]
    drained_until: int


@dataclass(eq=False)
class FilterGroup:
    """A party: queries with the same filters. `lives` counts their windows."""

    filters: tuple[tuple[str, Expr], ...]
    start: StartPoint
    scope: frozenset[str] | None = None
    """The items its queries read, if those are not all."""
    window_counts: Counter[tuple[tuple[str, int], ...]] = field(default_factory=Counter)
    longest_windows: dict[str, int] = field(default_factory=dict)
    """The longest window on each stream that has windows in time."""
    missing_until: int = int(ALWAYS)
    """A time after which no tuple is missing that it wants: up to it, some may have come before it did."""
    failure: QueryError | None = None
    """Why its queries stopped: a filter could not be evaluated."""

    def reads(self, alias: str) -> bool:
        return self.scope is None or alias in self.scope

    def first_number(self, alias: str) -> int:
        """The first arrival number of a stream that counts."""
        return dict(self.start.first_numbers)[alias]

    def list_uniform_windows(self) -> list[int]:
        """The windows of queries with the same window on every stream."""
        return [lives[0][1] for lives in self.window_counts if lives and len({life for _, life in lives}) == 1]

    def count_windows(self, lives: tuple[tuple[str, int], ...], by: int) -> None:
        """Count a query's windows in or out."""
        _add_counts(self.window_counts, [lives], by)
        if by > 0:
            self.longest_windows = {alias: max(life, self.longest_windows.get(alias, 0)) for alias, life in lives}
        elif any(life == self.longest_windows[alias] for alias, life in lives):
            self.longest_windows = {}
            for each in self.window_counts:
                self.longest_windows = {alias: max(life, self.longest_windows.get(alias, 0)) for alias, life in each}

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        return tuple(expr for owner, expr in self.filters if owner == alias)


class SharedNeeds:
    """The sum of what some queries need of one join. `host` is the query that founded it; its aliases are used."""

    def __init__(self, host: JoinPart, maintenance: Maintenance = SHIPPED) -> None:
        self.host = host
        self._maintenance = maintenance
        self.filter_groups: list[FilterGroup] = []
        self._columns: Counter[tuple[str, str]] = Counter()
        self._shown: Counter[tuple[str, str]] = Counter()
        self._residuals: Counter[Expr] = Counter()
        self._queries: Counter[frozenset[str] | None] = Counter()

    @property
    def early_aliases(self) -> frozenset[str] | None:
        """The items of those who do not read all."""
        return next((party.scope for party in self.filter_groups if party.scope is not None), None)

    @property
    def divided(self) -> bool:
        """Whether a tuple may be wanted by some and not by others."""
        return len(self.filter_groups) > 1 or self.early_aliases is not None

    def add_query(self, need: JoinRequirement, start: StartPoint) -> FilterGroup:
        """Count a query in; returns its party."""
        same = (p for p in self.filter_groups if (p.filters, p.start, p.scope) == (need.filters, start, need.scope))
        party = next(same, None)
        if party is None:
            party = FilterGroup(need.filters, start, need.scope)
            self.filter_groups.append(party)
        self._count_need(need, party, 1)
        return party

    def remove_query(self, need: JoinRequirement, filter_group: FilterGroup) -> None:
        """Count a query out."""
        self._count_need(need, filter_group, -1)
        if not filter_group.window_counts:
            self.filter_groups.remove(filter_group)

    def assign_filter_groups(
        self,
        needs: Sequence[JoinRequirement],
        places: Sequence[int],
        starts: Sequence[StartPoint],
        missing_until: Sequence[int],
    ) -> list[FilterGroup]:
        """Divide the queries into parties by their places in a list of these; returns each query's party."""
        filters = dict(zip(places, (need.filters for need in needs), strict=True))
        self.filter_groups = [
            FilterGroup(filters[place], since, missing_until=missing)
            for place, (since, missing) in enumerate(zip(starts, missing_until, strict=True))
        ]
        for need, place in zip(needs, places, strict=True):
            self.filter_groups[place].count_windows(need.lifetimes, 1)
        return [self.filter_groups[place] for place in places]

    def merge(self, filter_group: FilterGroup, into: FilterGroup) -> None:
        """Count the queries of one party to another."""
        self.filter_groups.remove(filter_group)
        into.missing_until = max(into.missing_until, filter_group.missing_until)
        for lives, queries in filter_group.window_counts.items():
            into.count_windows(lives, queries)

    def _count_need(self, need: JoinRequirement, filter_group: FilterGroup, by: int) -> None:
        _add_counts(self._queries, [need.scope] * abs(by), by)
        _add_counts(self._columns, need.input_columns, by)
        _add_counts(self._shown, need.output_columns, by)
        _add_counts(self._residuals, need.residuals, by)
        filter_group.count_windows(need.lifetimes, by)

    def build_plan(self, tree: PlanShape) -> JoinPlan:
        """The plan of the join in a shape. A single party's filters are the leaves' own."""
        sources = self.host.sources
        schemas = {source.alias: source.relation.schema for source in sources}
        longest = self.find_longest_windows()
        wide = tuple(widen_window(source, longest.get(source.alias)) for source in sources)
        filters = self._list_table_filters() if self.divided else self.filter_groups[0].filters
        graph = JoinGraph(self.host.graph.aliases, self.host.graph.classes, filters, self.list_common_predicates())
        read = [Column(alias, name, schemas[alias].field(name).type) for alias, name in sorted(self._columns)]
        return plan_join(graph, wide, tuple(read), tree)

    def list_common_predicates(self) -> tuple[Expr, ...]:
        """The predicates that all queries have, the founder's first in the order of its text."""
        order = dict.fromkeys((*self.host.graph.residuals, *self._residuals))
        return tuple(expr for expr in order if self._residuals[expr] == self._count_readers(expr))

    def _count_readers(self, expr: Expr) -> int:
        """How many queries read all items of a predicate."""
        return sum(count for scope, count in self._queries.items() if scope is None or find_aliases(expr) <= scope)

    def list_shown_columns(self) -> list[tuple[str, str]]:
        """The columns that are read of results: for what queries show, and for predicates that not all have."""
        found = Counter(self._shown)
        for expr, count in self._residuals.items():
            if count < self._count_readers(expr):
                found.update((column.alias, column.name) for column in find_columns(expr))
        return sorted(found)

    def _list_table_filters(self) -> tuple[tuple[str, Expr], ...]:
        tables = {source.alias for source in self.host.sources if source.is_table}
        return tuple((alias, expr) for alias, expr in self.filter_groups[0].filters if alias in tables)

    def find_longest_windows(self) -> dict[str, int]:
        """The longest window on every stream that has windows in time."""
        found: dict[str, int] = {}
        for party in self.filter_groups:
            for alias, life in party.longest_windows.items():
                found[alias] = max(life, found.get(alias, 0))
        return found

    def build_interest(self, slice_ends: Sequence[int]) -> Interest:
        """Who wants what. A tuple is kept to the end of the slice of `chain` in which nobody wants it any more.

        But never longer than somebody's window on its stream: queries with that window are not asked whether it lives.
        """
        longest, items = self.find_longest_windows(), [source.alias for source in self.host.sources]
        reaches = []
        for party in self.filter_groups:
            kept = {
                alias: min(_find_slice_end(life, slice_ends), longest[alias])
                for alias, life in party.longest_windows.items()
            }
            reaches.append({**dict.fromkeys(filter(party.reads, items), UNLIMITED), **kept})
        return Interest([GroupWindows(reach) for reach in reaches], self._maintenance)

    def list_window_ends(self) -> list[int]:
        """The ages at which a party may want tuples no more, ascending."""
        lives = {life for party in self.filter_groups for life in party.longest_windows.values()}
        return sorted(life for life in lives if life < UNLIMITED)


def _find_slice_end(life: int, slice_ends: Sequence[int]) -> int:
    place = bisect_left(slice_ends, life)
    return slice_ends[place] if place < len(slice_ends) else life


Thing = TypeVar("Thing")


def _add_counts(counter: Counter[Thing], things: Iterable[Thing], by: int) -> None:
    for thing in things:
        counter[thing] += by
        if not counter[thing]:
            del counter[thing]
