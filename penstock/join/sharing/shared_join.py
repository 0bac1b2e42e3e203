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

from penstock.expr.evaluate import compute_mask
from penstock.expr.nodes import Column, find_columns
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_store import LeafStore
from penstock.join.match_batch import MatchBatch, PayloadView
from penstock.join.sharing.admission import Admission
from penstock.join.sharing.interest import NO_CODES, NO_INTEREST, Interest
from penstock.join.sharing.kernels import count_slices
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds, StartPoint
from penstock.join.sharing.slice_counts import SliceCounts
from penstock.join.state_policy import StatePolicy
from penstock.join.tree import JoinTree
from penstock.ops.expirations import Expirations
from penstock.plan.join_sharing import JoinRequirement
from penstock.plan.physical import SubPlan
from penstock.plan.query import JoinPart
from penstock.plan.slice_cost import Rates, SharedWindows, choose_cpu_opt_chain
from penstock.plan.tree import PlanShape
from penstock.state.kernels import ALWAYS, FOREVER, I32, I64
from penstock.state.maintenance import Maintenance

SLICE_OVERHEAD = 0.15
"""What a slice costs for each tuple that comes, in comparisons (C_sys), as measured by `penstock lab slice`."""

_MAX_MERGED_WINDOWS = 2000
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


class SharedJoin:
    """The members of one join."""

    def __init__(
        self, host: JoinPart, first: Member, start: StartPoint, policy: StatePolicy, maintenance: Maintenance
    ) -> None:
        self.members: list[Member] = []
        self.writers: list[Member] = []
        """The members that write what they show at once; the others show it when asked."""
        self.needs = SharedNeeds(host, maintenance)
        self.slicing: Slicing = "mem-opt"
        self.slice_ends: tuple[int, ...] = ()
        """The ages at which slices end, where there are several."""
        self.row_counted = [s.alias for s in host.sources if s.window is not None and s.window.kind == "rows"]
        self._slice_counts: dict[FilterGroup, SliceCounts] = {}
        self._total_counts = SliceCounts(())
        self._pending_counts = np.zeros((1, 1), np.int64)
        """Results since they were last handed to the parties, by code of interest and slice."""
        self._pending_for: tuple[Interest | None, tuple[FilterGroup, ...]] = (None, ())
        self._slices_current = False
        self._merge_count = 0
        self._pull_members: Counter[frozenset[str] | None] = Counter()
        self._add_member(first, start, start.drained_until)
        self.tree = JoinTree(self.needs.build_plan(host.plan.tree), policy, maintenance)
        self._update_summary()

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def _add_member(self, member: Member, start: StartPoint, missing_until: int) -> None:
        """`lacks`: a time up to which tuples are missing that the member wants."""
        member.filter_group = self.needs.add_query(member.need, start)
        member.filter_group.missing_until = max(member.filter_group.missing_until, missing_until)
        member.complete_since = _add_time(missing_until, self._find_longest_life(member.need))
        if member.emits_ends:  # at that very instant, the end of a row that it never had is missing
            member.complete_since = _add_time(member.complete_since, 1)
        member.expirations = Expirations([partial(self.read_expirations, alias) for alias in self.row_counted])
        self._slices_current = False
        self.members.append(member)
        if member.outlet is not None:
            self.writers.append(member)
        else:
            self._pull_members[member.need.scope] += 1

    def has_pull_members(self, scope: frozenset[str] | None = None) -> bool:
        """Whether somebody who reads these items, or all, shows rows when asked."""
        return self._pull_members[scope] > 0

    def add_member(self, member: Member, start: StartPoint, done: int, shape: PlanShape, *, history: bool) -> None:
        """Take in one more query. It takes tuples from the arrivals `since` on; with `history` those held already, too.

        `done` is the time up to which all is known, `shape` the tree to go on with.
        """
        before = list(self.needs.filter_groups)
        reach = {party: dict(party.longest_windows) for party in before}
        lacks, looks_back = start.drained_until, history and self._can_read_history(member)
        if looks_back:
            known = self._find_gap_end(member.need)
            lacks = max(known, self._find_missing_until(member.need, start, done))
            start = StartPoint(tuple((alias, 0) for alias, _ in start.first_numbers), known)
        self._add_member(member, start, lacks)
        if self._slice_counts:
            member.counted_before = self._get_slice_counts(member.filter_group).count_within(
                member.need.common_lifetime or 0
            )
        if looks_back:
            member.complete_since = max(member.complete_since, _add_time(done, 1))
        self._update_tree(
            before, shape, older=looks_back and reach.get(member.filter_group) != member.filter_group.longest_windows
        )

    def remove_member(self, member: Member, shape: PlanShape) -> None:
        """Let a query go; what only it wanted is freed."""
        before = list(self.needs.filter_groups)
        self.members.remove(member)
        if member.outlet is not None:
            self.writers.remove(member)
        else:
            self._pull_members[member.need.scope] -= 1
        self.needs.remove_query(member.need, member.filter_group)
        self._slices_current = False
        if self.members:
            self._update_tree(before, shape)

    def assign_filter_groups(
        self,
        starts: Sequence[StartPoint],
        missing_until: Sequence[int],
        places: Mapping[str, int],
        complete: Mapping[str, int],
    ) -> None:
        """Divide the members into parties as they were once, before anything has come."""
        needs = [member.need for member in self.members]
        parties = self.needs.assign_filter_groups(
            needs, [places[member.name] for member in self.members], starts, missing_until
        )
        for member, party in zip(self.members, parties, strict=True):
            member.filter_group, member.counted_before, member.complete_since = party, 0, complete[member.name]
        self._slice_counts, self._slices_current = {}, False
        self._update_tree([], self.tree.plan.tree)

    def _update_tree(self, before: Sequence[FilterGroup], shape: PlanShape, *, older: bool = False) -> None:
        """Make the tree fit those who share it now. Interest is told apart while there are two parties.

        `older`: somebody wants tuples there are for longer than anybody did, so that combinations may be missing.
        """
        parties = self.needs.filter_groups
        plan, interest = self.needs.build_plan(shape), self.needs.build_interest(chain := self._choose_slice_ends())
        self.slice_ends = chain
        self._update_summary()
        same_reach = not self.needs.divided or (
            self.tree.interest and self.tree.interest.filter_groups == interest.filter_groups
        )
        if plan == self.tree.plan and parties == before and same_reach:
            return
        wanted = self._recode_rows(interest, before, older)
        sides = self._encode_readers(interest, nested=False), self._encode_readers(interest, nested=True)
        self.tree.update_sharing(plan, interest if self.needs.divided else None, wanted, sides)
        if older:
            self.tree.restart()
        upkeep, tight = self.tree.maintenance, len(parties) > 1 and len(self.tree.stores) == 2
        for store in self.tree.stores.values():
            store.max_dead_ratio = upkeep.dead_per_living_shared if tight else upkeep.dead_per_living

    def _encode_readers(self, interest: Interest, *, nested: bool) -> int:
        """The code of those who read the node that is tapped, or of those who read the root."""
        places = (place for place, party in enumerate(self.needs.filter_groups) if (party.scope is not None) is nested)
        return interest.encode_groups(places)

    def reslice(self, slicing: Slicing, shape: PlanShape) -> None:
        """Keep tuples by other slices: the fewest tuples (Mem-Opt), or the least work (CPU-Opt)."""
        self.slicing = slicing
        self._update_tree(list(self.needs.filter_groups), shape)

    def _choose_slice_ends(self) -> tuple[int, ...]:
        """The ages at which slices should end."""
        found = self.measure_windows() if self.slicing == "cpu-opt" else None
        return (
            tuple(self.needs.list_window_ends())
            if found is None
            else tuple(map(int, choose_cpu_opt_chain(*found, SLICE_OVERHEAD, "lookup")))
        )

    def measure_windows(self) -> tuple[SharedWindows, Rates] | None:
        """The windows and rates, per tick, as the cost model of slices has them; None where nothing can be merged."""
        ends = self.needs.list_window_ends()
        timed = [self.tree.stores[alias] for alias, _ in self.widest_windows]
        if not 2 <= len(ends) <= _MAX_MERGED_WINDOWS or len(timed) < 2:
            return None
        newest = max(int(store.newest_birth) for store in timed)
        young = [store.list_ids_after(_subtract_time(newest, ends[0])) for store in timed]
        rates = [ids.size / ends[0] for ids in young]
        if self.tree.interest is None or not all(rates):
            return None
        reaches = [
            self.tree.interest.longest_window(s.alias, s.read_interest(ids))
            for s, ids in zip(timed, young, strict=True)
        ]
        wanted = [min(float(np.mean(reach >= end)) for reach in reaches) for end in ends]
        met = sum(store.tuples_read * len(other) for store, other in ((timed[0], timed[1]), (timed[1], timed[0])))
        joins = sum(node.built for node in self.tree.walk_joins()) / max(1, met)
        windows = SharedWindows(tuple(map(float, ends)), tuple(np.minimum.accumulate(wanted)))
        return windows, Rates(rates[0], rates[1], joins)

    def _update_summary(self) -> None:
        """Sum up what is asked of tuples and of results."""
        self.admission = Admission(self.needs.filter_groups)
        self._group_places = {party: place for place, party in enumerate(self.needs.filter_groups)}
        self._shown_columns = self.needs.list_shown_columns()
        self.widest_windows = tuple(sorted(self.needs.find_longest_windows().items()))

    # ── who wants the tuples there are ───────────────────────────────────────────────────────────────────────────

    def _recode_rows(self, interest: Interest, before: Sequence[FilterGroup], older: bool) -> dict[str, I32]:
        """The codes of stored tuples: parties from before want what they wanted, one that looks back what passes."""
        parties = self.needs.filter_groups
        kept = [before.index(party) if party in before else None for party in parties]
        wanted = {}
        for alias, store in self.tree.stores.items():
            ids = store.list_ids()
            if store.plan.source.is_table:
                wanted[alias] = np.full(ids.size, interest.encode_groups(range(len(kept))), np.int32)
                continue
            if self.tree.interest is None:
                old = interest.encode_groups(place for place, party in enumerate(kept) if party is not None)
                codes = np.where(store.is_freed(ids), NO_INTEREST, old).astype(np.int32)
            else:
                codes = interest.recode_from(store.read_interest(ids), self.tree.interest, kept)
            if older and kept[-1] is None and parties[-1].reads(alias):
                passing = compute_mask(parties[-1].filters_of(alias), partial(_read_column, store, ids), ids.size)
                passing &= (
                    store.read_births(ids) > parties[-1].start.drained_until
                )  # those before lack a column that it reads
                codes = interest.add_group(codes, len(parties) - 1, passing)
            wanted[alias] = codes
        return wanted

    def _can_read_history(self, member: Member) -> bool:
        """Whether what is stored tells all that the query asks of a tuple; rows that end are followed from birth on."""
        need, stores = member.need, self.tree.stores
        known = {(alias, name) for alias, store in stores.items() for name in store.plan.columns}
        filters = {(alias, column.name) for alias, expr in need.filters for column in find_columns(expr)}
        alike = (p for p in self.needs.filter_groups if (p.filters, p.scope) == (need.filters, need.scope))
        mine = next(alike, None)
        whole = mine is not None and mine.start.drained_until == ALWAYS and self._find_gap_end(need) == ALWAYS
        return member.outlet is None and need.input_columns <= known and (filters <= known or whole)

    def _find_gap_end(self, need: JoinRequirement) -> int:
        """A time after which the stored tuples have the values of all columns that a query reads."""
        read = {
            *need.input_columns,
            *((alias, column.name) for alias, expr in need.filters for column in find_columns(expr)),
        }
        stores = self.tree.stores.items()
        known = (store.find_gap_end([name for owner, name in read if owner == alias]) for alias, store in stores)
        return max(known, default=int(ALWAYS))

    def _find_missing_until(self, need: JoinRequirement, start: StartPoint, done: int) -> int:
        """A time after which no tuple is missing that the query wants: others of its scope held it, NULLs included."""
        horizons = []
        parties = [party for party in self.needs.filter_groups if party.scope == need.scope]
        for alias, _ in need.lifetimes:
            mine = {expr for owner, expr in need.filters if owner == alias}
            wider = [party for party in parties if set(party.filters_of(alias)) <= mine]
            held = [max(_subtract_time(done, party.longest_windows[alias]), party.missing_until) for party in wider]
            horizons.append(min(held, default=start.drained_until))
        return max(horizons, default=start.drained_until)

    def _find_longest_life(self, need: JoinRequirement) -> int:
        """The longest time a tuple lives; nobody knows how long one does that dies by a count."""
        return int(FOREVER) if self.row_counted else max((life for _, life in need.lifetimes), default=0)

    @property
    def can_merge_groups(self) -> bool:
        """Whether two parties have the same filters."""
        parties = self.needs.filter_groups
        return self.tree.interest is not None and len({(each.filters, each.scope) for each in parties}) < len(parties)

    def merge_groups(self, done: int, shape: PlanShape) -> None:
        """Make one of two parties with the same filters, once tuples that only one of them wants are gone."""
        interest, before = self.tree.interest, list(self.needs.filter_groups)
        assert interest is not None
        held = [
            store.read_interest(store.list_ids())
            for store in self.tree.stores.values()
            if not store.plan.source.is_table
        ]
        for later, earlier in combinations(reversed(before), 2):
            drained = max(later.start.drained_until, earlier.start.drained_until) < done
            alike = (later.filters, later.scope) == (earlier.filters, earlier.scope)
            if alike and drained and later in self.needs.filter_groups:
                places = before.index(later), before.index(earlier)
                if all(interest.want_same_rows(*places, codes) for codes in held):
                    self._merge_group(later, earlier)
        if before != self.needs.filter_groups:
            self._update_tree(before, shape)

    def _merge_group(self, filter_group: FilterGroup, into: FilterGroup) -> None:
        moving = [member for member in self.members if member.filter_group is filter_group]
        for member in moving:
            member.emitted = self.count_emitted(member)
        self.needs.merge(filter_group, into)
        self._slices_current = False
        self._merge_count += 1
        for member in moving:
            member.change_filter_group(into, self._merge_count)
            member.counted_before = self._get_slice_counts(into).count_within(member.need.common_lifetime or 0)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def build_matches(self, rows: JoinRows) -> MatchBatch:
        """New combinations in temporal order, with what members may ask of them."""
        return self._build_matches(self.tree.plan.root, rows, None)

    def build_early_matches(self, rows: JoinRows) -> MatchBatch:
        """As `harvest`, of the tapped node, for those who read it."""
        assert self.tree.early_node is not None
        assert self.tree.interest is not None
        part = self.tree.early_node.plan
        rows = self.tree.intersect_interest(part, rows, self._encode_readers(self.tree.interest, nested=True))
        assert rows.interest is not None
        return self._build_matches(part, rows.take(np.flatnonzero(rows.interest)), self.tree.early_aliases)

    def _build_matches(self, part: SubPlan, rows: JoinRows, scope: frozenset[str] | None) -> MatchBatch:
        rows = rows.take(np.argsort(rows.born, kind="stable"))
        plan, stores, interest = self.tree.plan, self.tree.stores, self.tree.interest
        ids = dict(zip(part.aliases, rows.ids, strict=True))
        holding = None
        if interest is not None:
            places = self._group_places
            rows = JoinRows(rows.ids, rows.born, rows.dies, self.tree.compute_new_interest(part, rows))
            holding = lambda party: interest.membership(places[party])  # noqa: E731
        return MatchBatch(
            rows,
            {alias: stores[alias].read_births(ids[alias]) for alias in self._list_aged_streams() if alias in ids},
            reduce(np.minimum, [self.read_expirations(a, ids[a]) for a in self.row_counted])
            if self.row_counted
            else None,
            PayloadView(ids, stores, [named for named in self._shown_columns if named[0] in ids]),
            tuple((alias, life) for alias, life in self.widest_windows if alias in ids),
            plan.residuals,
            holding,
            self.tree.shedding is not None,
            self._merge_count,
            self.tree.maintenance,
            scope,
        )

    def _list_aged_streams(self) -> dict[str, int]:
        """The streams whose tuples' births members ask for."""
        ageing = (alias for member in self.writers for alias, _ in member.need.freshness_checks)
        return {**dict(self.widest_windows), **(dict.fromkeys(ageing, 0) if self.tree.shedding is not None else {})}

    def find_freshness(self) -> dict[str, int]:
        """How old a tuple of each stream may be for all members."""
        found: dict[str, int] = {}
        for member in self.members:
            for alias, bound in member.need.freshness:
                found[alias] = min(bound, found.get(alias, bound))
        return found

    def read_expirations(self, alias: str, ids: I64) -> I64:
        return self.tree.stores[alias].read_expirations(ids)

    def list_row_counted_places(self) -> list[int]:
        """Where the ids of tuples that die by a count stand in a row."""
        return [self.tree.plan.root.aliases.index(alias) for alias in self.row_counted]

    def count_matches(self, matches: MatchBatch) -> None:
        """Count results that are shown when somebody asks, by slice and by who wants them."""
        if not self._slices_current:
            self._flush_counts()
        codes = NO_CODES if matches.rows.interest is None else matches.rows.interest
        if self.tree.interest is not None and len(self.tree.interest.sets) > len(self._pending_counts):
            more = len(self.tree.interest.sets) - len(self._pending_counts)
            self._pending_counts = np.concatenate(
                [self._pending_counts, np.zeros((more, self._pending_counts.shape[1]), np.int64)]
            )
        count_slices(matches.age, codes, self._total_counts.windows, self._pending_counts)

    def count_emitted(self, member: Member) -> int:
        """How many changes a member was given."""
        if member.outlet is not None:
            return member.emitted
        return (
            member.emitted
            + self._get_slice_counts(member.filter_group).count_within(member.need.common_lifetime or 0)
            - member.counted_before
        )

    def _get_slice_counts(self, filter_group: FilterGroup) -> SliceCounts:
        """The results of a party by slice."""
        self._flush_counts()
        return self._slice_counts[filter_group]

    def _flush_counts(self) -> None:
        """Hand what was counted to the parties, and go on by the slices there are now."""
        interest, parties = self._pending_for
        for place, party in enumerate(parties):
            if party in self._slice_counts:
                wanted = (
                    range(len(self._pending_counts))
                    if interest is None
                    else interest.list_codes_with(place, len(self._pending_counts))
                )
                self._slice_counts[party].add_counts(
                    self._total_counts.windows, self._pending_counts[list(wanted)].sum(axis=0)
                )
        self._total_counts.counts += self._pending_counts.sum(axis=0)
        if not self._slices_current:
            known, now = self._slice_counts, self.needs.filter_groups
            self._slice_counts = {
                each: known[each].reslice(each.list_uniform_windows())
                if each in known
                else SliceCounts(each.list_uniform_windows())
                for each in now
            }
            self._total_counts = self._total_counts.reslice(
                {life for each in now for life in each.list_uniform_windows()}
            )
            self._slices_current = True
        self._pending_for = self.tree.interest, tuple(self.needs.filter_groups)
        self._pending_counts = np.zeros((1, self._total_counts.windows.size + 1), np.int64)

    def list_slices(self, done: int) -> list[Slice]:
        """The slices of the windows, youngest first: who reads them, what they hold, the combinations found."""
        self._flush_counts()
        slices, low = [], 0
        for high, results in zip(self._total_counts.windows.tolist(), self._total_counts.counts.tolist(), strict=False):
            readers = tuple(member.name for member in self.members if member.need.common_lifetime == high)
            rows = {
                alias: store.count_between(_subtract_time(done, high), _subtract_time(done, low))
                for alias, store in self._list_timed_stores()
            }
            slices.append(Slice(low, high, readers, rows, results))
            low = high
        return slices

    def _list_timed_stores(self) -> Iterator[tuple[str, LeafStore]]:
        return ((alias, self.tree.stores[alias]) for alias, _ in self.widest_windows)


def _read_column(store: LeafStore, ids: I64, column: Column) -> pa.Array:
    return store.take(column.name, ids)


def _add_time(time: int, by: int) -> int:
    if time == ALWAYS:
        return time
    return int(FOREVER) if by >= FOREVER else min(time + by, int(FOREVER))


def _subtract_time(time: int, by: int) -> int:
    return max(time - by, int(ALWAYS))
