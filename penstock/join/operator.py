"""The join operator: k inputs merged by time, one output of changes for every query that shares it.

Law: for every combination of its inputs' tuples that satisfies the plan and lives in [born, dies), the operator gives
each member that needs it the member's outputs of that combination at `born` with sign +1 and, if the member emits ends,
at the end of its own windows with sign -1; in temporal order, each once, for any sizes of batches. Under a budget some
combinations are missing, none is added.

State: the trees of a `SharedJoin`, and the members' living rows if they emit ends. Cost: that of the tree with the
widest windows, for any number of members, and for each member that of building its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr import ROW_NUMBER, FunctionError
from penstock.join.completion.parallel_track import refuse_endless
from penstock.join.demand.gate import DemandFilter
from penstock.join.early_reader import EarlyReader
from penstock.join.join_inputs import JoinInput, JoinInputs
from penstock.join.join_metrics import collect_metrics
from penstock.join.join_output import JoinOutput
from penstock.join.join_rows import JoinRows
from penstock.join.join_snapshot import SavedJoin, restore_windows, save_join
from penstock.join.leaf_node import LeafNode
from penstock.join.leaf_store import LeafStore
from penstock.join.match_batch import MatchBatch
from penstock.join.running_trees import Migration, RunningTrees
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import SharedJoin
from penstock.join.sharing.shared_needs import StartPoint
from penstock.join.sharing.slices import Slicing, subtract_time
from penstock.join.state_policy import get_policy
from penstock.join.table_leaves import TableLeaves
from penstock.join.table_versions import TableVersions
from penstock.join.tree import JoinTree
from penstock.join.turn_size import TurnSize
from penstock.ops import Batch, Changes, concat, find_cut, make_evaluation_error
from penstock.plan import EddyPlan, JoinPart, JoinPlan, PlanShape, Tree, rename_leaves
from penstock.state import FOREVER, Maintenance


@dataclass(frozen=True)
class JoinSpec:
    """What a join is built from: the part of the plan, and the settings of the query that is added first."""

    id: str
    part: JoinPart
    state: str
    """The name of its state policy."""
    demand: DemandFilter
    maintenance: Maintenance


class JoinOperator:
    """Any number of streams and static tables, joined over their windows, for one query or for many."""

    def __init__(
        self,
        spec: JoinSpec,
        first: Member,
        start: StartPoint,
        inputs: Sequence[JoinInput],
        tables: Mapping[str, TableVersions],
    ) -> None:
        self.id = spec.id
        self.state = spec.state
        self.demand = spec.demand
        self.shared_join = SharedJoin(spec.part, first, start, get_policy(spec.state, spec.demand), spec.maintenance)
        self.output = JoinOutput(self.shared_join)
        self.inputs = JoinInputs(inputs, strict=self.shared_join.strict)
        self.unprobed: Counter[Tree] = Counter()
        self.budget_scope: object = None
        """Only queries with the same budget scope may share the join; None is the scope of the engine."""
        self.stopped = False
        """Whether a user-defined function failed in the tree; only a join that is not shared calls one there."""
        self._run_count = 0
        self._turn_size = TurnSize(spec.maintenance.block)
        self._loading = False
        self.tables: TableLeaves | None = None
        with self._stop_on_failure():
            self.tables = TableLeaves(self.shared_join, tables)
            self.inputs.limit = self.tables.find_change() - 1
        if tables and not self.stopped:
            with self._stop_on_failure():
                self.tree.rebuild(self.tree.plan)

    @property
    def trees(self) -> RunningTrees:
        return self.shared_join.trees

    @property
    def tree(self) -> JoinTree:
        return self.shared_join.tree

    @property
    def done(self) -> int:
        """The time up to which all results are known."""
        return self.inputs.done

    @property
    def shape(self) -> PlanShape:
        """The shape of the tree that runs, or that the join changes to."""
        return self.shared_join.shape

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        return self.inputs.has_work()

    def next_timer(self) -> int | None:
        self.shared_join.build_aggregations(self.done)
        return self.output.find_next_timer(strict=self.inputs.strict)

    def run(self, budget: int) -> int:
        if not self.stopped:
            try:
                return self._run(budget)
            except FunctionError as error:
                self._stop(error)
        until = self.inputs.find_cut(budget)
        taken = sum(len(batch) for batches in self.inputs.read(until).values() for batch in batches)
        self._set_complete(until)
        self.inputs.done = max(self.done, until)
        self._advance_to(until)
        return taken

    @contextmanager
    def _stop_on_failure(self) -> Iterator[None]:
        """Let a user-defined function that fails stop the query of this join; its tree is not used any more."""
        try:
            yield
        except FunctionError as error:
            self._stop(error)

    def _stop(self, error: FunctionError) -> None:
        self.stopped = True
        self.inputs.limit = int(FOREVER)
        for member in self.shared_join.members:
            member.failure = make_evaluation_error(member.name, error)

    def _run(self, budget: int) -> int:
        shedding = self.tree.context.shedding
        if shedding is None:
            return self._run_turn(budget)
        with shedding.measure_turn():
            return self._run_turn(budget)

    def _run_turn(self, budget: int) -> int:
        self.output.drop_restored()
        if self.inputs.has_reached_limit():
            self._change_tables()
        early = self.inputs.early
        ahead = 0 if early is None else self._run_early(early, budget)
        until = self.inputs.find_cut(budget if self.output.deliver is None else self._turn_size.limit(budget))
        taken = self._ingest(self.inputs.read(until))
        early_node = self.tree.early_node
        due = taken or (early_node is not None and early_node.pending.has_due(until))
        rows = self._step(until) if due and not self._loading else None
        self._turn_size.record(taken, 0 if rows is None else rows.born.size)
        self._emit(rows, until)
        self._advance_to(until)
        return taken + ahead

    def _advance_to(self, until: int) -> None:
        """Let readers work up to where this join is, also while more tuples wait."""
        self.output.advance(None, until + 1 if self.inputs.strict else until, self.inputs.complete + 1)

    def _set_complete(self, until: int) -> None:
        """The join has processed everything up to a time: members that wait for whole instants get what is complete."""
        self.inputs.complete = self.inputs.find_complete(until) if self.shared_join.has_waiting else until

    def metrics(self, names: Mapping[str, str] | None = None) -> dict[str, object]:
        """What the join has read, holds and has built, restricted to the aliases `names` and in those names."""
        names = names or {alias: alias for alias in self.tree.stores}
        whole = len(names) == len(self.tree.stores)
        shedding = self.tree.shedding
        exact = shedding is None or not (shedding.lossy_joins or self.tree.completion.has_losses)
        unprobed = self.unprobed if whole else {}
        return {
            **collect_metrics(self.tree, names, self.done),
            "unprobed": {str(rename_leaves(tree, names)): rows for tree, rows in unprobed.items()},
            "completeness": 1.0 if exact or shedding is None else shedding.estimate_completeness(),
            "waiting": {names[alias]: rows for alias, rows in self.inputs.unread().items() if alias in names},
            "members": len(self.shared_join.members),
        }

    def dump(self, scope: frozenset[str] | None) -> SavedJoin:
        """The base windows, for the queries that read the root (`scope` None) or the early node over some aliases."""
        return save_join(self.shared_join, self.inputs, scope)

    def restore(
        self,
        windows: Mapping[str, pa.Table],
        column_gaps: Mapping[str, Mapping[str, int]],
        unread: Mapping[str, int],
        done: int,
        complete: int,
        sets: Sequence[int] | None,
        relations: Mapping[str, Changes],
    ) -> None:
        """Start from windows dumped at the time `done`. Nothing is written: see `JoinOutput.build_live_rows`.

        `complete` is the time up to which members that wait for whole instants have their rows. `relations` are the
        current rows of the relations among the inputs, by alias.
        """
        self.inputs.done, self.inputs.complete = done, complete
        self.inputs.rewind(unread)
        with self._stop_on_failure():
            self._restore_tree(windows, column_gaps, sets, relations)

    def _restore_tree(
        self,
        windows: Mapping[str, pa.Table],
        column_gaps: Mapping[str, Mapping[str, int]],
        sets: Sequence[int] | None,
        relations: Mapping[str, Changes],
    ) -> None:
        done, complete = self.done, self.inputs.complete
        restore_windows(self.shared_join, windows, column_gaps, sets)
        for alias, rows in relations.items():
            self._store(self.tree.stores[alias], rows)
        if self.tree.policy.lazy and done == complete and not any(each.emits_ends for each in self.shared_join.members):
            if self.tables is not None:
                self.tables.move(done)
            self._start_incomplete()
        else:
            self.output.keep_restored(list(self._build_restored_matches(done)), done, complete)
        if self.tables is not None:
            self.tables.drop_former()
            self.inputs.limit = self.tables.find_change() - 1

    def _build_restored_matches(self, done: int) -> Iterator[MatchBatch]:
        """The combinations that live in the stored windows, with the rows that tables had at their births."""
        if self.tables is None or not self.tables:
            yield self.shared_join.matches.build(self.tree.rebuild(self.tree.plan))
            return
        for first, end in self.tables.replay(done):
            rows = self.tree.rebuild(self.tree.plan)
            yield self.shared_join.matches.build(rows.take((rows.born >= first) & (rows.born < end)))

    def begin_loading(self) -> None:
        """Store tuples without joining them, until `end_loading`: their results are known elsewhere.

        That is not possible if rows are needed at once: the policy builds them at once, a member passes them on or
        emits their ends, or a migration depends on them. Then tuples are joined as always.
        """
        policy, shared = self.tree.policy, self.shared_join
        free = self.inputs.early is None and not self.trees.on_parallel_track
        self._loading = (policy.lazy or policy.states == "never") and not shared.writers and free

    def end_loading(self) -> None:
        """Join what comes from now on; states are incomplete and are filled when they are needed."""
        if self._loading:
            self._loading = False
            with self._stop_on_failure():
                self._start_incomplete()

    def _start_incomplete(self) -> None:
        for store in self.tree.stores.values():
            store.end_batch()
        self.tree.restart()

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_early(self, early: EarlyReader, budget: int) -> int:
        """Advance the early node as far as its own streams allow, for the members that read it."""
        inlets = list(early.inlets.values())
        until = find_cut(inlets, self.inputs.find_early_bound(), budget)
        taken = self._ingest({alias: inlet.read(until) for alias, inlet in early.inlets.items()})
        if taken:
            self._emit_early(until)
        early.done = max(early.done, until)
        self.output.advance(self.tree.early_aliases, until, until)
        return taken

    def _emit_early(self, until: int) -> None:
        shared, node, interest = self.shared_join, self.tree.early_node, self.tree.context.interest
        if node is None or interest is None:
            return
        rows = node.step(interest)
        if not len(rows):
            return
        readers = shared.encode_readers(interest.interest, early=True)
        self.output.write_early(shared.matches.build_early(node.plan, rows, interest, readers), until)

    def _ingest(self, arrived: Mapping[str, list[Batch]]) -> int:
        """Store the tuples that arrived in the leaves; returns how many there are."""
        taken = sum([batch.times.size for batches in arrived.values() for batch in batches])
        trees = self.trees
        stores, shedding = trees.tree.stores, trees.tree.context.shedding
        if taken and shedding is not None and not self._loading:
            times = [batch.times for batches in arrived.values() for batch in batches if len(batch)]
            shedding.begin_batch(min(int(part[0]) for part in times), max(int(part[-1]) for part in times))
        trees.complete_some(taken)
        for alias, batches in arrived.items():
            store = stores[alias]
            store.end_batch()
            if batches:
                self._store(store, batches[0] if len(batches) == 1 else concat(batches))
        return taken

    def _store(self, store: LeafStore, arrived: Batch) -> None:
        """Store the rows that arrived in a leaf, and the ends of rows of a relation."""
        ends = None
        if isinstance(arrived, Changes):
            ends = arrived.take(np.flatnonzero(arrived.signs < 0))
            arrived = arrived.take(np.flatnonzero(arrived.signs > 0))
        if ROW_NUMBER in store.plan.columns:
            arrived = replace(arrived, columns={**arrived.columns, ROW_NUMBER: pa.array(arrived.numbers)})
        batch, wanted = self.shared_join.admission.admit(store.alias, arrived, self.shared_join.interest)
        store.ingest(batch.times, batch.columns, wanted, batch.numbers)
        if ends is not None and len(ends):
            store.end_rows(ends.numbers, ends.times)

    def _step(self, until: int) -> JoinRows:
        trees = self.trees
        shedding = trees.tree.context.shedding
        rows = trees.step(until)
        if shedding is not None:
            self.unprobed += shedding.take_unprobed()
        return rows

    def _emit(self, rows: JoinRows | None, until: int) -> None:
        """Give the members their rows, and end the batch."""
        shared, tree = self.shared_join, self.tree
        self._set_complete(until)
        found = None if rows is None or not rows.born.size else shared.matches.build(rows)
        self.output.write(found, until, self.inputs.complete, self.done)
        renumbered = self.trees.end_batch(self.inputs.complete)
        if self.inputs.early is not None:
            self.inputs.early.advance(until)
        if isinstance(tree.root, LeafNode) and not shared.keeps_root_rows:
            tree.root.store.clear()
        for member in shared.writers:
            member.renumber(renumbered, shared.matches.late_ending)
        self.inputs.done = max(self.done, until)
        self._run_count += 1
        due = not self._run_count % tree.maintenance.unite_every
        if due and not self.trees.on_parallel_track:
            self._maintain_sharing()

    def _maintain_sharing(self) -> None:
        """Merge filter groups that need the same tuples, and forget sets of groups that no tuple has."""
        shared = self.shared_join
        if shared.can_merge_groups:
            with self._in_sync():
                shared.merge_groups(self.done)
        if shared.has_unused_sets:
            with self._in_sync():
                shared.renew_codes()

    # ── changes between two batches ──────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _in_sync(self) -> Iterator[None]:
        """Roll an early node back to where the join is while the join is changed; then let it read ahead again."""
        early = self.inputs.early
        node = None if early is None else self.tree.early_node
        if early is None or node is None:
            yield
            return
        ahead = early.roll_back()
        node.roll_back({alias: early.mark(alias) for alias in early.inlets})
        yield
        read_again = self.inputs.early is early and self._ingest(early.read_again(ahead))
        if read_again and self.tree.early_node is not None:  # without output: its readers have these rows already
            self.tree.early_node.step(self.tree.context.interest)

    def replace_tables(self, versions: Mapping[str, TableVersions]) -> None:
        """Tables, by alias, were replaced: combinations that are born from an instant on get the new rows."""
        if not self.stopped and self.tables is not None:
            self.tables.set_versions(versions)
            self.inputs.limit = self.tables.find_change() - 1

    def _change_tables(self) -> None:
        """Continue with the rows that tables have behind the limit."""
        assert self.tables is not None
        with self._stop_on_failure(), self._in_sync():
            self.tables.move(self.inputs.limit + 1)
            self.tables.drop_former()
            for tree in self.trees.all:
                tree.restart()
            self.inputs.limit = self.tables.find_change() - 1

    def find_oldest_birth(self) -> int:
        """The birth of the oldest combination that a restored join builds again, or that is still to come."""
        if not any(member.emits_ends for member in self.shared_join.members):
            return self.inputs.complete
        reach = [store.find_reach() for store in self.tree.stores.values() if store.table is None]
        return subtract_time(self.inputs.complete, max(reach, default=0))

    def add_member(self, member: Member, start: StartPoint, *, history: bool) -> None:
        """Add a query, between two batches."""
        scope = member.need.scope
        with self._in_sync():
            done = self.done if scope is None else self.inputs.open_early(scope, self.tree.stores).done
            if member.waits and not self.shared_join.has_waiting:
                self.inputs.complete = self.inputs.find_complete(self.done)
            self.shared_join.add_member(member, start, done, history=history)
            self.inputs.strict = self.shared_join.strict

    def remove_member(self, member: Member) -> None:
        """Remove a query, between two batches."""
        with self._in_sync():
            if not any(each is not member for each in self.shared_join.early_members):
                self.inputs.close_early()
            self.shared_join.remove_member(member)
            self.inputs.strict = self.shared_join.strict

    def reslice(self, slicing: Slicing) -> None:
        """Keep tuples by other slices."""
        with self._in_sync():
            self.shared_join.reslice(slicing)

    def set_policy(self, state: str, demand: DemandFilter, node: frozenset[str] | None = None) -> None:
        """Change the state policy of the whole tree, or of the node over some aliases."""
        with self._stop_on_failure(), self._in_sync():
            self.trees.set_policy(get_policy(state, demand), node)
        if node is None:
            self.state, self.demand = state, demand

    def check_migration(self, plan: JoinPlan, how: Migration) -> None:
        """Refuse a plan that `migrate` cannot change to."""
        if self.tree.shedding is not None and isinstance(plan.root, EddyPlan):
            raise make_eddy_budget_error(self.id)
        if how == "parallel-track" and self.inputs.early is None and self.tree.shedding is None:
            refuse_endless(plan)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Change to another plan, see `RunningTrees.migrate`; at once if queries read an early node of it."""
        if self.inputs.early is None:
            with self._stop_on_failure():
                self.trees.migrate(plan, how)
            return
        with self._in_sync():
            self.tree.change_plan(plan)


def make_eddy_budget_error(name: str) -> UnsupportedError:
    """An eddy cannot keep to a budget."""
    message = f"{name} is an eddy: it has no fixed paths over which a budget could be split; give it a tree as its plan"
    return UnsupportedError("EDDY_WITHOUT_PATHS", message)
