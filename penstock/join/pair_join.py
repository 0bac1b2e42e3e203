"""The join of two children: rows of one with their partners in the other. It keeps no rows.

Law: `extend` gives every combination of the given rows and rows of the other child that agree in all classes of the
key, overlap in time, satisfy the node's residual predicates, and that some query needs. `lookup` gives the same for all
rows of the node that match some probes, computed from the children.

Cost: that of the probes, plus one evaluation of the residual predicates per block of matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.expr import compute_mask
from penstock.join.join_rows import JoinRows, make_rows
from penstock.join.leaf_indexes import KeyCodes
from penstock.join.partner_filter import PartnerFilter, choose_predicates, make_range_filter
from penstock.join.probes import ProbeResult, Probes
from penstock.join.range_choice import make_range_choice
from penstock.join.range_probes import ProbeRanges, compute_probe_ranges
from penstock.join.row_kernels import ChainTarget, KeyColumn, extend_rows
from penstock.join.sharing.kernels import extend_wanted_rows
from penstock.join.sharing.row_interest import InterestTarget
from penstock.join.tree_context import TreeContext
from penstock.plan import NodePlan, find_range_condition, orient_range
from penstock.state import I64, NONE, RowLines, concat_arrays, copy_array, find_equal_pairs, gather

if TYPE_CHECKING:
    from penstock.join.node import TreeNode

_FEW_PROBES = 256
"""Up to here two ranges on different columns are tested on every pair of a probe and a leaf row, exactly."""


@dataclass
class _ChainProbe:
    """Rows of one child that look for partners in the chains of the other."""

    side: TreeNode
    rows: JoinRows
    target: ChainTarget
    wanted: InterestTarget | None
    """If the tuples of both children differ in interest: what the loop needs to test it."""


class PairJoin:
    """Joins rows of a left and a right child."""

    def __init__(self, plan: NodePlan, left: TreeNode, right: TreeNode, context: TreeContext) -> None:
        self._plan = plan
        self._left = left
        self._right = right
        self._context = context
        self.compared = 0
        """Pairs that `extend_among` compares if it is a nested loop."""
        self.range = None if plan.key else find_range_condition(plan)
        """The range condition by which partners are found, if there is no key."""
        for child in (left, right):
            child.ordered_by = None if self.range is None else orient_range(self.range, child.plan.aliases)
        self._range_choice = make_range_choice(plan, left, right, context)

    def extend_both(self, driver: TreeNode, rows: JoinRows, lazy: TreeNode, lazy_rows: JoinRows) -> Iterator[JoinRows]:
        """Rows of one child with all rows of the other, and rows of the other with old rows of the first."""
        by_chains: list[_ChainProbe] = []
        others: list[Iterator[JoinRows]] = []
        for side, some, other, old_only in ((driver, rows, lazy, False), (lazy, lazy_rows, driver, True)):
            if not len(some):
                continue
            probe = self._find_chains(side, some, other, old_only=old_only)
            if probe is None:
                others.append(self._extend_by_matches(side, some, old_only=old_only))
            else:
                by_chains.append(probe)
        return chain(self._extend_by_chains(by_chains), *others)

    def extend(
        self, side: TreeNode, rows: JoinRows, *, old_only: bool, from_leaves: bool = False
    ) -> Iterator[JoinRows]:
        """Rows of one child with their partners in the other. `from_leaves`: its state is not read."""
        other = self._right if side is self._left else self._left
        if len(rows) and not from_leaves:
            probe = self._find_chains(side, rows, other, old_only=old_only)
            if probe is not None:
                return self._extend_by_chains([probe])
        return self._extend_by_matches(side, rows, old_only=old_only, from_leaves=from_leaves)

    def _extend_by_matches(
        self, side: TreeNode, rows: JoinRows, *, old_only: bool, from_leaves: bool = False
    ) -> Iterator[JoinRows]:
        partners = self._find_partners(side, rows, old_only=old_only, from_leaves=from_leaves)
        return (found.rows for found in partners)

    def _find_chains(self, side: TreeNode, rows: JoinRows, other: TreeNode, *, old_only: bool) -> _ChainProbe | None:
        """What a compiled loop reads to find partners in a child, None if there is no such thing."""
        choice = self._range_choice
        if self.range is not None or (
            choice is not None and choice.chooses_range(side, rows, other, old_only=old_only)
        ):
            return None
        interest, wanted = self._context.find_interest(self._plan), None
        if interest is not None:
            wanted = interest.find_target(side.plan, other.plan)
            if wanted is None:
                return None
        target = other.find_chains(self._plan.key, old_only=old_only)
        if target is None:
            return None
        other.probes += len(rows)
        return _ChainProbe(side, rows, target, wanted)

    def _extend_by_chains(self, probes: Sequence[_ChainProbe]) -> Iterator[JoinRows]:
        """Blocks of new rows, read from chain indexes in compiled loops. Small results of all probes are one block."""
        buffer = self._context.probe_buffer
        out, codes_out = buffer.get_row_buffer(len(self._plan.aliases)), buffer.code_buffer
        found, key = 0, self._plan.key
        for probe in probes:
            rows, ids_first = probe.rows, probe.side is self._left
            line, codes = probe.side.find_codes(key[0]) if len(key) == 1 else self._encode_keys(probe)
            given = np.ascontiguousarray(rows.ids), rows.born, rows.dies
            at, row = 0, NONE
            while True:
                since, to = (at, row, line, codes), (ids_first, found, out)
                if probe.wanted is None:
                    found, at, row = extend_rows(*given, *since, *probe.target, *to)
                else:
                    stored = probe.target[:7]
                    found, at, row = extend_wanted_rows(*given, *since, *stored, *probe.wanted, *to, codes_out)
                if at == len(rows):
                    break
                yield self._copy_rows(out, found, probe)
                found = 0
        if found:
            yield self._copy_rows(out, found, probe)

    def _encode_keys(self, probe: _ChainProbe) -> KeyColumn:
        """The codes of some rows for a key of several classes."""
        key = self._plan.key
        parts = [probe.side.codes(id_, probe.rows) for id_ in key]
        return NONE, self._context.keys.encode(key, parts, len(probe.rows), insert=False)

    def _copy_rows(self, out: RowLines, found: int, probe: _ChainProbe) -> JoinRows:
        """The rows in the buffers that satisfy the predicates of this node."""
        rows = make_rows(copy_array(out[:, :found]))
        if probe.wanted is not None:
            rows.interest = copy_array(self._context.probe_buffer.code_buffer[:found])
        return self._test_predicates(rows)

    def _test_predicates(self, rows: JoinRows) -> JoinRows:
        if not self._plan.residuals:
            return rows
        return rows.take(compute_mask(self._plan.residuals, self._context.make_reader(self._plan, rows), len(rows)))

    def _find_partners(
        self, side: TreeNode, rows: JoinRows, *, old_only: bool, from_leaves: bool = False
    ) -> Iterator[ProbeResult]:
        """As `extend`; the probes are the places of the rows."""
        if not len(rows):
            return
        other = self._right if side is self._left else self._left
        key_codes = {id_: side.codes(id_, rows) for id_ in self._plan.key}
        choice = self._range_choice
        if choice is not None and not choice.chooses_range(side, rows, other, old_only=old_only):
            choice = None
        ranges, condition = None, self.range if choice is None else choice.condition
        if condition is not None:
            read = self._context.make_reader(side.plan, rows)
            ranges = compute_probe_ranges(condition, other.plan.aliases, read)
        interest = self._context.find_interest(self._plan)
        born_after = None if interest is None else interest.compute_born_after(side.plan, rows, other.plan)
        partners = None if key_codes or other.complete else self._make_partner_filter(side, rows, other, ranges)
        lifetimes = rows.born, rows.dies
        probes = Probes(key_codes, *lifetimes, old_only, ranges, born_after, from_leaves, partners)
        for found in other.match(probes):
            if choice is not None:
                equal = choice.find_equal_keys(side, rows, other, found)
                found = ProbeResult(found.probe[equal], found.rows.take(equal))  # noqa: PLW2901
            combined = self._combine(side, gather(rows.ids, found.probe), found.rows)
            yield self._filter_matches(found.probe, combined)

    def _make_partner_filter(
        self, side: TreeNode, rows: JoinRows, other: TreeNode, ranges: ProbeRanges | None
    ) -> PartnerFilter | None:
        """Which leaf rows of an incomplete child may be part of partners; None if no predicate says so."""
        read, stores = self._context.make_reader(side.plan, rows), self._context.stores
        chosen = choose_predicates(self._plan.residuals, side.plan.aliases, other.plan.aliases)
        if ranges is not None and other.ordered_by is not None:
            by = other.ordered_by
            if chosen is None or by.second is None or len(rows) > _FEW_PROBES:
                return make_range_filter(by, ranges, stores[by.column.alias], read)
        if chosen is None:
            return None
        alias, predicates = chosen
        block = self._context.probe_buffer.block
        return PartnerFilter(alias, stores[alias], predicates, read, len(rows), block)

    def extend_among(self, one: TreeNode, rows: JoinRows, other: TreeNode, partners: JoinRows) -> Iterator[JoinRows]:
        """Rows of one child with their partners among some rows of the other."""
        key, keys = self._plan.key, self._context.keys
        self.compared += len(rows) * len(partners)
        codes = [
            keys.encode(key, [side.codes(id_, some) for id_ in key], len(some), insert=True)
            for side, some in ((one, rows), (other, partners))
        ]
        for at, to in find_equal_pairs(codes[0], codes[1], self._context.probe_buffer.block):
            born, dies = np.maximum(rows.born[at], partners.born[to]), np.minimum(rows.dies[at], partners.dies[to])
            partner = JoinRows(gather(partners.ids, to), born, dies)
            met = self._combine(one, gather(rows.ids, at), partner).take(born < dies)
            yield self._filter_matches(at[born < dies], met).rows

    def lookup(self, probes: Probes) -> Iterator[ProbeResult]:
        """The node's rows computed from its children, starting with the child that is bound by more classes."""

        def bound(child: TreeNode) -> KeyCodes:
            return {id_: codes for id_, codes in probes.key_codes.items() if id_ in child.plan.classes}

        first, second = (self._left, self._right)
        if len(bound(second)) > len(bound(first)):
            first, second = second, first
        other_codes = bound(second)
        for found in first.match(probes.narrow(bound(first), probes.born, probes.dies)):
            if probes.meter is None:
                yield from self._look_up_others(probes, first, found, second, other_codes)
                continue
            with probes.meter.choose(found.probe.size) as places:
                yield from self._look_up_others(probes, first, found.take(places), second, other_codes)

    def _look_up_others(
        self, probes: Probes, first: TreeNode, found: ProbeResult, second: TreeNode, other_codes: KeyCodes
    ) -> Iterator[ProbeResult]:
        """Rows of the first child that match probes, with their partners in the second."""
        partial = found.rows
        if not self._plan.key and not other_codes:
            old_only, from_leaves = probes.old_only, probes.from_leaves
            for partner in self._find_partners(first, partial, old_only=old_only, from_leaves=from_leaves):
                yield ProbeResult(found.probe[partner.probe], partner.rows)
            return
        known = {id_: codes[found.probe] for id_, codes in other_codes.items()}
        known |= {id_: first.codes(id_, partial) for id_ in self._plan.key}
        for partner in second.match(probes.narrow(known, partial.born, partial.dies)):
            rows = self._combine(first, gather(partial.ids, partner.probe), partner.rows)
            yield self._filter_matches(found.probe[partner.probe], rows)

    def _combine(self, side: TreeNode, ids: NDArray[np.int64], partner: JoinRows) -> JoinRows:
        halves = (ids, partner.ids) if side is self._left else (partner.ids, ids)
        return JoinRows(concat_arrays(halves, axis=0), partner.born, partner.dies)

    def _filter_matches(self, probe: I64, rows: JoinRows) -> ProbeResult:
        """The rows that some query needs and that satisfy the predicates of this node."""
        interest = self._context.find_interest(self._plan)
        if interest is not None:
            rows = interest.clip(self._plan, rows)
            alive = rows.born < rows.dies
            if not alive.all():
                probe, rows = probe[alive], rows.take(alive)
        if self._plan.residuals:
            keep = compute_mask(self._plan.residuals, self._context.make_reader(self._plan, rows), len(rows))
            probe, rows = probe[keep], rows.take(keep)
        return ProbeResult(probe, rows)
