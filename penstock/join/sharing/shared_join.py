"""The queries that share a join: what each of them needs, and the tree that finds it for all of them.

Law: queries are added, removed and merged between two batches. The tree finds every combination that some member needs,
and each member gets only combinations whose parts it needs. Tuples that only a removed member needed are freed. A new
member gets the tuples that arrive from then on; with history it also gets the tuples that the windows hold.

Cost: the tree is made to fit other members when it is used next, once for all changes since. A new member that needs no
stored tuple adds a filter group; the codes of stored tuples stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.join.leaf_node import LeafNode
from penstock.join.match_batch import MatchBatch
from penstock.join.running_trees import RunningTrees
from penstock.join.sharing.admission import Admission
from penstock.join.sharing.aggregate_member import AggregateMember, MemberAggregation, divide_members
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
from penstock.plan import JoinPart, JoinRequirement, PlanShape, have_fitting_counts
from penstock.state import ALWAYS, FOREVER, I64, Maintenance

_OLDEST_ROWS = 64
"""How many of the oldest tuples are compared first to tell filter groups apart."""


class SharedJoin:
    """The members of one join and the trees that work for them."""

    def __init__(
        self, host: JoinPart, first: Member, start: StartPoint, policy: StatePolicy, maintenance: Maintenance
    ) -> None:
        self.members: list[Member] = []
        self.writers: list[WritingMember] = []
        """The members that write their rows at once; the rows of the others are built when they are read."""
        self._maintenance = maintenance
        self.needs = SharedNeeds(host, maintenance)
        self.slicing: Slicing = "mem-opt"
        self._slice_ends: tuple[int, ...] = ()
        self._late_ending = [s.alias for s in host.sources if s.window.ends_late]
        self.counts = ResultCounts(self.needs)
        self._aggregations: list[MemberAggregation] = []
        self._aggregates_changed = False
        self._pull_members: Counter[frozenset[str] | None] = Counter()
        self._waiting = 0
        """How many members wait for whole instants."""
        self._reading_ends = 0
        """How many members need to know when their rows leave."""
        self._losing = self._intact = 0
        """How many members accept that a budget leaves results out, and how many that wait do not."""
        self._register(first, start, start.drained_until)
        self._trees = RunningTrees(JoinTree(self.needs.build_plan(host.plan.tree), policy, maintenance))
        self._settled = list(self.needs.filter_groups)
        """The filter groups that the tree works for."""
        self._has_changes = False
        self.counts.set_codes(None, self._settled)
        self.matches = MatchBuilder(self._trees, self._late_ending)
        self._update_summary()

    # ── the trees ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def trees(self) -> RunningTrees:
        """The trees, for the current members."""
        if self._has_changes:
            self._update_tree()
        return self._trees

    @property
    def tree(self) -> JoinTree:
        if self._has_changes:
            self._update_tree()
        return self._trees.tree

    @property
    def shape(self) -> PlanShape:
        """The shape of the tree that runs, or that the join changes to."""
        return self._trees.plans[-1].tree

    @property
    def slice_ends(self) -> tuple[int, ...]:
        """The ages at which slices end, where there are several."""
        self._settle()
        return self._slice_ends

    @property
    def interest(self) -> Interest | None:
        """The codes for sets of filter groups, while the members' needs differ."""
        rows = self._trees.tree.context.interest
        return None if rows is None else rows.interest

    @property
    def early_members(self) -> list[Member]:
        """The members that read a node of the tree, not the root."""
        return [member for member in self.members if member.need.scope is not None]

    @property
    def has_waiting(self) -> bool:
        """Whether members get the rows of an instant when all of them are known, and not before."""
        return self._waiting > 0

    @property
    def accepts_losses(self) -> bool:
        """Whether a budget may leave results of some member out."""
        return self._losing > 0

    def would_distort(self, *, losing: bool, waiting: bool) -> bool:
        """Whether a budget for one query would make another one wrong, of the members and a new one.

        `losing`: the new query accepts that a budget leaves results out; `waiting`: it waits for whole instants.
        """
        return self._intact > 0 if losing else waiting and self._losing > 0

    def fits_counts(self, need: JoinRequirement, *, reads_ends: bool) -> bool:
        """Whether the row-counted windows of a new query fit those of the members."""
        known = self.needs
        if need.row_counts in known.row_counts and len(known.row_counts) == 1:
            return True
        at_birth = not (reads_ends or self._reading_ends or self.pull_count or need.common_lifetime is not None)
        counts, filters = {need.row_counts, *known.row_counts}, {need.filters, *known.filter_sets}
        return have_fitting_counts(counts, filters, at_birth=at_birth)

    @property
    def strict(self) -> bool:
        """Whether all rows of an instant must be read at once; that saves turns if all members wait for them."""
        return bool(self._late_ending) or self._waiting == len(self.members)

    def has_pull_members(self, scope: frozenset[str] | None = None) -> bool:
        """Whether a member that reads these aliases, or all (None), builds its rows when they are read."""
        return self._pull_members[scope] > 0

    @property
    def pull_count(self) -> int:
        """How many members build their rows when they are read."""
        return sum(self._pull_members.values())

    @property
    def keeps_root_rows(self) -> bool:
        """Whether rows of the root are read after their batch: to emit their ends, or to count ROWS."""
        return bool(self._late_ending) or any(member.emits_ends for member in self.members)

    @property
    def has_failed_filters(self) -> bool:
        """Whether a filter could not be evaluated; members that pull their rows fail when these are read."""
        return self.admission.has_failures

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
        missing_until, reads_history = start.drained_until, False
        if history:
            stores = self.tree.stores
            reads_history = can_read_history(member, self.needs, stores)
        if reads_history:
            reach = {group: dict(group.longest_windows) for group in self.needs.filter_groups}
            gap_end = find_gap_end(member.need, stores)
            missing_until = max(gap_end, find_missing_until(member.need, self.needs, start, done))
            start = StartPoint(tuple((alias, 0) for alias, _ in start.first_numbers), gap_end)
        self._register(member, start, missing_until)
        self.counts.start_member(member)
        if reads_history:
            member.complete_since = max(member.complete_since, _add_time(done, 1))
            self._update_tree(reaches_back=reach.get(member.filter_group) != member.filter_group.longest_windows)
        else:
            self._defer_update()

    def _defer_update(self) -> None:
        """Let the tree fit the members when it is used next, or now if queries read an early node of it."""
        self._has_changes = True
        if self.needs.early_aliases is not None or self._trees.tree.early_aliases is not None:
            self._settle()

    def _settle(self) -> None:
        """Make the tree fit the current members."""
        if self._has_changes:
            self._update_tree()

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
        self._count_kinds(member, 1)
        if isinstance(member, WritingMember):
            self._aggregates_changed = True
            self.writers.append(member)
        else:
            self._pull_members[member.need.scope] += 1

    def _count_kinds(self, member: Member, by: int) -> None:
        self._waiting += by * member.waits
        self._losing += by * member.need.accepts_losses
        self._reading_ends += by * member.reads_ends
        self._intact += by * (member.waits and not member.need.accepts_losses)

    def remove_member(self, member: Member) -> None:
        """Remove a query; tuples that only it needed are freed."""
        self.members.remove(member)
        self._count_kinds(member, -1)
        if isinstance(member, WritingMember):
            self._aggregates_changed = True
            self.writers.remove(member)
        else:
            self._pull_members[member.need.scope] -= 1
        self.needs.remove_query(member.need, member.filter_group)
        self.counts.mark_slices_changed()
        if self.members:
            self._defer_update()

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
        self._aggregates_changed = True
        self._settled = []
        self._update_tree()

    def _read_expirations(self, alias: str, ids: I64) -> I64:
        return self._trees.tree.stores[alias].rows.read_expirations(ids)

    def _find_longest_life(self, need: JoinRequirement) -> int:
        """The longest time a tuple lives; FOREVER in ROWS windows, where it is not known."""
        return int(FOREVER) if self._late_ending else max((life for _, life in need.lifetimes), default=0)

    # ── aggregates ───────────────────────────────────────────────────────────────────────────────────────────────

    def build_aggregations(self, done: int) -> list[MemberAggregation]:
        """The aggregations of members that group rows; those that are new are built from the stored rows.

        Their members have seen the rows up to `done`.
        """
        if self._aggregates_changed:
            members = [member for member in self.writers if isinstance(member, AggregateMember)]
            self._aggregations = divide_members(members, self._aggregations)
            self._aggregates_changed = False
        missing = [each for each in self._aggregations if each.running is None and each.living]
        if missing:
            root = self.tree.root
            assert isinstance(root, LeafNode)  # they read one stream
            rows = root.read_living()
            stored = self.matches.build(rows.take(rows.dies > done))  # without freed rows
            for each in missing:
                each.build(stored, done, self._maintenance)
        return missing

    def write_aggregates(self, matches: MatchBatch | None, until: int, done: int) -> None:
        """Write the rows of members that group rows, up to an instant; so far they have seen those up to `done`."""
        if not (self._aggregations or self._aggregates_changed):
            return
        built = self.build_aggregations(done)  # from all stored rows, those of this batch included
        for each in self._aggregations:
            each.apply(None if each in built else matches, until)
        for each in self.build_aggregations(done):  # without members that stopped before they saw this batch
            each.apply(None, until)

    # ── filter groups and slices ─────────────────────────────────────────────────────────────────────────────────

    def reslice(self, slicing: Slicing) -> None:
        """Keep tuples by other slices: the fewest tuples (Mem-Opt), or the least work (CPU-Opt)."""
        self.slicing = slicing
        self._update_tree()

    @property
    def can_merge_groups(self) -> bool:
        """Whether two filter groups have the same filters."""
        return self.needs.has_groups_alike and self.interest is not None

    def merge_groups(self, done: int) -> None:
        """Merge filter groups with the same filters, once no tuple is left that only one of them needs."""
        merged = self._find_mergeable(done)
        if not merged:
            return
        self.counts.distribute()
        moving: dict[FilterGroup, list[Member]] = {group: [] for group in merged}
        for member in self.members:
            if member.filter_group in moving:
                moving[member.filter_group].append(member)
        for group, into in merged.items():
            self._merge_group(group, into, moving[group])
        self._update_tree()

    def _find_mergeable(self, done: int) -> dict[FilterGroup, FilterGroup]:
        """The groups to merge, latest first, each with the first group that needs the same tuples.

        Groups that start at different times differ in the oldest tuples, so these are compared first.
        """
        groups: dict[object, list[int]] = {}
        for place, group in enumerate(self.needs.filter_groups):
            if group.start.drained_until < done:
                groups.setdefault((group.filters, group.scope), []).append(place)
        alike = [places for places in groups.values() if len(places) > 1]
        for oldest_only in (True, False):
            alike = self._divide_by_rows(alike, oldest_only=oldest_only) if alike else []
        listed = self.needs.filter_groups
        found = {place: places[0] for places in alike for place in places[1:]}
        return {listed[place]: listed[found[place]] for place in sorted(found, reverse=True)}

    def _divide_by_rows(self, alike: Sequence[Sequence[int]], *, oldest_only: bool) -> list[list[int]]:
        """Divide sets of groups, given by their places, into those that need the same of the stored tuples."""
        places = [place for each in alike for place in each]
        rows: dict[int, list[bytes]] = {place: [] for place in places}
        for store in self.tree.stores.values():
            if store.interest is None or store.plan.source.is_table:
                continue
            ids = store.rows.list_ids()
            needed = store.interest.read_needs(ids[:_OLDEST_ROWS] if oldest_only else ids, places)
            for place, bits in zip(places, needed, strict=True):
                rows[place].append(bits)
        divided: dict[object, list[int]] = {}
        for number, each in enumerate(alike):
            for place in each:
                divided.setdefault((number, *rows[place]), []).append(place)
        return [each for each in divided.values() if len(each) > 1]

    def _merge_group(self, group: FilterGroup, into: FilterGroup, moving: Sequence[Member]) -> None:
        for member in moving:
            member.emitted = self.counts.count_emitted(member)
        self.needs.merge(group, into)
        self.counts.mark_slices_changed()
        self.matches.merge_count += 1
        self._aggregates_changed = True
        for member in moving:
            member.change_filter_group(into, self.matches.merge_count)
            self.counts.start_member(member)

    @property
    def has_unused_sets(self) -> bool:
        """Whether many sets of filter groups have codes that no stored row has."""
        return self.interest is not None and self.interest.has_unused_sets

    def renew_codes(self) -> None:
        """Give codes only to the sets of filter groups that stored rows have."""
        tree, known, groups = self.tree, self.interest, self._settled
        if known is None or not known.has_unused_sets:
            return
        interest = self.needs.build_interest(self._slice_ends)
        codes = recode_rows(tree.stores, groups, groups, interest, add_history=False)
        readers = self.encode_readers(interest, early=False), self.encode_readers(interest, early=True)
        interest.replace(known)
        self.counts.set_codes(interest, groups)
        tree.renew_codes(interest, codes, readers)

    def _update_tree(self, *, reaches_back: bool = False) -> None:
        """Make the tree fit the current members. Interest is kept while a tuple may be needed by some of them only.

        `reaches_back`: a member needs stored tuples for longer than any did, so that combinations may be missing.
        """
        self._has_changes = False
        before, groups, tree = self._settled, self.needs.filter_groups, self._trees.tree
        self._settled = list(groups)
        self._slice_ends = choose_slice_ends(self.slicing, self.needs, tree)
        plan, interest = self.needs.build_plan(self._trees.drop_track()), self.needs.build_interest(self._slice_ends)
        self._update_summary()
        known = self.interest
        same_reach = not self.needs.divided or (known is not None and known.filter_groups == interest.filter_groups)
        if plan == tree.plan and groups == before and same_reach:
            return
        if known is not None and not reaches_back and self._only_adds_groups(before, known, interest):
            known.add_filter_groups(interest.filter_groups[len(before) :])
            self.counts.add_groups(groups)
            tree.add_sharing(plan)
            return
        codes = recode_rows(tree.stores, groups, before, interest, add_history=reaches_back)
        readers = self.encode_readers(interest, early=False), self.encode_readers(interest, early=True)
        shared = interest if self.needs.divided else None
        self.counts.set_codes(shared, groups)
        tree.update_sharing(plan, shared, codes, readers, self.needs.early_aliases)
        if reaches_back:
            tree.restart()
        upkeep, tight = tree.maintenance, len(groups) > 1 and len(tree.stores) == 2
        for store in tree.stores.values():
            store.expiry.max_dead_ratio = upkeep.dead_per_living_shared if tight else upkeep.dead_per_living

    def _only_adds_groups(self, before: Sequence[FilterGroup], known: Interest, interest: Interest) -> bool:
        """Whether the groups from before need what they needed, and new groups need no stored row."""
        tree = self._trees.tree
        early = self.needs.early_aliases is not None or tree.early_aliases is not None
        tables = any(store.plan.source.is_table for store in tree.stores.values())
        same = self.needs.filter_groups[: len(before)] == before
        counts = self.needs.find_largest_counts()
        narrows = any(counts[alias] < (tree.stores[alias].plan.source.window.row_count or 0) for alias in counts)
        return (
            same
            and not early
            and not tables
            and not narrows
            and interest.filter_groups[: len(before)] == known.filter_groups
        )

    def encode_readers(self, interest: Interest, *, early: bool) -> int:
        """The code of the groups that read the early node, or of those that read the root."""
        places = (place for place, group in enumerate(self.needs.filter_groups) if (group.scope is not None) is early)
        return interest.encode_groups(places)

    def _update_summary(self) -> None:
        """Compute what all members together read of tuples and of results."""
        self.admission = Admission(self.needs.filter_groups, self._maintenance)
        self.matches.update(self.needs)


def _add_time(time: int, by: int) -> int:
    if time == ALWAYS:
        return time
    return int(FOREVER) if by >= FOREVER else min(time + by, int(FOREVER))
