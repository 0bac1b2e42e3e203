"""The join operator: k inputs merged by time, one output of changes for every query that shares it.

Law: for every combination of its inputs' tuples that satisfies the plan and lives in [born, dies) the operator gives
each member that wants it the member's outputs of that combination at `born` with sign +1 and, if the member asks for
ends, at the end of its own windows with sign -1; in temporal order, each once, whatever the sizes of the batches.
Under a budget some combinations are missing, none is added.

It works up to the smallest frontier of its inputs. `strict` holds an instant back until all of its tuples are there:
needed where a tuple may end another one of the same instant (ROWS), or where an instant is reported as a whole.
State: a `JoinTree`, and the members' living rows if they ask for ends. Cost: that of the tree with the widest windows,
whatever the number of members, and for each member what it is asked to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.errors import QueryError, UnsupportedError
from penstock.join.completion.parallel_track import ParallelTrack, refuse_endless
from penstock.join.demand.gate import DemandFilter
from penstock.join.early_reader import EarlyReader
from penstock.join.join_metrics import collect_metrics
from penstock.join.join_rows import JoinRows
from penstock.join.leaf_node import LeafNode
from penstock.join.match_batch import MatchBatch
from penstock.join.sharing.interest import NO_INTEREST, Interest, compute_ends
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import SharedJoin, Slicing
from penstock.join.sharing.shared_needs import FilterGroup, StartPoint
from penstock.join.shedding.load_shedding import LoadShedding
from penstock.join.state_policy import get_policy
from penstock.join.tree import JoinTree
from penstock.ops.protocol import Batch, Inlet, concat
from penstock.ops.time_merge import compute_bound, find_cut, has_ready
from penstock.plan.physical import EddyPlan, JoinPlan
from penstock.plan.query import JoinPart
from penstock.plan.tree import PlanShape, Tree, rename_leaves
from penstock.state.arrow import flatten_table
from penstock.state.kernels import ALWAYS
from penstock.state.maintenance import Maintenance

Migration = Literal["jisc", "moving-state", "parallel-track"]


@dataclass(frozen=True)
class JoinInput:
    """An input of the join: the arc it reads, and the alias whose leaf it feeds."""

    alias: str
    inlet: Inlet


@dataclass(frozen=True)
class SavedJoin:
    """A join at rest: the time up to which all is known, unread tuples by alias, who shares it, and its windows.

    `sets` says what the codes of interest in the windows mean; `kept_after` which columns older tuples lack.
    """

    done: int
    unread: Mapping[str, int]
    filter_groups: Sequence[FilterGroup]
    sets: Sequence[int] | None
    column_gaps: Mapping[str, Mapping[str, int]]
    tables: Mapping[str, pa.Table]


class JoinOperator:
    """Any number of streams and static tables, joined over their windows, for one query or for many."""

    def __init__(
        self,
        id_: str,
        part: JoinPart,
        first: Member,
        start: StartPoint,
        inputs: Sequence[JoinInput],
        tables: Mapping[str, pa.Table],
        *,
        strict: bool,
        state: str,
        demand: DemandFilter,
        maintenance: Maintenance,
    ) -> None:
        self.id = id_
        self.state = state
        """The name of its policy."""
        self.demand = demand
        self.shared_join = SharedJoin(part, first, start, get_policy(state, demand), maintenance)
        self._inputs = tuple(inputs)
        self._inlets = [arrival.inlet for arrival in inputs]
        self._strict = strict or bool(self.shared_join.row_counted)
        self._parallel_track: ParallelTrack | None = None
        self._early_reader: EarlyReader | None = None
        self.unprobed: Counter[Tree] = Counter()
        self._done = int(ALWAYS)
        self._run_count = 0
        self._restored: tuple[MatchBatch, int] | None = None
        self._pending_matches: list[MatchBatch] = []
        for alias, table in tables.items():
            columns = flatten_table(table)
            self.tree.stores[alias].load(columns, table.num_rows)
        if tables:
            self.tree.rebuild(self.tree.plan)

    @property
    def tree(self) -> JoinTree:
        return self.shared_join.tree

    # ── who shares it ────────────────────────────────────────────────────────────────────────────────────────────

    def add_member(self, member: Member, start: StartPoint, *, history: bool) -> None:
        """Take in one more query, between two batches."""
        scope = member.need.scope
        with self._in_sync():
            if scope is not None and self._early_reader is None:
                inlets = {arrival.alias: arrival.inlet for arrival in self._inputs if arrival.alias in scope}
                self._early_reader, self.tree.early_aliases = EarlyReader(inlets, self.tree.stores, self._done), scope
            done = self._done if scope is None or self._early_reader is None else self._early_reader.done
            self.shared_join.add_member(member, start, done, self._drop_track(), history=history)

    def remove_member(self, member: Member) -> None:
        """Let a query go."""
        with self._in_sync():
            nested = [each for each in self.shared_join.members if each.need.scope is not None and each is not member]
            if self._early_reader is not None and not nested:
                self._early_reader.close()
                self._early_reader = self.tree.early_aliases = None
            self.shared_join.remove_member(member, self._drop_track())

    @contextmanager
    def _in_sync(self) -> Iterator[None]:
        """All parts of the join stand at the same time while it is changed; then one that was ahead is so again."""
        if self._early_reader is None:
            yield
            return
        tap, ahead = self._early_reader, self._early_reader.roll_back()
        self.tree.roll_back({alias: tap.mark(alias) for alias in tap.inlets})
        yield
        if self._early_reader is tap and self._ingest_batches(tap.read_again(ahead)):
            self.tree.step_early()

    @property
    def early_members(self) -> list[Member]:
        """The members that read a node of its tree, not the root."""
        return [member for member in self.shared_join.members if member.need.scope is not None]

    def reslice(self, slicing: Slicing) -> None:
        """Keep tuples by other slices."""
        with self._in_sync():
            self.shared_join.reslice(slicing, self._drop_track())

    def _drop_track(self) -> PlanShape:
        """The tree to go on with where queries come or go: a parallel track ends there, the old tree has all it has."""
        shape = self.shape
        self._parallel_track = None
        return shape

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        bound, inlets = self._find_bound()
        if bound > self._done or has_ready(inlets, bound):
            return True
        if self._early_reader is None:
            return False
        ahead = list(self._early_reader.inlets.values())
        bound = compute_bound(ahead, whole=False)
        return bound > self._early_reader.done or has_ready(ahead, bound)

    def _find_bound(self) -> tuple[int, Sequence[Inlet]]:
        """How far the whole join may go, and the inlets that it reads then: a part that is ahead has read its own."""
        bound = compute_bound(self._inlets, whole=self._strict)
        if self._early_reader is None:
            return bound, self._inlets
        ahead = self._early_reader.inlets
        return min(bound, self._early_reader.done), [a.inlet for a in self._inputs if a.alias not in ahead]

    def next_timer(self) -> int | None:
        ending = (member for member in self.shared_join.writers if member.emits_ends)
        dues = [due for member in ending if (due := member.expirations.next_due()) is not None]
        return min(dues) + self._strict if dues else None

    def run(self, budget: int) -> int:
        self._restored = None
        ahead = 0 if self._early_reader is None else self._run_early(self._early_reader, budget)
        bound, inlets = self._find_bound()
        until = find_cut(inlets, bound, budget)
        taken = self._ingest(until)
        self._emit(self._step(until) if taken or self.tree.has_pending(until) else None, until)
        if until == bound:
            self._advance_members(None, bound + 1 if self._strict else bound)
        return taken + ahead

    def _run_early(self, reader: EarlyReader, budget: int) -> int:
        """Let the tapped node go as far as its own streams allow, for those who read it."""
        group, inlets = self.shared_join, list(reader.inlets.values())
        bound = compute_bound(inlets, whole=False)
        until = find_cut(inlets, bound, budget)
        taken = self._ingest_batches({alias: inlet.read(until) for alias, inlet in reader.inlets.items()})
        rows = self.tree.step_early() if taken else None
        harvest = group.build_early_matches(rows) if rows is not None and len(rows) else None
        for member in self.early_members if harvest is not None else ():
            if member.outlet is not None:
                member.write(harvest, until, ())
        if harvest is not None and len(harvest) and group.has_pull_members(self.tree.early_aliases):
            self._pending_matches.append(harvest)
            group.count_matches(harvest)
        reader.done = max(reader.done, until)
        if until == bound:
            self._advance_members(self.tree.early_aliases, bound)
        return taken

    def _advance_members(self, scope: frozenset[str] | None, frontier: int) -> None:
        for member in self.shared_join.writers:
            if member.need.scope == scope:
                member.advance(frontier)

    def metrics(self, names: Mapping[str, str] | None = None) -> dict[str, object]:
        """What the join has read, holds and has built, as far as it is about the aliases `names`, told in those."""
        names = names or {alias: alias for alias in self.tree.stores}
        whole = len(names) == len(self.tree.stores)
        shedding = self.tree.shedding
        exact = shedding is None or not (shedding.lossy_joins or self.tree.completion)
        return {
            **collect_metrics(self.tree, names, self._done),
            "unprobed": {str(rename_leaves(tree, names)): rows for tree, rows in self.unprobed.items()}
            if whole
            else {},
            "completeness": 1.0 if exact or shedding is None else shedding.estimate_completeness(),
            "waiting": {names[alias]: rows for alias, rows in self.unread().items() if alias in names},
            "members": len(self.shared_join.members),
        }

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ingest(self, until: int) -> int:
        ahead = () if self._early_reader is None else self._early_reader.inlets
        return self._ingest_batches({a.alias: a.inlet.read(until) for a in self._inputs if a.alias not in ahead})

    def _ingest_batches(self, arrived: Mapping[str, list[Batch]]) -> int:
        taken = sum(len(batch) for batches in arrived.values() for batch in batches)
        if taken and self.tree.shedding is not None:
            times = [batch.times for batches in arrived.values() for batch in batches if len(batch)]
            self.tree.shedding.begin_batch(min(int(part[0]) for part in times), max(int(part[-1]) for part in times))
        for tree in self._trees:
            tree.complete_some(int(taken * tree.policy.pace))  # before the batch: it will ask for less
        for alias, batches in arrived.items():
            store = self.tree.stores[alias]
            store.end_batch()
            if batches:
                batch, wanted = self.shared_join.admission.admit(alias, concat(batches), self.tree.interest)
                store.ingest(batch.times, batch.columns, wanted)
        return taken

    def _step(self, until: int) -> JoinRows:
        rows = self.tree.step(until)
        if self.tree.shedding is not None:
            self.unprobed += self.tree.shedding.take_unprobed()
        return rows if self._parallel_track is None else self._parallel_track.step(rows, until)

    def _emit(self, rows: JoinRows | None, until: int) -> None:
        group = self.shared_join
        harvest = group.build_matches(rows) if rows is not None and len(rows) else None
        for member in group.writers:
            if member.need.scope is None:
                member.write(harvest, until, group.list_row_counted_places())
        if harvest is not None and group.has_pull_members():
            self._pending_matches.append(harvest)
            group.count_matches(harvest)
        renumbered = self.tree.end_batch(until, self._trees[1:])
        if self._early_reader is not None:
            self._early_reader.advance(until)
        if (
            isinstance(self.tree.root, LeafNode)
            and not any(m.emits_ends for m in group.members)
            and not group.row_counted
        ):
            self.tree.root.store.clear()
        for member in group.writers:
            member.renumber(renumbered, group.row_counted)
        if self._parallel_track is not None and self._parallel_track.finished:
            group.tree, self._parallel_track = self._parallel_track.new_tree, None
        self._done = max(self._done, until)
        self._run_count += 1
        if (
            not self._run_count % self.tree.maintenance.unite_every
            and self._parallel_track is None
            and group.can_merge_groups
        ):
            with self._in_sync():
                group.merge_groups(self._done, self.tree.plan.tree)

    def find_failure(self, member: Member) -> QueryError | None:
        """Why a member stopped, None if it did not."""
        return member.failure or member.filter_group.failure

    @property
    def has_failed_filters(self) -> bool:
        """Whether a filter could not be evaluated; members that show their rows when asked fail when asked."""
        return any(party.failure for party in self.shared_join.needs.filter_groups)

    def take_matches(self) -> list[MatchBatch]:
        """What was found since the last call, for the members that show theirs when asked."""
        harvests, self._pending_matches = self._pending_matches, []
        return harvests

    # ── change and rest ──────────────────────────────────────────────────────────────────────────────────────────

    def set_policy(self, state: str, demand: DemandFilter, node: frozenset[str] | None = None) -> None:
        """Change what is kept, in the whole tree or in the node over some aliases."""
        with self._in_sync():
            for tree in self._trees:
                tree.set_policy(get_policy(state, demand), node)
        if node is None:
            self.state, self.demand = state, demand

    def check_migration(self, plan: JoinPlan, how: Migration) -> None:
        """Refuse a plan that `migrate` cannot go on with."""
        if self.tree.shedding is not None and isinstance(plan.root, EddyPlan):
            raise make_eddy_budget_error(self.id)
        if how == "parallel-track" and self._early_reader is None and self.tree.shedding is None:
            refuse_endless(plan)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Go on with another tree: what it lacks is completed when needed, or at once, or comes with time.

        A parallel track that was still running is left behind: the old tree has all it has. Under a budget there is
        none, because it would do all work twice: the new tree takes over at once. So it does, complete, where queries
        read one of its nodes, which the new tree must have.
        """
        if self._early_reader is not None:
            with self._in_sync():
                self.tree.change_plan(plan)
            return
        if how == "parallel-track" and self.tree.shedding is None:
            self._parallel_track = ParallelTrack(self.tree, plan)
            return
        self._parallel_track = None
        if how != "moving-state":
            self.tree.change_plan(plan)
        else:
            self.tree.rebuild(plan)

    @property
    def plans(self) -> list[JoinPlan]:
        """The plan it runs by, and the one it changes to on a parallel track."""
        return [tree.plan for tree in self._trees]

    @property
    def shape(self) -> PlanShape:
        """The tree it runs by, or changes to: the one it has when a query comes or goes."""
        return self.plans[-1].tree

    @property
    def _trees(self) -> list[JoinTree]:
        """The tree, and the one that runs beside it on a parallel track."""
        return [self.tree] if self._parallel_track is None else [self.tree, self._parallel_track.new_tree]

    def set_shedding(self, shedding: LoadShedding | None) -> None:
        """Keep to a budget from now on, or no longer. A parallel track ends as a change of the plan in place."""
        track, self._parallel_track = self._parallel_track, None
        self.tree.set_shedding(shedding)
        if track is not None:
            self.tree.change_plan(track.new_tree.plan)

    def unread(self) -> dict[str, int]:
        """How many tuples of each input wait."""
        return {arrival.alias: arrival.inlet.waiting() for arrival in self._inputs}

    @property
    def done(self) -> int:
        """The time up to which all is known."""
        return self._done

    def dump(self, scope: frozenset[str] | None) -> SavedJoin:
        """The base windows of the streams, for those who read all of them, or for those who read only some."""
        parties = [party for party in self.shared_join.needs.filter_groups if party.scope == scope]
        if self._early_reader is None:
            interest = self.tree.interest
            tables = {a.alias: self.tree.stores[a.alias].dump(self._done) for a in self._inputs}
            sets = None if interest is None else interest.sets
            return SavedJoin(self._done, self.unread(), parties, sets, self._collect_column_gaps(tables), tables)
        return self._dump_scope(self._early_reader, scope, parties)

    def _dump_scope(
        self, reader: EarlyReader, scope: frozenset[str] | None, filter_groups: list[FilterGroup]
    ) -> SavedJoin:
        """What only the others want, or have seen already, is left out."""
        assert self.tree.interest is not None
        places = [self.shared_join.needs.filter_groups.index(party) for party in filter_groups]
        own = Interest([self.tree.interest.filter_groups[place] for place in places], self.tree.maintenance)
        done, unread, tables = self._done if scope is None else reader.done, {}, {}
        for arrival in self._inputs:
            alias, store = arrival.alias, self.tree.stores[arrival.alias]
            if scope is not None and alias not in scope:
                continue
            behind = scope is None and alias in reader.inlets
            unread[alias] = reader.unread(alias) if behind else arrival.inlet.waiting()
            table = store.dump(done, reader.mark(alias) if behind else None)
            born, wanted = (table.column(name).to_numpy() for name in ("_born", "_wanted"))
            codes = own.recode_from(wanted, self.tree.interest, places)
            dies = np.where(codes == NO_INTEREST, ALWAYS, compute_ends(born, own.longest_window(alias, codes)))
            table = table.set_column(1, "_dies", pa.array(dies)).set_column(2, "_wanted", pa.array(codes))
            tables[alias] = table.filter(pa.array(dies > done))
        sets = own.sets if len(filter_groups) > 1 else None
        return SavedJoin(done, unread, filter_groups, sets, self._collect_column_gaps(tables), tables)

    def _collect_column_gaps(self, aliases: Iterable[str]) -> dict[str, dict[str, int]]:
        return {alias: self.tree.stores[alias].column_gaps for alias in aliases}

    def restore(
        self,
        windows: Mapping[str, pa.Table],
        column_gaps: Mapping[str, Mapping[str, int]],
        unread: Mapping[str, int],
        done: int,
        sets: Sequence[int] | None,
    ) -> None:
        """Start from windows dumped at the time `done`: what lived then lives again.

        Nothing is written: members ask for the living. `sets` says what the codes of interest in the windows mean.
        """
        interest = self.tree.interest
        self._done = done
        for arrival in self._inputs:
            arrival.inlet.rewind(unread[arrival.alias])
        for alias, table in windows.items():
            rows = table
            if interest is not None and sets is not None:
                place = table.schema.get_field_index("_wanted")
                codes = interest.recode(table.column(place).to_numpy(), sets)
                rows = table.set_column(place, "_wanted", pa.array(codes))
            self.tree.stores[alias].restore(rows, column_gaps[alias])
        if self.tree.policy.lazy and not any(member.emits_ends for member in self.shared_join.members):
            for store in self.tree.stores.values():
                store.end_batch()
            self.tree.restart()
        else:
            self._restored = self.shared_join.build_matches(self.tree.rebuild(self.tree.plan)), done

    def build_live_rows(self, member: Member) -> Batch | None:
        """The rows of a member that lived in a snapshot, None if it does not ask for ends."""
        if not member.emits_ends or self._restored is None:
            return None
        return member.build_live_rows(*self._restored, self.shared_join.list_row_counted_places())


def make_eddy_budget_error(name: str) -> UnsupportedError:
    """An eddy cannot keep to a budget."""
    message = f"{name} is an eddy: it has no fixed paths over which a budget could be split; give it a tree as its plan"
    return UnsupportedError("EDDY_WITHOUT_PATHS", message)
