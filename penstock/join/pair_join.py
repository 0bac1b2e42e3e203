"""The join of two children: rows of one with their partners in the other. It keeps no rows.

Law: `extend` gives every combination of the given rows and rows of the other child that agree in all classes of the
key, overlap in time, satisfy the node's residual predicates, and that some query needs. `lookup` gives the same for all
rows of the node that match some probes, computed from the children.

Cost: that of the probes, plus one evaluation of the residual predicates per block of matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.expr import compute_mask
from penstock.join.join_rows import JoinRows, make_rows
from penstock.join.leaf_indexes import KeyCodes
from penstock.join.partner_filter import PartnerFilter, choose_predicates, make_range_filter
from penstock.join.probes import ProbeResult, Probes
from penstock.join.range_probes import ProbeRanges, compute_probe_ranges
from penstock.join.row_kernels import ChainTarget, extend_rows
from penstock.join.tree_context import TreeContext
from penstock.plan import NodePlan, find_range_condition, orient_range
from penstock.state import I32, I64, NONE, concat_arrays, copy_array, find_equal_pairs, gather

if TYPE_CHECKING:
    from penstock.join.node import TreeNode

_FEW_PROBES = 256
"""Up to here two ranges on different columns are tested on every pair of a probe and a leaf row, exactly."""


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

    def extend_both(self, driver: TreeNode, rows: JoinRows, lazy: TreeNode, lazy_rows: JoinRows) -> Iterator[JoinRows]:
        """Rows of one child with all rows of the other, and rows of the other with old rows of the first."""
        by_chains: list[tuple[TreeNode, JoinRows, ChainTarget]] = []
        others: list[Iterator[JoinRows]] = []
        for side, some, other, old_only in ((driver, rows, lazy, False), (lazy, lazy_rows, driver, True)):
            if not len(some):
                continue
            target = self._find_chains(other, old_only=old_only)
            if target is None:
                others.append(self.extend(side, some, old_only=old_only))
            else:
                other.probes += len(some)
                by_chains.append((side, some, target))
        return chain(self._extend_by_chains(by_chains), *others)

    def _find_chains(self, other: TreeNode, *, old_only: bool) -> ChainTarget | None:
        """What a compiled loop reads to find partners in a child, None if there is no such thing."""
        if not self._plan.key or self._context.find_interest(self._plan) is not None:
            return None
        return other.find_chains(self._plan.key, old_only=old_only)

    def _extend_by_chains(self, halves: Sequence[tuple[TreeNode, JoinRows, ChainTarget]]) -> Iterator[JoinRows]:
        """Blocks of new rows, read from chain indexes in compiled loops. Small results of both halves are one block."""
        key, buffer = self._plan.key, self._context.probe_buffer
        out = buffer.get_row_buffer(len(self._plan.aliases))
        found = 0
        for side, rows, target in halves:
            if len(key) == 1:
                line, codes = side.find_codes(key[0])
            else:
                parts = [side.codes(id_, rows) for id_ in key]
                line, codes = NONE, self._context.keys.encode(key, parts, len(rows), insert=False)
            at, row, ids = 0, NONE, np.ascontiguousarray(rows.ids)
            while True:
                found, at, row = extend_rows(
                    ids, rows.born, rows.dies, at, row, line, codes, *target, side is self._left, found, out
                )
                if at == len(rows):
                    break
                yield self._test_predicates(make_rows(copy_array(out[:, :found])))
                found = 0
        if found:
            yield self._test_predicates(make_rows(copy_array(out[:, :found])))

    def _test_predicates(self, rows: JoinRows) -> JoinRows:
        if not self._plan.residuals:
            return rows
        return rows.take(compute_mask(self._plan.residuals, self._context.make_reader(self._plan, rows), len(rows)))

    def extend(
        self, side: TreeNode, rows: JoinRows, *, old_only: bool, from_leaves: bool = False
    ) -> Iterator[JoinRows]:
        """Rows of one child with their partners in the other. `from_leaves`: its state is not read."""
        partners = self._find_partners(side, rows, old_only=old_only, from_leaves=from_leaves)
        return (found.rows for found in partners)

    def _find_partners(
        self, side: TreeNode, rows: JoinRows, *, old_only: bool, from_leaves: bool = False
    ) -> Iterator[ProbeResult]:
        """As `extend`; the probes are the places of the rows."""
        if not len(rows):
            return
        other = self._right if side is self._left else self._left
        key_codes = {id_: side.codes(id_, rows) for id_ in self._plan.key}
        ranges = None
        if self.range is not None:
            read = self._context.make_reader(side.plan, rows)
            ranges = compute_probe_ranges(self.range, other.plan.aliases, read)
        interest = self._context.find_interest(self._plan)
        interests = born_after = None
        if interest is not None:
            interests = interest.read_probes(side.plan, rows, other.plan) if ranges is None else None
            born_after = interest.compute_born_after(side.plan, rows, other.plan) if interests is None else None
        partners = None if key_codes or other.complete else self._make_partner_filter(side, rows, other, ranges)
        lifetimes = rows.born, rows.dies
        probes = Probes(key_codes, *lifetimes, old_only, ranges, born_after, interests, from_leaves, partners)
        for found in other.match(probes):
            tested = None if interests is None else found.rows.interest  # the probe has tested the interest of both
            combined = self._combine(side, gather(rows.ids, found.probe), found.rows, tested)
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

    def _combine(
        self, side: TreeNode, ids: NDArray[np.int64], partner: JoinRows, interest: I32 | None = None
    ) -> JoinRows:
        halves = (ids, partner.ids) if side is self._left else (partner.ids, ids)
        return JoinRows(concat_arrays(halves, axis=0), partner.born, partner.dies, interest)

    def _filter_matches(self, probe: I64, rows: JoinRows) -> ProbeResult:
        """The rows that some query needs and that satisfy the predicates of this node."""
        interest = None if rows.interest is not None else self._context.find_interest(self._plan)
        if interest is not None:
            rows = interest.clip(self._plan, rows)
            alive = rows.born < rows.dies
            if not alive.all():
                probe, rows = probe[alive], rows.take(alive)
        if self._plan.residuals:
            keep = compute_mask(self._plan.residuals, self._context.make_reader(self._plan, rows), len(rows))
            probe, rows = probe[keep], rows.take(keep)
        return ProbeResult(probe, rows)
