"""Mutants of just-in-time state: each function breaks one rule.

The tests must detect each of them (tests/law/test_mutants.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.join import JoinNode, JoinTree, LeafNode
from penstock.join.completion.completion import CompletionTracker
from penstock.join.completion.key_count import KeyCount
from penstock.join.completion.missing_rows import MissingRows
from penstock.join.demand import gate_control, resume
from penstock.join.demand.eddy_gates import EddyGates
from penstock.join.demand.gate import Gate
from penstock.join.demand.gate_control import GateControl
from penstock.join.node import walk_nodes
from penstock.join.pair_join import PairJoin
from penstock.join.probes import ProbeResult, Probes
from penstock.join.row_table import RowTable
from penstock.join.state_control import StateControl
from penstock.state import CodeSet, NumberRanges


def mark_key_complete_after_lookup(patch: pytest.MonkeyPatch) -> None:
    """A key counts as complete after a lookup for one probe, which omits rows outside the lifetime of the probe."""
    match = JoinNode.match

    def narrow(self: JoinNode, probes: Probes) -> Iterator[ProbeResult]:
        state = self.state
        if state is not None and state.complete_keys is not None and tuple(sorted(probes.key_codes)) == state.key:
            parts = [probes.key_codes[i] for i in state.key]
            codes = self._context.keys.encode(state.key, parts, len(probes), insert=True)
            lacking = ~state.complete_keys.has(codes)
            given = {i: part[lacking] for i, part in probes.key_codes.items()}
            for found in self.pair.lookup(Probes(given, probes.born[lacking], probes.dies[lacking])):
                self.insert_absent(self.filter_demanded(found.rows))
            state.complete_keys.add(codes[lacking])
        yield from match(self, probes)

    patch.setattr(JoinNode, "match", narrow)
    patch.setattr(JoinTree, "complete_batch_keys", lambda _self: None)


def mark_demanded_keys_complete(patch: pytest.MonkeyPatch) -> None:
    """After a migration every demanded key counts as complete."""
    mark = CompletionTracker.mark_incomplete

    def lenient(self: CompletionTracker, node: JoinNode) -> None:
        mark(self, node)
        if node.state is not None and node.state.complete_keys is not None:
            node.state.complete_keys.add(node.state.encode_keys(node.read_living()))

    patch.setattr(CompletionTracker, "mark_incomplete", lenient)


def gate_driver_by_lazy_child(patch: pytest.MonkeyPatch) -> None:
    """The driver also waits for the lazy child."""
    hang = GateControl._register_gates

    def both(self: GateControl, node: Any, above: Any) -> None:
        hang(self, node, above)
        if isinstance(node, JoinNode) and isinstance(node.driver, JoinNode) and isinstance(node.lazy, JoinNode):
            gate = node.lazy.gate
            if gate is not None:
                node.driver.gates = (*node.driver.gates, gate)

    patch.setattr(GateControl, "_register_gates", both)


def skip_demand_of_resumed_rows(patch: pytest.MonkeyPatch) -> None:
    """Resumed driver rows do not open the gate of their sibling."""
    demand, resume_rows = resume.demand_from_lazy, resume.resume_rows
    resuming: list[bool] = []

    def marked(*args: Any, **kwargs: Any) -> Any:
        resuming.append(True)
        try:
            return resume_rows(*args, **kwargs)
        finally:
            resuming.pop()

    patch.setattr(resume, "resume_rows", marked)
    patch.setattr(resume, "demand_from_lazy", lambda node, rows: None if resuming else demand(node, rows))


def skip_resume_all(patch: pytest.MonkeyPatch) -> None:
    """Rows held back by an empty demand stay held back in nodes without the key."""
    resume_rows = resume.resume_rows

    def cold(node: Any, gate: Any, new: Any, *, resume_all: bool) -> Any:
        if not gate.key:
            return resume_rows(node, gate, new, resume_all=resume_all)
        return resume_rows(node, gate, new, resume_all=False)

    patch.setattr(resume, "resume_rows", cold)


def ignore_gates_in_migration(patch: pytest.MonkeyPatch) -> None:
    """A state keeps its complete keys although a gate held rows back."""
    patch.setattr(JoinNode, "ungated", True)


def keep_complete_keys_of_other_key(patch: pytest.MonkeyPatch) -> None:
    """Codes of one key are used as codes of another."""

    inherit = CompletionTracker.inherit

    def careless(self: CompletionTracker, node: JoinNode, former: Any, before: Any, *, complete: bool) -> None:
        inherit(self, node, former, before, complete=complete)
        state = node.state
        if state is not None and state.complete_keys is not None and former is not None and former in before._missing:
            state.missing.complete_keys = former.state.complete_keys

    patch.setattr(CompletionTracker, "inherit", careless)


def inherit_incomplete_as_complete(patch: pytest.MonkeyPatch) -> None:
    """A state that is still incomplete counts as complete after the next migration."""
    inherit = CompletionTracker.inherit

    def overlap(self: CompletionTracker, node: JoinNode, former: Any, before: Any, *, complete: bool) -> None:
        inherit(self, node, former, before, complete=complete or former in before._missing)

    patch.setattr(CompletionTracker, "inherit", overlap)


def skip_completion_below(patch: pytest.MonkeyPatch) -> None:
    """A completion reads the states below it without completing them."""
    lookup, complete = PairJoin.lookup, JoinNode.complete_for
    inside: list[bool] = []

    def guarded(self: PairJoin, probes: Probes) -> Iterator[ProbeResult]:
        inside.append(True)
        try:
            yield from list(lookup(self, probes))
        finally:
            inside.pop()

    patch.setattr(PairJoin, "lookup", guarded)

    def lazy(self: JoinNode, parts: Any, rows: int, *, old_only: bool) -> None:
        if not inside:
            complete(self, parts, rows, old_only=old_only)

    patch.setattr(JoinNode, "complete_for", lazy)
    patch.setattr(JoinTree, "complete_batch_keys", lambda _self: None)


def use_demand_of_incomplete_driver(patch: pytest.MonkeyPatch) -> None:
    """A gate closes by the rows of an incomplete driver."""
    look = GateControl._review_gate

    def deceived(self: GateControl, node: Any, *when: int) -> None:
        with pytest.MonkeyPatch.context() as during:
            during.setattr(JoinNode, "complete", True)
            look(self, node, *when)

    patch.setattr(GateControl, "_review_gate", deceived)


def mark_known_keys_complete(patch: pytest.MonkeyPatch) -> None:
    """Procedure 1 of the JISC paper: a key with a row in the state counts as complete."""
    complete = JoinNode.complete_for

    def letter(self: JoinNode, parts: Any, rows: int, *, old_only: bool) -> None:
        if self.state is not None and self.state.complete_keys is not None:
            self.state.complete_keys.add(np.unique(self.state.table.codes()))
        complete(self, parts, rows, old_only=old_only)

    patch.setattr(JoinNode, "complete_for", letter)


def insert_present_rows_again(patch: pytest.MonkeyPatch) -> None:
    """Resumed rows are inserted although they are stored already."""
    patch.setattr(RowTable, "find_absent", lambda _self, rows: np.ones(len(rows), np.bool_))


def join_new_pairs_twice(patch: pytest.MonkeyPatch) -> None:
    """New lazy rows join new driver rows once from each side."""

    def extend_both(self: PairJoin, driver: Any, rows: Any, lazy: Any, lazy_rows: Any) -> Iterator[Any]:
        yield from self.extend(driver, rows, old_only=False)
        yield from self.extend(lazy, lazy_rows, old_only=False)

    patch.setattr(PairJoin, "extend_both", extend_both)


def hash_complete_keys_lossily(patch: pytest.MonkeyPatch) -> None:
    """Two keys share a mark."""

    class Lossy(CodeSet):
        def has(self, codes: Any) -> Any:
            return super().has(codes % np.int32(2))

        def add(self, codes: Any) -> Any:
            return super().add(codes % np.int32(2))

    track = CompletionTracker._track

    def lossy(self: CompletionTracker, node: JoinNode, missing: MissingRows) -> None:
        track(self, node, replace(missing, complete_keys=Lossy()))

    patch.setattr(CompletionTracker, "_track", lossy)


def resume_new_rows_only(patch: pytest.MonkeyPatch) -> None:
    """Resumed rows join only rows that arrived after they were held back."""
    bound = resume._find_bound_rows

    def since(leaf: Any, gate: Any, new: Any) -> Any:
        rows = bound(leaf, gate, new)
        return rows.take(rows.ids[0] >= leaf.store.fresh_from)

    patch.setattr(resume, "_find_bound_rows", since)


def trust_filter_for_new_keys(patch: pytest.MonkeyPatch) -> None:
    """A false positive of the Bloom filter is not resumed."""
    add = Gate.add

    def lossy(self: Gate, driver: Any, rows: Any) -> Any:
        codes = [driver.codes(i, rows) for i in self.key]
        known = self._filters[self.key].has(codes) if self.key in self._filters else None
        new = add(self, driver, rows)
        if known is None:
            return new
        seen = set(zip(*(column[known].tolist() for column in codes), strict=True))
        fresh = list(zip(*(column.tolist() for column in new.codes.values()), strict=True))
        kept = np.array([key not in seen for key in fresh], np.bool_)
        return replace(new, size=np.count_nonzero(kept), codes={i: column[kept] for i, column in new.codes.items()})

    patch.setattr(Gate, "add", lossy)


def add_ranges_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """New ranges of a gate let later rows through, but what was held back in them is not resumed."""
    add = NumberRanges.add

    def silent(self: NumberRanges, lows: Any, highs: Any) -> Any:
        known, new = len(self), add(self, lows, highs)
        return new if not known else tuple(part[:0] for part in new)

    patch.setattr(NumberRanges, "add", silent)


def ignore_shed_probes(patch: pytest.MonkeyPatch) -> None:
    """States count as complete although probes below them were shed."""
    patch.setattr(CompletionTracker, "record_losses", lambda _self, _nodes, _shed_at: None)


def mark_only_shed_node_incomplete(patch: pytest.MonkeyPatch) -> None:
    """A join above an incomplete state counts as complete."""

    def own(self: CompletionTracker, nodes: Any, shed_at: Any) -> None:
        for node in nodes:
            if node.state is not None and node.plan.tree in shed_at:
                self.mark_incomplete(node)

    patch.setattr(CompletionTracker, "record_losses", own)


def mark_complete_before_turnover(patch: pytest.MonkeyPatch) -> None:
    """States count as complete as soon as no probe is shed, before the tuples of a leaf have expired."""
    lose = CompletionTracker.record_losses

    def forgetful(self: CompletionTracker, nodes: Any, shed_at: Any) -> None:
        lose(self, nodes, shed_at)
        for node in [] if shed_at else list(self._lost):
            self._recover(node)

    patch.setattr(CompletionTracker, "record_losses", forgetful)


def complete_nothing_under_budget(patch: pytest.MonkeyPatch) -> None:
    """A budget lets probes of an incomplete state find what it holds."""
    complete = JoinNode._complete_matches

    def skip(self: JoinNode, key: Any, probes: Any) -> None:
        if self._context.shedding is None:
            complete(self, key, probes)

    patch.setattr(JoinNode, "_complete_matches", skip)


def forget_losses_with_the_budget(patch: pytest.MonkeyPatch) -> None:
    """When a budget is lifted, states count as complete although rows were shed."""

    def forget(self: CompletionTracker) -> None:
        for node in list(self._lost):
            self._recover(node)

    patch.setattr(CompletionTracker, "defer_losses", forget)


def forget_losses_of_kept_states(patch: pytest.MonkeyPatch) -> None:
    """A state that a new plan keeps counts as complete although rows were shed before."""
    inherit = CompletionTracker.inherit

    def careless(self: CompletionTracker, node: Any, *given: Any, **options: Any) -> None:
        inherit(self, node, *given, **options)
        if node in self._lost:
            self._recover(node)

    patch.setattr(CompletionTracker, "inherit", careless)


def mark_all_leaf_rows_complete(patch: pytest.MonkeyPatch) -> None:
    """Leaf rows outside the range of a probe count as complete, too."""

    add = MissingRows.add_complete_rows

    def careless(self: MissingRows, alias: str, first: int, _ids: Any) -> None:
        add(self, alias, first, np.arange(first, self.marks[alias]))

    patch.setattr(MissingRows, "add_complete_rows", careless)


def mark_complete_with_first_keys(patch: pytest.MonkeyPatch) -> None:
    """A node counts as complete when some keys are complete, not all."""
    patch.setattr(KeyCount, "is_within", lambda _self, complete: len(complete) > 0)


def swap_sides_over_held_back_rows(patch: pytest.MonkeyPatch) -> None:
    """A lazy child whose rows were held back counts as complete when it becomes the driver."""
    patch.setattr(GateControl, "_mark_held_back", lambda _self, _lazy: None)


def keep_demand_below_new_driver(patch: pytest.MonkeyPatch) -> None:
    """The gates below a new driver keep the demand that they had while its rows were held back."""
    refresh, swap = GateControl.refresh_demand, GateControl.swap_sides
    swapped: set[Any] = set()

    def mark(self: GateControl, node: Any, **given: Any) -> None:
        swap(self, node, **given)
        swapped.add(node.driver)

    def skip(self: GateControl, node: Any, *when: int) -> None:
        if node not in swapped:
            refresh(self, node, *when)

    patch.setattr(GateControl, "swap_sides", mark)
    patch.setattr(GateControl, "refresh_demand", skip)


def swap_freely_over_held_back_rows(patch: pytest.MonkeyPatch) -> None:
    """At the begin of a batch the sides change although the new driver lacks rows."""
    patch.setattr(gate_control, "has_no_older_rows", lambda _child, _new_leaves: True)


def add_state_as_complete(patch: pytest.MonkeyPatch) -> None:
    """A state that is kept again counts as complete, although older rows were not stored."""
    patch.setattr(StateControl, "add_state", lambda _self, node: node.add_state())


def read_demand_of_driver_without_state(patch: pytest.MonkeyPatch) -> None:
    """A driver that keeps no rows counts as complete, so that a gate stays closed for what it had demanded."""
    patch.setattr(JoinNode, "complete", property(lambda self: self.state is None or self.state.missing is None))


def resume_only_states(patch: pytest.MonkeyPatch) -> None:
    """Below a new key nothing is resumed if no join keeps rows, although demand at gates below may be missing."""

    def has_state(node: Any) -> bool:
        return isinstance(node, JoinNode) and (node.state is not None or has_state(node.left) or has_state(node.right))

    patch.setattr(resume, "lacks_rows", has_state)


def leave_resumed_rows_suspended(patch: pytest.MonkeyPatch) -> None:
    """A suspended tuple whose key is demanded is joined once, but does not return to the probed rows."""
    patch.setattr(LeafNode, "resume", lambda _self, _rows: None)


def seek_suspended_rows_among_demanded(patch: pytest.MonkeyPatch) -> None:
    """A resume looks for the tuples of a new key among the demanded rows, as probes do."""
    match = LeafNode.match

    def narrow(self: LeafNode, probes: Probes) -> Iterator[ProbeResult]:
        if self.demanded is None or not probes.from_leaves:
            yield from match(self, probes)

    patch.setattr(LeafNode, "match", narrow)


def keep_table_of_opened_gate(patch: pytest.MonkeyPatch) -> None:
    """When a gate opens, the leaves below it keep probing only the rows that it had admitted."""
    mark = GateControl._mark_held_back

    def keep(self: GateControl, lazy: Any) -> None:
        leaves = [part for part in walk_nodes(lazy) if isinstance(part, LeafNode)]
        tables = [leaf.demanded for leaf in leaves]
        mark(self, lazy)
        for leaf, table in zip(leaves, tables, strict=True):
            leaf.demanded = table

    patch.setattr(GateControl, "_mark_held_back", keep)
    patch.setattr(LeafNode, "_may_suspend", lambda self: self.demanded is not None or bool(self.gates))


def close_eddy_gate_with_old_keys(patch: pytest.MonkeyPatch) -> None:
    """A gate of an eddy is closed without the keys of tuples that arrived while it was open."""
    patch.setattr(EddyGates, "_renew_demand", lambda _self, _gate, _alias, _bound: None)


MUTANTS = [
    mark_key_complete_after_lookup, mark_demanded_keys_complete, gate_driver_by_lazy_child,
    skip_demand_of_resumed_rows, skip_resume_all, ignore_gates_in_migration, keep_complete_keys_of_other_key,
    inherit_incomplete_as_complete, skip_completion_below, use_demand_of_incomplete_driver,
    mark_known_keys_complete, insert_present_rows_again, join_new_pairs_twice,
    hash_complete_keys_lossily, resume_new_rows_only, trust_filter_for_new_keys,
    ignore_shed_probes, mark_only_shed_node_incomplete, mark_complete_before_turnover,
    complete_nothing_under_budget, forget_losses_with_the_budget, forget_losses_of_kept_states,
    mark_complete_with_first_keys, mark_all_leaf_rows_complete, swap_sides_over_held_back_rows,
    keep_demand_below_new_driver, swap_freely_over_held_back_rows, add_state_as_complete,
    read_demand_of_driver_without_state, resume_only_states, leave_resumed_rows_suspended,
    seek_suspended_rows_among_demanded, keep_table_of_opened_gate, close_eddy_gate_with_old_keys,
]  # fmt: skip
