"""The needs of all queries that share a join, combined into one plan and one interest.

Law: the plan keeps every column that some query reads and every tuple as long as some query needs it, and tests only
the predicates that all queries have, or that follow from predicates of each of them. Queries with equal filters and the
same start form one filter group.
Cost: adding or removing a query updates counts; the needs of the other queries are not combined again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.errors import QueryError
from penstock.expr import Column, Expr, find_aliases, find_columns
from penstock.join.sharing.interest import GroupWindows, Interest
from penstock.plan import (
    UNLIMITED,
    Bound,
    Family,
    Filters,
    JoinGraph,
    JoinPart,
    JoinPlan,
    JoinRequirement,
    PlanShape,
    RowCounts,
    combine_bounds,
    find_bound,
    find_families,
    plan_join,
    widen_window,
)
from penstock.state import ALWAYS, SHIPPED, Maintenance


@dataclass(frozen=True)
class StartPoint:
    """From when on a query gets tuples: for each stream, the first arrival number that counts.

    All tuples with smaller numbers have times up to `drained_until`.
    """

    first_numbers: tuple[tuple[str, int], ...]
    drained_until: int


@dataclass(eq=False)
class FilterGroup:
    """Queries with the same filters and the same start. `window_counts` counts their windows."""

    filters: Filters
    start: StartPoint
    scope: frozenset[str] | None = None
    """The aliases that its queries read, if those are not all."""
    window_counts: Counter[tuple[tuple[str, int], ...]] = field(default_factory=Counter)
    longest_windows: dict[str, int] = field(default_factory=dict)
    """The longest window on each stream that has windows in time."""
    missing_until: int = int(ALWAYS)
    """A time after which no tuple is missing that it needs; older tuples may have arrived before its start."""
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
        """Add (`by` = 1) or remove (`by` = -1) a query's windows."""
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
    """The combined needs of the queries of one join. `host` is the part of the first query; its aliases are used."""

    def __init__(self, host: JoinPart, maintenance: Maintenance = SHIPPED) -> None:
        self.host = host
        self._maintenance = maintenance
        self.filter_groups: list[FilterGroup] = []
        self._by_condition: dict[object, FilterGroup] = {}
        self._alike: Counter[tuple[Filters, frozenset[str] | None]] = Counter()
        self._longest_windows: dict[str, int] | None = None
        self._columns: Counter[tuple[str, str]] = Counter()
        self._shown: Counter[tuple[str, str]] = Counter()
        self._residuals: Counter[Expr] = Counter()
        self._families: Counter[Family] = Counter()
        """In how many queries some predicate of a family is."""
        self._queries: Counter[frozenset[str] | None] = Counter()
        self._row_counts: Counter[RowCounts] = Counter()

    @property
    def row_counts(self) -> Collection[RowCounts]:
        """The different sizes of the row-counted windows of queries."""
        return self._row_counts.keys()

    @property
    def filter_sets(self) -> set[Filters]:
        """The different filters of queries."""
        return {filters for filters, _ in self._alike}

    def find_largest_counts(self) -> dict[str, int]:
        """The size of the largest row-counted window on every stream that has such windows."""
        found: dict[str, int] = {}
        for counts in self._row_counts:
            for alias, count in counts:
                found[alias] = max(count, found.get(alias, 0))
        return found

    @property
    def early_aliases(self) -> frozenset[str] | None:
        """The aliases that queries read that do not read all; None if all queries do."""
        return next((scope for scope in self._queries if scope is not None), None)

    @property
    def divided(self) -> bool:
        """Whether some queries may need a tuple that others do not need."""
        return len(self.filter_groups) > 1 or self.early_aliases is not None

    def add_query(self, need: JoinRequirement, start: StartPoint) -> FilterGroup:
        """Add a query; returns its filter group."""
        group = self._by_condition.get((need.filters, start, need.scope))
        if group is None:
            group = FilterGroup(need.filters, start, need.scope)
            self.filter_groups.append(group)
            self._list_group(group)
        self._count_need(need, group, 1)
        if self._longest_windows is not None:
            for alias, life in need.lifetimes:
                self._longest_windows[alias] = max(life, self._longest_windows.get(alias, 0))
        return group

    def _list_group(self, group: FilterGroup) -> None:
        self._by_condition[group.filters, group.start, group.scope] = group
        self._alike[group.filters, group.scope] += 1

    def _remove_group(self, group: FilterGroup) -> None:
        self.filter_groups.remove(group)
        self._by_condition.pop((group.filters, group.start, group.scope), None)
        _add_counts(self._alike, [(group.filters, group.scope)], -1)

    @property
    def has_groups_alike(self) -> bool:
        """Whether two filter groups have the same filters."""
        return len(self._alike) < len(self.filter_groups)

    def remove_query(self, need: JoinRequirement, filter_group: FilterGroup) -> None:
        """Remove a query."""
        self._count_need(need, filter_group, -1)
        self._longest_windows = None
        if not filter_group.window_counts:
            self._remove_group(filter_group)

    def assign_filter_groups(
        self,
        needs: Sequence[JoinRequirement],
        places: Sequence[int],
        starts: Sequence[StartPoint],
        missing_until: Sequence[int],
    ) -> list[FilterGroup]:
        """Divide the queries into filter groups, given the place of each query's group; returns each query's group."""
        filters = dict(zip(places, (need.filters for need in needs), strict=True))
        self.filter_groups = [
            FilterGroup(filters[place], since, missing_until=missing)
            for place, (since, missing) in enumerate(zip(starts, missing_until, strict=True))
        ]
        for need, place in zip(needs, places, strict=True):
            self.filter_groups[place].count_windows(need.lifetimes, 1)
        self._by_condition, self._alike, self._longest_windows = {}, Counter(), None
        for group in self.filter_groups:
            self._list_group(group)
        return [self.filter_groups[place] for place in places]

    def merge(self, filter_group: FilterGroup, into: FilterGroup) -> None:
        """Move the queries of one filter group to another."""
        self._remove_group(filter_group)
        into.missing_until = max(into.missing_until, filter_group.missing_until)
        for lives, queries in filter_group.window_counts.items():
            into.count_windows(lives, queries)

    def _count_need(self, need: JoinRequirement, filter_group: FilterGroup, by: int) -> None:
        _add_counts(self._queries, [need.scope] * abs(by), by)
        _add_counts(self._columns, need.input_columns, by)
        _add_counts(self._shown, need.output_columns, by)
        _add_counts(self._residuals, need.residuals, by)
        _add_counts(self._families, find_families(need.residuals), by)
        _add_counts(self._row_counts, [need.row_counts], by)
        filter_group.count_windows(need.lifetimes, by)

    def build_plan(self, tree: PlanShape) -> JoinPlan:
        """The plan of the join in a shape. The filters of a single group are evaluated by the leaves."""
        sources = self.host.sources
        schemas = {source.alias: source.schema for source in sources}
        longest = self.find_longest_windows()
        counts = self.find_largest_counts()
        wide = tuple(widen_window(each, longest.get(each.alias), counts.get(each.alias)) for each in sources)
        filters = self._list_table_filters() if self.divided else self.filter_groups[0].filters
        graph = JoinGraph(self.host.graph.aliases, self.host.graph.classes, filters, self.list_common_predicates())
        read = [Column(alias, name, schemas[alias].field(name).type) for alias, name in sorted(self._columns)]
        return plan_join(graph, wide, tuple(read), tree)

    def list_common_predicates(self) -> tuple[Expr, ...]:
        """The predicates that all queries have, those of the first query first, in the order of its text.

        Where all have one of a family, but none in common, what each of them implies.
        """
        order = dict.fromkeys((*self.host.graph.residuals, *self._residuals))
        families: dict[Family, list[Bound]] = {}
        for bound in map(find_bound, order):
            if self._families[bound.family] == self._count_readers(bound.predicate):
                families.setdefault(bound.family, []).append(bound)
        return tuple(expr for bounds in families.values() for expr in self._combine_family(bounds))

    def _combine_family(self, bounds: Sequence[Bound]) -> list[Expr]:
        """The predicates that all queries have, or what their predicates imply."""
        readers = self._count_readers(bounds[0].predicate)
        common = [bound.predicate for bound in bounds if self._residuals[bound.predicate] == readers]
        present = (bound for bound in bounds if self._residuals[bound.predicate])  # the first query may have left
        return common or [combine_bounds(present)]

    def _count_readers(self, expr: Expr) -> int:
        """How many queries read all aliases of a predicate."""
        return sum(count for scope, count in self._queries.items() if scope is None or find_aliases(expr) <= scope)

    def list_shown_columns(self) -> list[tuple[str, str]]:
        """The columns that are read of results: for the outputs, and for predicates that not all queries have."""
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
        if self._longest_windows is None:
            found: dict[str, int] = {}
            for group in self.filter_groups:
                for alias, life in group.longest_windows.items():
                    found[alias] = max(life, found.get(alias, 0))
            self._longest_windows = found
        return dict(self._longest_windows)

    def build_interest(self, slice_ends: Sequence[int]) -> Interest:
        """The interest of the filter groups. A tuple is kept to the end of the slice in which its last window ends.

        It is never kept longer than the longest window on its stream, because queries with that window do not test
        the age of a tuple.
        """
        longest, items = self.find_longest_windows(), [source.alias for source in self.host.sources]
        reaches = []
        for group in self.filter_groups:
            kept = {
                alias: min(_find_slice_end(life, slice_ends), longest[alias])
                for alias, life in group.longest_windows.items()
            }
            reaches.append({**dict.fromkeys(filter(group.reads, items), UNLIMITED), **kept})
        return Interest([GroupWindows(reach) for reach in reaches], self._maintenance)

    def list_window_ends(self) -> list[int]:
        """The ages at which windows of filter groups end, ascending."""
        lives = {life for group in self.filter_groups for life in group.longest_windows.values()}
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
