"""The compiled loops of ordered groups: a treap for each group (see `rank.kernels`), read by position or as a whole."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.ops.protocol import I8
from penstock.ops.rank.kernels import DEPTH, compare_words, get_size, insert_node, remove_node
from penstock.state import I32, I64, compile_kernel

Table = NDArray[np.int64]

FIRST, LAST, CONTINUOUS, DISCRETE = 0, 1, 2, 3
"""Which positions of a group are read."""


@compile_kernel
def _find_equal(root: int, x: int, words: Table, left: I64, right: I64) -> int:
    """A row with the words of `x`, which the treap has."""
    at = root
    while True:
        found = compare_words(words, words.shape[1], x, at)
        if found == 0:
            return at
        at = left[at] if found < 0 else right[at]


@compile_kernel
def _get_nth(root: int, place: int, left: I64, right: I64, size: I64) -> int:
    at = root
    while True:
        before = get_size(left[at], size)
        if place == before:
            return at
        if place < before:
            at = left[at]
        else:
            place -= before + 1
            at = right[at]


@compile_kernel
def _apply_change(
    code: int, weight: int, slot: int, roots: I64, words: Table, left: I64, right: I64, size: I64, freed: I64, done: int
) -> int:
    """Add the row of a slot, or remove an equal one; returns how many slots are free then."""
    if weight > 0:
        roots[code] = insert_node(roots[code], slot, words, left, right, size)
        return done
    found = _find_equal(roots[code], slot, words, left, right)
    roots[code] = remove_node(roots[code], found, words, left, right, size)
    freed[done], freed[done + 1] = found, slot
    return done + 2


@compile_kernel
def select_positions(
    ends: I64, codes: I32, weights: I8, slots: I64, kind: int, fraction: float, descending: bool,
    roots: I64, words: Table, left: I64, right: I64, size: I64, freed: I64, out: Table, parts: NDArray[np.float64],
) -> int:  # fmt: skip
    """Apply changes. At each point `out` has the slots of two neighbours, -1 without rows, and `parts` the part of the
    way from the one to the other; returns how many slots are free now."""
    at = done = 0
    for p in range(ends.size):
        code = codes[p]
        while at < ends[p]:
            if weights[at] != 0:
                done = _apply_change(code, weights[at], slots[at], roots, words, left, right, size, freed, done)
            at += 1
        count = get_size(roots[code], size)
        out[p, 0] = out[p, 1] = -1
        parts[p] = 0.0
        if count == 0:
            continue
        low = high = 0
        if kind == LAST:
            low = high = count - 1
        elif kind == CONTINUOUS:
            place = fraction * (count - 1)
            low = int(np.floor(place))
            high = min(low + 1, count - 1) if place > low else low
            parts[p] = place - low
        elif kind == DISCRETE:
            low = high = max(int(np.ceil(fraction * count)) - 1, 0)
        if descending:
            low, high = count - 1 - low, count - 1 - high
        out[p, 0] = _get_nth(roots[code], low, left, right, size)
        out[p, 1] = out[p, 0] if high == low else _get_nth(roots[code], high, left, right, size)
    return done


@compile_kernel
def list_groups(
    ends: I64, codes: I32, weights: I8, slots: I64,
    roots: I64, words: Table, left: I64, right: I64, size: I64, freed: I64, offsets: I64,
) -> tuple[I64, int]:  # fmt: skip
    """Apply changes; returns the slots of all rows at each point, in order, and how many slots are free now."""
    found = np.empty(64, np.int64)
    stack = np.empty(DEPTH, np.int64)
    filled = at = done = 0
    for p in range(ends.size):
        code = codes[p]
        while at < ends[p]:
            if weights[at] != 0:
                done = _apply_change(code, weights[at], slots[at], roots, words, left, right, size, freed, done)
            at += 1
        more = get_size(roots[code], size)
        if filled + more > found.size:
            larger = np.empty(2 * (filled + more), np.int64)
            larger[:filled] = found[:filled]
            found = larger
        depth, node = 0, roots[code]
        while node >= 0 or depth > 0:
            while node >= 0:
                stack[depth] = node
                depth += 1
                node = left[node]
            depth -= 1
            node = stack[depth]
            found[filled] = node
            filled += 1
            node = right[node]
        offsets[p + 1] = filled
    return found[:filled], done
