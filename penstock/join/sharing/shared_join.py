"""The queries that share a join: who they are, what they want, and the tree that finds it for all of them.

Law: whoever comes, goes or becomes one with others, between two batches, the tree finds every combination that some
member wants, and each is told only of combinations whose parts it wants. What only one who left wanted is freed.
A member that comes takes tuples from then on; one that looks back also takes what the windows hold already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import mask
from penstock.expr.nodes import Column, columns
from penstock.join.join_rows import Rows
from penstock.join.leaf_store import LeafStore
from penstock.join.match_batch import Crop, Harvest
from penstock.join.sharing.admission import Admission
from penstock.join.sharing.interest import NO_CODES, NOBODY, Interest
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import Sharers, Sharing, Since
from penstock.join.sharing.slice_counts import SliceCounts
from penstock.join.state_policy import Policy
from penstock.join.tree import JoinTree
from penstock.ops.expirations import Lives
from penstock.ops.kernels import count_slices
from penstock.plan.join_sharing import Need
from penstock.plan.physical import Part
from penstock.plan.query import JoinPart
from penstock.plan.slice_cost import Rates, Windows, cpu_opt
from penstock.plan.tree import Outline
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.maintenance import Maintenance

SLICE_OVERHEAD = 0.15
"""What a slice costs for each tuple that comes, in comparisons (C_sys), as measured by `penstock lab slice`."""

_MERGEABLE = 2000
"""Up to how many windows the best chain is looked for: that takes the square of their number."""

Slicing = Literal["mem-opt", "cpu-opt"]


@dataclass(frozen=True)
class Slice:
    """The part of the windows from age `low` to `high`: the queries whose window ends here, tuples held, results."""

    low: int
    high: int
    readers: tuple[str, ...]
    rows: Mapping[str, int]
    results: int


class Group:
    """The members of one join."""

    def __init__(self, host: JoinPart, first: Member, since: Since, policy: Policy, maintenance: Maintenance) -> None:
        self.members: list[Member] = []
        self.writing: list[Member] = []
        """The members that write what they show at once; the others show it when asked."""
        self.sharing = Sharing(host, maintenance)
        self.slicing: Slicing = "mem-opt"
        self.chain: tuple[int, ...] = ()
        """The ages at which slices end, where there are several."""
        self.mortal = [s.alias for s in host.sources if s.window is not None and s.window.kind == "rows"]
        self._counts: dict[Sharers, SliceCounts] = {}
        self._all = SliceCounts(())
        self._tally = np.zeros((1, 1), np.int64)
        """Results since they were last handed to the parties, by code of interest and slice."""
        self._tallied: tuple[Interest | None, tuple[Sharers, ...]] = (None, ())
        self._sliced = False
        self._united = 0
        self._asking: Counter[frozenset[str] | None] = Counter()
        self._admit(first, since, since.drained)
        self.tree = JoinTree(self.sharing.plan(host.plan.tree), policy, maintenance)
        self._overlook()

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, member: Member, since: Since, lacks: int) -> None:
        """`lacks`: a time up to which tuples are missing that the member wants."""
        member.party = self.sharing.enter(member.need, since)
        member.party.lacks = max(member.party.lacks, lacks)
        member.complete_since = _later(lacks, self._longest(member.need))
        if member.ends:  # at that very instant, the end of a row that it never had is missing
            member.complete_since = _later(member.complete_since, 1)
        member.lives = Lives([partial(self.dies_now, alias) for alias in self.mortal])
        self._sliced = False
        self.members.append(member)
        if member.outlet is not None:
            self.writing.append(member)
        else:
            self._asking[member.need.scope] += 1

    def asking(self, scope: frozenset[str] | None = None) -> bool:
        """Whether somebody who reads these items, or all, shows rows when asked."""
        return self._asking[scope] > 0

    def enter(self, member: Member, since: Since, done: int, shape: Outline, *, history: bool) -> None:
        """Take in one more query. It takes tuples from the arrivals `since` on; with `history` those held already, too.

        `done` is the time up to which all is known, `shape` the tree to go on with.
        """
        before = list(self.sharing.parties)
        reach = {party: dict(party.longest) for party in before}
        lacks, looks_back = since.drained, history and self._can_look_back(member)
        if looks_back:
            known = self._known_after(member.need)
            lacks = max(known, self._lacking(member.need, since, done))
            since = Since(tuple((alias, 0) for alias, _ in since.numbers), known)
        self._admit(member, since, lacks)
        if self._counts:
            member.before = self._slices(member.party).within(member.need.life or 0)
        if looks_back:
            member.complete_since = max(member.complete_since, _later(done, 1))
        self._share(before, shape, older=looks_back and reach.get(member.party) != member.party.longest)

    def leave(self, member: Member, shape: Outline) -> None:
        """Let a query go; what only it wanted is freed."""
        before = list(self.sharing.parties)
        self.members.remove(member)
        if member.outlet is not None:
            self.writing.remove(member)
        else:
            self._asking[member.need.scope] -= 1
        self.sharing.leave(member.need, member.party)
        self._sliced = False
        if self.members:
            self._share(before, shape)

    def arrange(
        self, sinces: Sequence[Since], lacks: Sequence[int], places: Mapping[str, int], complete: Mapping[str, int]
    ) -> None:
        """Divide the members into parties as they were once, before anything has come."""
        needs = [member.need for member in self.members]
        parties = self.sharing.arrange(needs, [places[member.name] for member in self.members], sinces, lacks)
        for member, party in zip(self.members, parties, strict=True):
            member.party, member.before, member.complete_since = party, 0, complete[member.name]
        self._counts, self._sliced = {}, False
        self._share([], self.tree.plan.tree)

    def _share(self, before: Sequence[Sharers], shape: Outline, *, older: bool = False) -> None:
        """Make the tree fit those who share it now. Interest is told apart while there are two parties.

        `older`: somebody wants tuples there are for longer than anybody did, so that combinations may be missing.
        """
        parties = self.sharing.parties
        plan, interest = self.sharing.plan(shape), self.sharing.interest(chain := self._chain())
        self.chain = chain
        self._overlook()
        same_reach = not self.sharing.divided or (self.tree.interest and self.tree.interest.parties == interest.parties)
        if plan == self.tree.plan and parties == before and same_reach:
            return
        wanted = self._recoded(interest, before, older)
        sides = self._side(interest, nested=False), self._side(interest, nested=True)
        self.tree.share(plan, interest if self.sharing.divided else None, wanted, sides)
        if older:
            self.tree.restart()
        upkeep, tight = self.tree.maintenance, len(parties) > 1 and len(self.tree.stores) == 2
        for store in self.tree.stores.values():
            store.slack = upkeep.dead_per_living_shared if tight else upkeep.dead_per_living

    def _side(self, interest: Interest, *, nested: bool) -> int:
        """The code of those who read the node that is tapped, or of those who read the root."""
        places = (place for place, party in enumerate(self.sharing.parties) if (party.scope is not None) is nested)
        return interest.code(places)

    def reslice(self, slicing: Slicing, shape: Outline) -> None:
        """Keep tuples by other slices: the fewest tuples (Mem-Opt), or the least work (CPU-Opt)."""
        self.slicing = slicing
        self._share(list(self.sharing.parties), shape)

    def _chain(self) -> tuple[int, ...]:
        """The ages at which slices should end."""
        found = self.measured() if self.slicing == "cpu-opt" else None
        return (
            tuple(self.sharing.ends()) if found is None else tuple(map(int, cpu_opt(*found, SLICE_OVERHEAD, "lookup")))
        )

    def measured(self) -> tuple[Windows, Rates] | None:
        """The windows and rates, per tick, as the cost model of slices has them; None where nothing can be merged."""
        ends = self.sharing.ends()
        timed = [self.tree.stores[alias] for alias, _ in self.widest]
        if not 2 <= len(ends) <= _MERGEABLE or len(timed) < 2:
            return None
        newest = max(int(store.born_last) for store in timed)
        young = [store.since(_earlier(newest, ends[0])) for store in timed]
        rates = [ids.size / ends[0] for ids in young]
        if self.tree.interest is None or not all(rates):
            return None
        reaches = [self.tree.interest.reach(s.alias, s.wanted(ids)) for s, ids in zip(timed, young, strict=True)]
        wanted = [min(float(np.mean(reach >= end)) for reach in reaches) for end in ends]
        met = sum(store.seen * len(other) for store, other in ((timed[0], timed[1]), (timed[1], timed[0])))
        joins = sum(node.built for node in self.tree.nodes()) / max(1, met)
        windows = Windows(tuple(map(float, ends)), tuple(np.minimum.accumulate(wanted)))
        return windows, Rates(rates[0], rates[1], joins)

    def _overlook(self) -> None:
        """Sum up what is asked of tuples and of results."""
        self.admission = Admission(self.sharing.parties)
        self._places = {party: place for place, party in enumerate(self.sharing.parties)}
        self._gathers = self.sharing.shown()
        self.widest = tuple(sorted(self.sharing.longest().items()))

    # ── who wants the tuples there are ───────────────────────────────────────────────────────────────────────────

    def _recoded(self, interest: Interest, before: Sequence[Sharers], older: bool) -> dict[str, I32]:
        """The codes of stored tuples: parties from before want what they wanted, one that looks back what passes."""
        parties = self.sharing.parties
        kept = [before.index(party) if party in before else None for party in parties]
        wanted = {}
        for alias, store in self.tree.stores.items():
            ids = store.stored()
            if store.plan.source.is_table:
                wanted[alias] = np.full(ids.size, interest.code(range(len(kept))), np.int32)
                continue
            if self.tree.interest is None:
                old = interest.code(place for place, party in enumerate(kept) if party is not None)
                codes = np.where(store.freed(ids), NOBODY, old).astype(np.int32)
            else:
                codes = interest.survivors(store.wanted(ids), self.tree.interest, kept)
            if older and kept[-1] is None and parties[-1].reads(alias):
                passing = mask(parties[-1].filters_of(alias), partial(_read, store, ids), ids.size)
                passing &= store.births(ids) > parties[-1].since.drained  # those before lack a column that it reads
                codes = interest.joined(codes, len(parties) - 1, passing)
            wanted[alias] = codes
        return wanted

    def _can_look_back(self, member: Member) -> bool:
        """Whether what is stored tells all that the query asks of a tuple; rows that end are followed from birth on."""
        need, stores = member.need, self.tree.stores
        known = {(alias, name) for alias, store in stores.items() for name in store.plan.columns}
        filters = {(alias, column.name) for alias, expr in need.filters for column in columns(expr)}
        alike = (p for p in self.sharing.parties if (p.filters, p.scope) == (need.filters, need.scope))
        mine = next(alike, None)
        whole = mine is not None and mine.since.drained == ALWAYS and self._known_after(need) == ALWAYS
        return member.outlet is None and need.columns <= known and (filters <= known or whole)

    def _known_after(self, need: Need) -> int:
        """A time after which the stored tuples have the values of all columns that a query reads."""
        read = {*need.columns, *((alias, column.name) for alias, expr in need.filters for column in columns(expr))}
        stores = self.tree.stores.items()
        known = (store.known_after([name for owner, name in read if owner == alias]) for alias, store in stores)
        return max(known, default=int(ALWAYS))

    def _lacking(self, need: Need, since: Since, done: int) -> int:
        """A time after which no tuple is missing that the query wants: others of its scope held it, NULLs included."""
        horizons = []
        parties = [party for party in self.sharing.parties if party.scope == need.scope]
        for alias, _ in need.lives:
            mine = {expr for owner, expr in need.filters if owner == alias}
            wider = [party for party in parties if set(party.filters_of(alias)) <= mine]
            held = [max(_earlier(done, party.longest[alias]), party.lacks) for party in wider]
            horizons.append(min(held, default=since.drained))
        return max(horizons, default=since.drained)

    def _longest(self, need: Need) -> int:
        """The longest time a tuple lives; nobody knows how long one does that dies by a count."""
        return int(FOREVER) if self.mortal else max((life for _, life in need.lives), default=0)

    @property
    def may_unite(self) -> bool:
        """Whether two parties have the same filters."""
        parties = self.sharing.parties
        return self.tree.interest is not None and len({(each.filters, each.scope) for each in parties}) < len(parties)

    def unite(self, done: int, shape: Outline) -> None:
        """Make one of two parties with the same filters, once tuples that only one of them wants are gone."""
        interest, before = self.tree.interest, list(self.sharing.parties)
        assert interest is not None
        held = [store.wanted(store.stored()) for store in self.tree.stores.values() if not store.plan.source.is_table]
        for later, earlier in combinations(reversed(before), 2):
            drained = max(later.since.drained, earlier.since.drained) < done
            alike = (later.filters, later.scope) == (earlier.filters, earlier.scope)
            if alike and drained and later in self.sharing.parties:
                places = before.index(later), before.index(earlier)
                if all(interest.agree(*places, codes) for codes in held):
                    self._merge(later, earlier)
        if before != self.sharing.parties:
            self._share(before, shape)

    def _merge(self, party: Sharers, into: Sharers) -> None:
        moving = [member for member in self.members if member.party is party]
        for member in moving:
            member.emitted = self.emitted(member)
        self.sharing.merge(party, into)
        self._sliced = False
        self._united += 1
        for member in moving:
            member.move(into, self._united)
            member.before = self._slices(into).within(member.need.life or 0)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def harvest(self, rows: Rows) -> Harvest:
        """New combinations in temporal order, with what members may ask of them."""
        return self._harvest(self.tree.plan.root, rows, None)

    def harvest_ahead(self, rows: Rows) -> Harvest:
        """As `harvest`, of the tapped node, for those who read it."""
        assert self.tree.tapped is not None
        assert self.tree.interest is not None
        part = self.tree.tapped.plan
        rows = self.tree.narrowed(part, rows, self._side(self.tree.interest, nested=True))
        assert rows.wanted is not None
        return self._harvest(part, rows.take(np.flatnonzero(rows.wanted)), self.tree.tap)

    def _harvest(self, part: Part, rows: Rows, scope: frozenset[str] | None) -> Harvest:
        rows = rows.take(np.argsort(rows.born, kind="stable"))
        plan, stores, interest = self.tree.plan, self.tree.stores, self.tree.interest
        ids = dict(zip(part.aliases, rows.ids, strict=True))
        holding = None
        if interest is not None:
            places = self._places
            rows = Rows(rows.ids, rows.born, rows.dies, self.tree.asked(part, rows))
            holding = lambda party: interest.has(places[party])  # noqa: E731
        return Harvest(
            rows,
            {alias: stores[alias].births(ids[alias]) for alias in self._aged() if alias in ids},
            reduce(np.minimum, [self.dies_now(a, ids[a]) for a in self.mortal]) if self.mortal else None,
            Crop(ids, stores, [named for named in self._gathers if named[0] in ids]),
            tuple((alias, life) for alias, life in self.widest if alias in ids),
            plan.residuals,
            holding,
            self.tree.shedding is not None,
            self._united,
            self.tree.maintenance,
            scope,
        )

    def _aged(self) -> dict[str, int]:
        """The streams whose tuples' births members ask for."""
        ageing = (alias for member in self.writing for alias, _ in member.need.ageing)
        return {**dict(self.widest), **(dict.fromkeys(ageing, 0) if self.tree.shedding is not None else {})}

    def freshness(self) -> dict[str, int]:
        """How old a tuple of each stream may be for all members."""
        found: dict[str, int] = {}
        for member in self.members:
            for alias, bound in member.need.freshness:
                found[alias] = min(bound, found.get(alias, bound))
        return found

    def dies_now(self, alias: str, ids: I64) -> I64:
        return self.tree.stores[alias].dies_now(ids)

    def mortal_places(self) -> list[int]:
        """Where the ids of tuples that die by a count stand in a row."""
        return [self.tree.plan.root.aliases.index(alias) for alias in self.mortal]

    def count(self, harvest: Harvest) -> None:
        """Count results that are shown when somebody asks, by slice and by who wants them."""
        if not self._sliced:
            self._reslice()
        codes = NO_CODES if harvest.rows.wanted is None else harvest.rows.wanted
        if self.tree.interest is not None and len(self.tree.interest.sets) > len(self._tally):
            more = len(self.tree.interest.sets) - len(self._tally)
            self._tally = np.concatenate([self._tally, np.zeros((more, self._tally.shape[1]), np.int64)])
        count_slices(harvest.age, codes, self._all.windows, self._tally)

    def emitted(self, member: Member) -> int:
        """How many changes a member was given."""
        if member.outlet is not None:
            return member.emitted
        return member.emitted + self._slices(member.party).within(member.need.life or 0) - member.before

    def _slices(self, party: Sharers) -> SliceCounts:
        """The results of a party by slice."""
        self._reslice()
        return self._counts[party]

    def _reslice(self) -> None:
        """Hand what was counted to the parties, and go on by the slices there are now."""
        interest, parties = self._tallied
        for place, party in enumerate(parties):
            if party in self._counts:
                wanted = range(len(self._tally)) if interest is None else interest.holding(place, len(self._tally))
                self._counts[party].add_counts(self._all.windows, self._tally[list(wanted)].sum(axis=0))
        self._all.counts += self._tally.sum(axis=0)
        if not self._sliced:
            known, now = self._counts, self.sharing.parties
            self._counts = {
                each: known[each].resliced(each.windows()) if each in known else SliceCounts(each.windows())
                for each in now
            }
            self._all = self._all.resliced({life for each in now for life in each.windows()})
            self._sliced = True
        self._tallied = self.tree.interest, tuple(self.sharing.parties)
        self._tally = np.zeros((1, self._all.windows.size + 1), np.int64)

    def slices(self, done: int) -> list[Slice]:
        """The slices of the windows, youngest first: who reads them, what they hold, the combinations found."""
        self._reslice()
        slices, low = [], 0
        for high, results in zip(self._all.windows.tolist(), self._all.counts.tolist(), strict=False):
            readers = tuple(member.name for member in self.members if member.need.life == high)
            rows = {alias: store.between(_earlier(done, high), _earlier(done, low)) for alias, store in self._timed()}
            slices.append(Slice(low, high, readers, rows, results))
            low = high
        return slices

    def _timed(self) -> Iterator[tuple[str, LeafStore]]:
        return ((alias, self.tree.stores[alias]) for alias, _ in self.widest)


def _read(store: LeafStore, ids: I64, column: Column) -> pa.Array:
    return store.take(column.name, ids)


def _later(time: int, by: int) -> int:
    if time == ALWAYS:
        return time
    return int(FOREVER) if by >= FOREVER else min(time + by, int(FOREVER))


def _earlier(time: int, by: int) -> int:
    return max(time - by, int(ALWAYS))
