"""The queries that share a join: what each of them needs, and the tree that finds it for all of them.

Law: queries are added, removed and merged between two batches. The tree finds every combination that some member needs,
and each member gets only combinations whose parts it needs. Tuples that only a removed member needed are freed. A new
member gets the tuples that arrive from then on; with history it also gets the tuples that the windows hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

from penstock.join.running_trees import RunningTrees
from penstock.join.sharing.admission import Admission
from penstock.join.sharing.history import can_read_history, find_gap_end, find_missing_until, recode_rows
from penstock.join.sharing.interest import Interest
from penstock.join.sharing.match_builder import MatchBuilder
from penstock.join.sharing.member import Member, WritingMember
from penstock.join.sharing.result_counts import ResultCounts
from penstock.join.sharing.shared_needs import FilterGroup, SharedNeeds, StartPoint
from penstock.join.sharing.slices import Slicing, choose_slice_ends
from penstock.join.state_policy import StatePolicy
from penstock.join.tree import JoinTree
from penstock.ops import Expirations
from penstock.plan import JoinPart, JoinRequirement
from penstock.state import ALWAYS, FOREVER, I64, Maintenance


class SharedJoin:
    """The members of one join and the trees that work for them."""

    def __init__(
        self, host: JoinPart, first: Member, start: StartPoint, policy: StatePolicy, maintenance: Maintenance
    ) -> None:
        self.members: list[Member] = []
        self.writers: list[WritingMember] = []
        """The members that write their rows at once; the rows of the others are built when they are read."""
        self.needs = SharedNeeds(host, maintenance)
        self.slicing: Slicing = "mem-opt"
        self.slice_ends: tuple[int, ...] = ()
        """The ages at which slices end, where there are several."""
        self._late_ending = [s.alias for s in host.sources if s.window.ends_late]
        self.counts = ResultCounts(self.needs, lambda: self.interest)
        self._pull_members: Counter[frozenset[str] | None] = Counter()
        self._register(first, start, start.drained_until)
        self.trees = RunningTrees(JoinTree(self.needs.build_plan(host.plan.tree), policy, maintenance))
        self.matches = MatchBuilder(self.trees, self._late_ending)
        self._update_summary()

    @property
    def tree(self) -> JoinTree:
        return self.trees.tree

    @property
    def interest(self) -> Interest | None:
        """The codes for sets of filter groups, while the members' needs differ."""
        rows = self.tree.context.interest
        return None if rows is None else rows.interest

    @property
    def early_members(self) -> list[Member]:
        """The members that read a node of the tree, not the root."""
        return [member for member in self.members if member.need.scope is not None]

    def has_pull_members(self, scope: frozenset[str] | None = None) -> bool:
        """Whether a member that reads these aliases, or all (None), builds its rows when they are read."""
        return self._pull_members[scope] > 0

    @property
    def keeps_root_rows(self) -> bool:
        """Whether rows of the root are read after their batch: to emit their ends, or to count ROWS."""
        return bool(self._late_ending) or any(member.emits_ends for member in self.members)

    @property
    def has_failed_filters(self) -> bool:
        """Whether a filter could not be evaluated; members that pull their rows fail when these are read."""
        return any(group.failure for group in self.needs.filter_groups)

    def find_freshness(self) -> dict[str, int]:
        """By stream, the largest age of a tuple that all members accept."""
        found: dict[str, int] = {}
        for member in self.members:
            for alias, bound in member.need.freshness:
                found[alias] = min(bound, found.get(alias, bound))
        return found

    # ── members are added and removed ────────────────────────────────────────────────────────────────────────────

    def add_member(self, member: Member, start: StartPoint, done: int, *, history: bool) -> None:
        """Add a query. It gets tuples from the arrivals `start` on; with `history` also the stored tuples.

        `done` is the time up to which all results are known.
        """
        before, stores = list(self.needs.filter_groups), self.tree.stores
        reach = {group: dict(group.longest_windows) for group in before}
        missing_until, reads_history = start.drained_until, history and can_read_history(member, self.needs, stores)
        if reads_history:
            gap_end = find_gap_end(member.need, stores)
            missing_until = max(gap_end, find_missing_until(member.need, self.needs, start, done))
            start = StartPoint(tuple((alias, 0) for alias, _ in start.first_numbers), gap_end)
        self._register(member, start, missing_until)
        self.counts.start_member(member)
        if reads_history:
            member.complete_since = max(member.complete_since, _add_time(done, 1))
        reaches_back = reads_history and reach.get(member.filter_group) != member.filter_group.longest_windows
        self._update_tree(before, reaches_back=reaches_back)

    def _register(self, member: Member, start: StartPoint, missing_until: int) -> None:
        """`missing_until`: a time up to which tuples are missing that the member needs."""
        group = member.filter_group = self.needs.add_query(member.need, start)
        group.missing_until = max(group.missing_until, missing_until)
        member.complete_since = _add_time(missing_until, self._find_longest_life(member.need))
        if member.emits_ends:  # at that instant the end of a row is missing that the member never got
            member.complete_since = _add_time(member.complete_since, 1)
        member.expirations = Expirations([partial(self._read_expirations, alias) for alias in self._late_ending])
        self.counts.mark_slices_changed()
        self.members.append(member)
        if isinstance(member, WritingMember):
            self.writers.append(member)
        else:
            self._pull_members[member.need.scope] += 1

    def remove_member(self, member: Member) -> None:
        """Remove a query; tuples that only it needed are freed."""
        before = list(self.needs.filter_groups)
        self.members.remove(member)
        if isinstance(member, WritingMember):
            self.writers.remove(member)
        else:
            self._pull_members[member.need.scope] -= 1
        self.needs.remove_query(member.need, member.filter_group)
        self.counts.mark_slices_changed()
        if self.members:
            self._update_tree(before)

    def assign_filter_groups(
        self,
        starts: Sequence[StartPoint],
        missing_until: Sequence[int],
        places: Mapping[str, int],
        complete: Mapping[str, int],
    ) -> None:
        """Divide the members into filter groups as in a snapshot, before any tuple has arrived."""
        needs = [member.need for member in self.members]
        groups = self.needs.assign_filter_groups(
            needs, [places[member.name] for member in self.members], starts, missing_until
        )
        for member, group in zip(self.members, groups, strict=True):
            member.filter_group, member.counted_before, member.complete_since = group, 0, complete[member.name]
        self.counts.clear_groups()
        self._update_tree([])

    def _read_expirations(self, alias: str, ids: I64) -> I64:
        return self.tree.stores[alias].rows.read_expirations(ids)

    def _find_longest_life(self, need: JoinRequirement) -> int:
        """The longest time a tuple lives; FOREVER in ROWS windows, where it is not known."""
        return int(FOREVER) if self._late_ending else max((life for _, life in need.lifetimes), default=0)

    # ── filter groups and slices ─────────────────────────────────────────────────────────────────────────────────

    def reslice(self, slicing: Slicing) -> None:
        """Keep tuples by other slices: the fewest tuples (Mem-Opt), or the least work (CPU-Opt)."""
        self.slicing = slicing
        self._update_tree(list(self.needs.filter_groups))

    @property
    def can_merge_groups(self) -> bool:
        """Whether two filter groups have the same filters."""
        groups = self.needs.filter_groups
        return self.interest is not None and len({(each.filters, each.scope) for each in groups}) < len(groups)

    def merge_groups(self, done: int) -> None:
        """Merge filter groups with the same filters, once no tuple is left that only one of them needs."""
        before = list(self.needs.filter_groups)
        for later, earlier in combinations(reversed(before), 2):
            drained = max(later.start.drained_until, earlier.start.drained_until) < done
            alike = (later.filters, later.scope) == (earlier.filters, earlier.scope)
            pending = alike and drained and later in self.needs.filter_groups
            if pending and self._need_same_rows(before.index(later), before.index(earlier)):
                self._merge_group(later, earlier)
        if before != self.needs.filter_groups:
            self._update_tree(before)

    def _need_same_rows(self, one: int, other: int) -> bool:
        """Whether two filter groups, given by their places, need the same of the stored tuples."""
        streams = (store for store in self.tree.stores.values() if not store.plan.source.is_table)
        leaves = ((store.interest, store.rows.list_ids()) for store in streams if store.interest is not None)
        return all(leaf.interest.want_same_rows(one, other, leaf.read(ids)) for leaf, ids in leaves)

    def _merge_group(self, group: FilterGroup, into: FilterGroup) -> None:
        moving = [member for member in self.members if member.filter_group is group]
        for member in moving:
            member.emitted = self.counts.count_emitted(member)
        self.needs.merge(group, into)
        self.counts.mark_slices_changed()
        self.matches.merge_count += 1
        for member in moving:
            member.change_filter_group(into, self.matches.merge_count)
            self.counts.restart_member(member)

    def _update_tree(self, before: Sequence[FilterGroup], *, reaches_back: bool = False) -> None:
        """Make the tree fit the current members. Interest is kept while a tuple may be needed by some of them only.

        `reaches_back`: a member needs stored tuples for longer than any did, so that combinations may be missing.
        """
        groups, tree = self.needs.filter_groups, self.tree
        self.slice_ends = choose_slice_ends(self.slicing, self.needs, tree)
        plan, interest = self.needs.build_plan(self.trees.drop_track()), self.needs.build_interest(self.slice_ends)
        self._update_summary()
        same_reach = not self.needs.divided or (
            self.interest is not None and self.interest.filter_groups == interest.filter_groups
        )
        if plan == tree.plan and groups == before and same_reach:
            return
        codes = recode_rows(tree.stores, groups, before, interest, add_history=reaches_back)
        readers = self.encode_readers(interest, early=False), self.encode_readers(interest, early=True)
        shared = interest if self.needs.divided else None
        tree.update_sharing(plan, shared, codes, readers, self.needs.early_aliases)
        self.counts.mark_slices_changed()  # codes of interest have a new meaning
        if reaches_back:
            tree.restart()
        upkeep, tight = tree.maintenance, len(groups) > 1 and len(tree.stores) == 2
        for store in tree.stores.values():
            store.expiry.max_dead_ratio = upkeep.dead_per_living_shared if tight else upkeep.dead_per_living

    def encode_readers(self, interest: Interest, *, early: bool) -> int:
        """The code of the groups that read the early node, or of those that read the root."""
        places = (place for place, group in enumerate(self.needs.filter_groups) if (group.scope is not None) is early)
        return interest.encode_groups(places)

    def _update_summary(self) -> None:
        """Compute what all members together read of tuples and of results."""
        self.admission = Admission(self.needs.filter_groups)
        freshness_aliases = (alias for member in self.writers for alias, _ in member.need.freshness_checks)
        self.matches.update(self.needs, freshness_aliases)


def _add_time(time: int, by: int) -> int:
    if time == ALWAYS:
        return time
    return int(FOREVER) if by >= FOREVER else min(time + by, int(FOREVER))
