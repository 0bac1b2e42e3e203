"""The state of a join node: the rows it keeps, by key code, and what it may lack.

Law: except for what `missing` describes, and rows that were shed if it is `lossy`, the state lacks no demanded row that
lives. Rows are inserted once: `insert_absent` compares them by identity. Dead rows stay until a purge finds
enough of them.

State: a `RowTable`, and the description of what is missing while something is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from penstock.join.completion.missing_rows import MissingRows
from penstock.join.join_rows import JoinRows
from penstock.join.node_reader import NodeReader
from penstock.join.probes import ProbeResult, Probes
from penstock.join.range_probes import read_numbers
from penstock.join.row_kernels import KeyColumn
from penstock.join.row_table import RowTable
from penstock.join.tree_context import TreeContext
from penstock.plan import Key, StoredRange, SubPlan
from penstock.state import F64, I32, NONE, CodeSet, Mask, Renumbering


class NodeState:
    """The rows of a node under the key that its sibling probes it with."""

    def __init__(self, plan: SubPlan, key: Key, reader: NodeReader, context: TreeContext) -> None:
        self.key = key
        self.table = RowTable(len(plan.aliases), context.maintenance)
        self.missing: MissingRows | None = None
        """The rows that may be missing and are looked up when a probe needs them; None if there are none."""
        self.lossy = False
        """Whether rows may be missing that a budget shed: they are not looked up while it lasts."""
        self._plan = plan
        self._reader = reader
        self._context = context
        self._leaf_ends, self._marked_rows = dict.fromkeys(plan.aliases, 0), 0
        """Where the leaves ended when the state was last marked, and how many rows it had then."""

    def __len__(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    @property
    def complete_keys(self) -> CodeSet | None:
        """The keys for which no row is missing; None if that holds for all keys."""
        return None if self.missing is None else self.missing.complete_keys

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert(self, rows: JoinRows, fresh: Mask | bool) -> None:
        """Add rows; `fresh` are those with a tuple of the current batch."""
        self.table.insert(rows, self.encode_keys(rows), self._context.keys.code_limit(self.key), fresh)

    def append(self, rows: JoinRows) -> None:
        """Add rows with a tuple of the current batch."""
        self.table.append(rows, self.find_codes(rows), self._context.keys.code_limit(self.key))

    def find_codes(self, rows: JoinRows) -> KeyColumn:
        """The key codes of rows of the node."""
        return self._reader.find_codes(self.key[0]) if len(self.key) == 1 else (NONE, self.encode_keys(rows))

    def insert_absent(self, rows: JoinRows) -> int:
        """Add the rows that the state does not hold; returns how many."""
        rows = rows.take(self.table.find_absent(rows))
        fresh = np.zeros(len(rows), np.bool_)
        for place, alias in enumerate(self._plan.aliases):
            fresh |= rows.ids[place] >= self._context.stores[alias].fresh_from
        self.insert(rows, fresh)
        self.table.postpone_rebuild(len(rows))
        return len(rows)

    def encode_keys(self, rows: JoinRows) -> I32:
        parts = [self._reader.codes(id_, rows) for id_ in self.key]
        return self._context.keys.encode(self.key, parts, len(rows), insert=True)

    def read_living(self) -> JoinRows:
        """All rows, dead rows that are not purged yet included."""
        return self._reader.refresh_expirations(self.table.rows())

    def probe(self, probes: Probes, ordered_by: StoredRange | None) -> Iterator[ProbeResult]:
        """The rows that match probes by the key, or by the number that a range condition compares."""
        table, scratch = self.table, self._context.probe_buffer
        if probes.ranges is not None and ordered_by is not None:
            read, old_only = self._make_number_reader(ordered_by), probes.old_only
            blocks = table.probe_range(probes.ranges, probes.born, probes.dies, old_only, ordered_by, read, scratch)
        else:
            parts = [probes.key_codes[id_] for id_ in self.key]
            codes = self._context.keys.encode(self.key, parts, len(probes), insert=False)
            blocks = table.probe(codes, probes.born, probes.dies, probes.old_only, scratch)
        for block in blocks:
            rows = JoinRows(table.read_ids(block.row), block.born, block.dies)
            if self._reader.late_ending:
                rows = self._reader.refresh_expirations(rows)
                alive = rows.born < rows.dies
                yield ProbeResult(block.probe[alive], rows.take(alive))
            else:
                yield ProbeResult(block.probe, rows)

    def _make_number_reader(self, by: StoredRange) -> Callable[[JoinRows], list[F64]]:
        """Read the numbers that the sibling's range condition compares."""
        return lambda rows: read_numbers(by, self._context.make_reader(self._plan, rows))

    # ── maintenance ──────────────────────────────────────────────────────────────────────────────────────────────

    def rebuild(self, rows: JoinRows) -> None:
        """Hold exactly these rows."""
        self.table.rebuild(rows, self.encode_keys(rows))

    def purge(
        self, bound: int, renumbered: Mapping[str, Renumbering], filter_demanded: Callable[[JoinRows], JoinRows]
    ) -> None:
        """Drop rows that are dead or no longer demanded, if there are enough of them or leaf rows have new ids."""
        changed: dict[int, Renumbering] = {}
        if renumbered:
            changed = {place: renumbered[a] for place, a in enumerate(self._plan.aliases) if a in renumbered}
        if not (self.table.needs_rebuild or changed or self._is_mostly_dead()):
            return
        self._marked_rows = 0
        rows = self.table.rows()
        if changed:  # before any value is read from the leaves, which know the new ids only
            rows = _renumber_rows(rows.take(rows.dies > bound), changed)
        rows = self._reader.refresh_expirations(rows)
        self.rebuild(filter_demanded(rows.take(rows.dies > bound)))

    def _is_mostly_dead(self) -> bool:
        """Whether most rows are certainly dead, because all rows of a leaf have been replaced since they were added.

        Without this test the state would keep the rows of a burst, and chains through them, until as many new rows have
        been added.
        """
        stores = self._context.stores
        for alias, end in self._leaf_ends.items():
            if stores[alias].rows.base >= end:
                break
        else:
            return False
        dead, self._marked_rows = self._marked_rows, len(self)
        self._leaf_ends = {alias: stores[alias].rows.end for alias in self._plan.aliases}
        return dead > max(len(self) - dead, self._context.maintenance.rebuild_rows)

    def roll_back(self, marks: Mapping[str, int]) -> None:
        """Drop the rows that contain leaf rows from `marks` on."""
        rows = self.table.rows()
        limits = np.array([[marks[alias]] for alias in self._plan.aliases])
        kept = np.flatnonzero(np.logical_and.reduce(rows.ids < limits))
        if kept.size < len(rows):
            self.rebuild(rows.take(kept))

    def take_over(self, former: NodeState) -> None:
        """Take over the rows of a node over the same leaves in an earlier tree."""
        order = [former._plan.aliases.index(alias) for alias in self._plan.aliases]
        if former.key == self.key:
            self.table = former.table
            self.table.reorder(order)
        else:
            rows = former.read_living()
            self.rebuild(JoinRows(rows.ids[order], rows.born, rows.dies))


def _renumber_rows(rows: JoinRows, changes: Mapping[int, Renumbering]) -> JoinRows:
    """The rows with the new ids of leaf rows, by place; without those that contain a dead leaf row."""
    for place, change in changes.items():
        rows.ids[place], alive = change.apply(rows.ids[place])
        rows = rows.take(alive)
    return rows
