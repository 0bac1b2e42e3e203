"""A leaf of a join tree. It is always complete; probes go to the indexes of its store.

While a closed gate holds rows of the leaf back, its sibling probes a table of the demanded rows instead (JIT, the
blacklist): suspended rows wait in the window, where only a resume looks for them.

Law: the table holds every living row that all closed gates above admit; it may hold others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from penstock.join.demand.gate import Gate
from penstock.join.demand.suppression import filter_demanded
from penstock.join.join_rows import JoinRows, make_rows
from penstock.join.leaf_store import LeafStore
from penstock.join.node_reader import NodeReader
from penstock.join.node_state import NodeState
from penstock.join.probes import ProbeResult, Probes, make_full_intervals
from penstock.join.range_probes import ProbeRanges
from penstock.join.row_kernels import ChainTarget, KeyColumn
from penstock.join.tree_context import TreeContext
from penstock.plan import Key, LeafPlan, StoredRange
from penstock.state import I32, I64, Renumbering


class LeafNode:
    """The rows of one leaf store as a child of a join."""

    def __init__(self, plan: LeafPlan, store: LeafStore, context: TreeContext, sibling_key: Key | None = None) -> None:
        """`sibling_key`: the key that the sibling of the leaf probes it with, if it is not a SteM."""
        self.plan = plan
        self.store = store
        self.gate: Gate | None = None
        self.gates: tuple[Gate, ...] = ()
        self.ordered_by: StoredRange | None = None
        self.suppressed: Counter[str] = Counter()
        self.probes = self.sought = self.changes = 0
        self.demanded: NodeState | None = None
        """The demanded rows, while a gate suspends others."""
        self._sibling_key = sibling_key
        self._context = context

    def compute_delta(self) -> JoinRows:
        """This batch's rows that are demanded."""
        rows = make_rows(self.store.read_fresh()) if self.store.late_ends is None else self.fresh_rows()
        if self.gates:
            rows = filter_demanded(self, rows, self.suppressed)
        if self.demanded is not None and len(rows):
            self.demanded.append(rows)
        return rows

    # ── suspended rows ───────────────────────────────────────────────────────────────────────────────────────────

    def review_suspended(self) -> None:
        """Between two batches, after the gates have changed: have a table of demanded rows if a gate suspends any."""
        if not self._may_suspend():
            self.demanded = None
        elif self.demanded is None and self._sibling_key:
            reader = NodeReader(self.plan, self._context)
            self.demanded = NodeState(self.plan, self._sibling_key, reader, self._context)
            self.demanded.rebuild(self.filter_demanded(self.read_living()))

    def _may_suspend(self) -> bool:
        if self._context.interest is not None:
            return False
        return any(gate.closed and (gate.empty or gate.restricts(self.plan)) for gate in self.gates)

    def resume(self, rows: JoinRows) -> None:
        """Suspended rows are demanded now."""
        if self.demanded is not None and len(rows):
            self.demanded.insert_absent(rows)

    def purge(self, bound: int, renumbered: Mapping[str, Renumbering]) -> None:
        """Follow the window: drop dead rows from time to time, and renumber rows that have new ids."""
        if self.demanded is not None:
            self.demanded.purge(bound, renumbered, self.filter_demanded)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fresh_rows(self) -> JoinRows:
        """This batch's rows."""
        rows = make_rows(self.store.read_fresh())
        return rows.take(rows.born < rows.dies) if self.store.late_ends else rows

    def _make_rows(self, ids: I64) -> JoinRows:
        born, dies = self.store.rows.read_lifetimes(ids)
        rows = JoinRows(ids[np.newaxis, :], born, dies)
        return rows.take(born < dies) if self.store.late_ends else rows

    def expand(self, alias: str, ids: I64, *, old_only: bool = False) -> JoinRows:  # noqa: ARG002
        """The rows with these ids; `alias` is the leaf's own, and the rows are old if `old_only` is true."""
        return self._make_rows(ids)

    def read_living(self) -> JoinRows:
        """All rows, dead rows that are not purged yet included."""
        return self._make_rows(np.arange(self._context.first_row(self.store.alias), self.store.rows.end))

    def find_in_ranges(self, by: StoredRange, ranges: ProbeRanges) -> JoinRows:
        """The rows whose number lies in one of some ranges, suspended rows included."""
        span = self.store.id_range(self._context.first_row(self.plan.alias), old_only=False)
        lifetimes, scratch = make_full_intervals(ranges.lows.size), self._context.probe_buffer
        blocks = self.store.indexes.probe_range(by, ranges, *lifetimes, span, scratch)
        found = [block.row for block in blocks]
        return self._make_rows(np.unique(np.concatenate(found)) if found else np.empty(0, np.int64))

    def filter_demanded(self, rows: JoinRows) -> JoinRows:
        return filter_demanded(self, rows)

    def codes(self, class_id: int, rows: JoinRows) -> I32:
        return self.store.rows.codes(class_id, rows.ids[0])

    def find_codes(self, class_id: int) -> KeyColumn:
        return 0, self.store.rows.code_ring(class_id)

    def find_chains(self, key: Key, *, old_only: bool) -> ChainTarget | None:
        """The chains of the leaf's rows by a key; None if it takes more than the chains to find a key's rows."""
        store, demanded = self.store, self.demanded
        if demanded is not None and key == demanded.key:
            return None if store.late_ends else demanded.table.find_chains(old_only=old_only)
        base, limit = store.id_range(self._context.first_row(self.store.alias), old_only=old_only)
        return store.indexes.find_chains(key, base, limit)

    def match(self, probes: Probes) -> Iterator[ProbeResult]:
        self.probes += len(probes)
        if probes.meter is not None:
            probes.meter.record_probes(len(probes), len(probes.key_codes))
        demanded = self.demanded
        if demanded is not None and tuple(sorted(probes.key_codes)) == demanded.key and not probes.from_leaves:
            yield from demanded.probe(probes, None)
            return
        indexes, scratch = self.store.indexes, self._context.probe_buffer
        span = self.store.id_range(self._context.first_row(self.store.alias), old_only=probes.old_only)
        key_codes, born, dies = probes.key_codes, probes.born, probes.dies
        if probes.ranges is not None and self.ordered_by is not None:
            blocks = indexes.probe_range(self.ordered_by, probes.ranges, born, dies, span, scratch)
        else:
            blocks = indexes.probe(key_codes, born, dies, span, scratch, probes.born_after)
        for block in blocks:
            if probes.meter is not None:
                probes.meter.record_rows(block.probe.size)
            yield ProbeResult(block.probe, JoinRows(block.row[np.newaxis, :], block.born, block.dies))

    @property
    def complete(self) -> bool:
        return True

    def end_batch(self) -> None:
        self.store.end_batch()
        if self.demanded is not None:
            self.demanded.table.end_batch()
