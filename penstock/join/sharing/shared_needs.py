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
from penstock.expr.nodes import Column, Expr, aliases, columns
from penstock.join.sharing.interest import Interest, Party
from penstock.plan.join_graph import JoinGraph
from penstock.plan.join_sharing import ENDLESS, Need, widest
from penstock.plan.physical import JoinPlan, plan_join
from penstock.plan.query import JoinPart
from penstock.plan.tree import Outline
from penstock.state.kernels import ALWAYS
from penstock.state.maintenance import SHIPPED, Maintenance


@dataclass(frozen=True)
class Since:
    """From when on a query takes tuples: for each stream, the first arrival number that counts.

    All tuples with smaller numbers are of the time `drained` at the latest: after it, none of them can come any more.
    """

    numbers: tuple[tuple[str, int], ...]
    drained: int


@dataclass(eq=False)
class Sharers:
    """A party: queries with the same filters. `lives` counts their windows."""

    filters: tuple[tuple[str, Expr], ...]
    since: Since
    scope: frozenset[str] | None = None
    """The items its queries read, if those are not all."""
    lives: Counter[tuple[tuple[str, int], ...]] = field(default_factory=Counter)
    longest: dict[str, int] = field(default_factory=dict)
    """The longest window on each stream that has windows in time."""
    lacks: int = int(ALWAYS)
    """A time after which no tuple is missing that it wants: up to it, some may have come before it did."""
    failure: QueryError | None = None
    """Why its queries stopped: a filter could not be evaluated."""

    def reads(self, alias: str) -> bool:
        return self.scope is None or alias in self.scope

    def first(self, alias: str) -> int:
        """The first arrival number of a stream that counts."""
        return dict(self.since.numbers)[alias]

    def windows(self) -> list[int]:
        """The windows of queries with the same window on every stream."""
        return [lives[0][1] for lives in self.lives if lives and len({life for _, life in lives}) == 1]

    def count(self, lives: tuple[tuple[str, int], ...], by: int) -> None:
        """Count a query's windows in or out."""
        _add(self.lives, [lives], by)
        if by > 0:
            self.longest = {alias: max(life, self.longest.get(alias, 0)) for alias, life in lives}
        elif any(life == self.longest[alias] for alias, life in lives):
            self.longest = {}
            for each in self.lives:
                self.longest = {alias: max(life, self.longest.get(alias, 0)) for alias, life in each}

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        return tuple(expr for owner, expr in self.filters if owner == alias)


class Sharing:
    """The sum of what some queries need of one join. `host` is the query that founded it; its aliases are used."""

    def __init__(self, host: JoinPart, maintenance: Maintenance = SHIPPED) -> None:
        self.host = host
        self._maintenance = maintenance
        self.parties: list[Sharers] = []
        self._columns: Counter[tuple[str, str]] = Counter()
        self._shown: Counter[tuple[str, str]] = Counter()
        self._residuals: Counter[Expr] = Counter()
        self._queries: Counter[frozenset[str] | None] = Counter()

    @property
    def tap(self) -> frozenset[str] | None:
        """The items of those who do not read all."""
        return next((party.scope for party in self.parties if party.scope is not None), None)

    @property
    def divided(self) -> bool:
        """Whether a tuple may be wanted by some and not by others."""
        return len(self.parties) > 1 or self.tap is not None

    def enter(self, need: Need, since: Since) -> Sharers:
        """Count a query in; returns its party."""
        same = (p for p in self.parties if (p.filters, p.since, p.scope) == (need.filters, since, need.scope))
        party = next(same, None)
        if party is None:
            party = Sharers(need.filters, since, need.scope)
            self.parties.append(party)
        self._count(need, party, 1)
        return party

    def leave(self, need: Need, party: Sharers) -> None:
        """Count a query out."""
        self._count(need, party, -1)
        if not party.lives:
            self.parties.remove(party)

    def arrange(
        self, needs: Sequence[Need], places: Sequence[int], sinces: Sequence[Since], lacks: Sequence[int]
    ) -> list[Sharers]:
        """Divide the queries into parties by their places in a list of these; returns each query's party."""
        filters = dict(zip(places, (need.filters for need in needs), strict=True))
        self.parties = [
            Sharers(filters[place], since, lacks=missing)
            for place, (since, missing) in enumerate(zip(sinces, lacks, strict=True))
        ]
        for need, place in zip(needs, places, strict=True):
            self.parties[place].count(need.lives, 1)
        return [self.parties[place] for place in places]

    def merge(self, party: Sharers, into: Sharers) -> None:
        """Count the queries of one party to another."""
        self.parties.remove(party)
        into.lacks = max(into.lacks, party.lacks)
        for lives, queries in party.lives.items():
            into.count(lives, queries)

    def _count(self, need: Need, party: Sharers, by: int) -> None:
        _add(self._queries, [need.scope] * abs(by), by)
        _add(self._columns, need.columns, by)
        _add(self._shown, need.shown, by)
        _add(self._residuals, need.residuals, by)
        party.count(need.lives, by)

    def plan(self, tree: Outline) -> JoinPlan:
        """The plan of the join in a shape. A single party's filters are the leaves' own."""
        sources = self.host.sources
        schemas = {source.alias: source.relation.schema for source in sources}
        longest = self.longest()
        wide = tuple(widest(source, longest.get(source.alias)) for source in sources)
        filters = self._on_tables() if self.divided else self.parties[0].filters
        graph = JoinGraph(self.host.graph.aliases, self.host.graph.classes, filters, self.common())
        read = [Column(alias, name, schemas[alias].field(name).type) for alias, name in sorted(self._columns)]
        return plan_join(graph, wide, tuple(read), tree)

    def common(self) -> tuple[Expr, ...]:
        """The predicates that all queries have, the founder's first in the order of its text."""
        order = dict.fromkeys((*self.host.graph.residuals, *self._residuals))
        return tuple(expr for expr in order if self._residuals[expr] == self._readers(expr))

    def _readers(self, expr: Expr) -> int:
        """How many queries read all items of a predicate."""
        return sum(count for scope, count in self._queries.items() if scope is None or aliases(expr) <= scope)

    def shown(self) -> list[tuple[str, str]]:
        """The columns that are read of results: for what queries show, and for predicates that not all have."""
        found = Counter(self._shown)
        for expr, count in self._residuals.items():
            if count < self._readers(expr):
                found.update((column.alias, column.name) for column in columns(expr))
        return sorted(found)

    def _on_tables(self) -> tuple[tuple[str, Expr], ...]:
        tables = {source.alias for source in self.host.sources if source.is_table}
        return tuple((alias, expr) for alias, expr in self.parties[0].filters if alias in tables)

    def longest(self) -> dict[str, int]:
        """The longest window on every stream that has windows in time."""
        found: dict[str, int] = {}
        for party in self.parties:
            for alias, life in party.longest.items():
                found[alias] = max(life, found.get(alias, 0))
        return found

    def interest(self, chain: Sequence[int]) -> Interest:
        """Who wants what. A tuple is kept to the end of the slice of `chain` in which nobody wants it any more.

        But never longer than somebody's window on its stream: queries with that window are not asked whether it lives.
        """
        longest, items = self.longest(), [source.alias for source in self.host.sources]
        reaches = []
        for party in self.parties:
            kept = {alias: min(_end_of_slice(life, chain), longest[alias]) for alias, life in party.longest.items()}
            reaches.append({**dict.fromkeys(filter(party.reads, items), ENDLESS), **kept})
        return Interest([Party(reach) for reach in reaches], self._maintenance)

    def ends(self) -> list[int]:
        """The ages at which a party may want tuples no more, ascending."""
        lives = {life for party in self.parties for life in party.longest.values()}
        return sorted(life for life in lives if life < ENDLESS)


def _end_of_slice(life: int, chain: Sequence[int]) -> int:
    place = bisect_left(chain, life)
    return chain[place] if place < len(chain) else life


Thing = TypeVar("Thing")


def _add(counter: Counter[Thing], things: Iterable[Thing], by: int) -> None:
    for thing in things:
        counter[thing] += by
        if not counter[thing]:
            del counter[thing]
