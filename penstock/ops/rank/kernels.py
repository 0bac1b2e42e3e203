"""The compiled loops of ranked partitions: a treap for each partition, ordered by the words of its rows.

A treap is a search tree whose nodes are also a heap by a pseudo-random priority, so that its depth is logarithmic
whatever the order of changes. Nodes are slots of rows; `size` counts the rows below a node.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.ops.protocol import I8
from penstock.state import I32, I64, NONE, compile_kernel

ROW_NUMBER, RANK, DENSE_RANK = 0, 1, 2
DEPTH = 1024  # of the stack of a walk; the depth of a treap with 2**40 rows is below 200

Table = NDArray[np.int64]


@compile_kernel
def compare_words(words: Table, width: int, a: int, b: int) -> int:
    """-1, 0 or 1: how the first words of two rows compare."""
    for j in range(width):
        if words[a, j] != words[b, j]:
            return -1 if words[a, j] < words[b, j] else 1
    return 0


@compile_kernel
def _is_before(words: Table, a: int, b: int) -> bool:
    """Whether a row comes before another; rows with equal words are ordered by slot."""
    found = compare_words(words, words.shape[1], a, b)
    return found < 0 or (found == 0 and a < b)


@compile_kernel
def get_size(node: int, size: I64) -> int:
    return 0 if node < 0 else size[node]


@compile_kernel
def _compute_priority(slot: int) -> int:
    mixed = (slot + 1) * 0x9E3779B1 & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = mixed * 0x85EBCA77 & 0xFFFFFFFF
    return mixed ^ (mixed >> 13)


@compile_kernel
def insert_node(root: int, x: int, words: Table, left: I64, right: I64, size: I64) -> int:
    """The treap with one more row."""
    mine, at, parent = _compute_priority(x), root, NONE
    goes_left = False
    while at >= 0 and _compute_priority(at) >= mine:
        size[at] += 1
        parent, goes_left = at, _is_before(words, x, at)
        at = left[at] if goes_left else right[at]
    left[x], right[x] = NONE, NONE
    before, after, depth = x, x, 0
    path = np.empty(DEPTH, np.int64)
    while at >= 0:  # split what is below: rows before x to the left, the others to the right
        path[depth] = at
        depth += 1
        if _is_before(words, at, x):
            if before == x:
                left[x] = at
            else:
                right[before] = at
            before, at = at, right[at]
        else:
            if after == x:
                right[x] = at
            else:
                left[after] = at
            after, at = at, left[at]
    if before != x:
        right[before] = NONE
    if after != x:
        left[after] = NONE
    for i in range(depth - 1, -1, -1):
        size[path[i]] = 1 + get_size(left[path[i]], size) + get_size(right[path[i]], size)
    size[x] = 1 + get_size(left[x], size) + get_size(right[x], size)
    if parent < 0:
        return x
    if goes_left:
        left[parent] = x
    else:
        right[parent] = x
    return root


@compile_kernel
def _merge(a: int, b: int, left: I64, right: I64, size: I64) -> int:
    """One treap of two; all rows of the first come before those of the second."""
    top, parent = NONE, NONE
    in_left = False
    while a >= 0 or b >= 0:
        if b < 0 or (a >= 0 and _compute_priority(a) >= _compute_priority(b)):
            chosen, down_left = a, False
        else:
            chosen, down_left = b, True
        if parent < 0:
            top = chosen
        elif in_left:
            left[parent] = chosen
        else:
            right[parent] = chosen
        if a < 0 or b < 0:
            break
        if down_left:
            size[b] += size[a]
            b = left[b]
        else:
            size[a] += size[b]
            a = right[a]
        parent, in_left = chosen, down_left
    return top


@compile_kernel
def remove_node(root: int, x: int, words: Table, left: I64, right: I64, size: I64) -> int:
    """The treap without a row that it has."""
    at, parent = root, NONE
    goes_left = False
    while at != x:
        size[at] -= 1
        parent, goes_left = at, _is_before(words, x, at)
        at = left[at] if goes_left else right[at]
    merged: int = _merge(left[x], right[x], left, right, size)
    if parent < 0:
        return merged
    if goes_left:
        left[parent] = merged
    else:
        right[parent] = merged
    return root


@compile_kernel
def _count_before(root: int, x: int, words: Table, width: int, left: I64, right: I64, size: I64) -> int:
    """How many rows come before a row; if `width` is not negative, rows whose first words are smaller."""
    at, found = root, 0
    while at >= 0:
        smaller = _is_before(words, at, x) if width < 0 else compare_words(words, width, at, x) < 0
        if smaller:
            found += 1 + get_size(left[at], size)
            at = right[at]
        else:
            at = left[at]
    return found


@compile_kernel
def _list_top(
    root: int, function: int, order_width: int, offset: int, limit: int,
    words: Table, left: I64, right: I64, point: int, sign: int, out: Table, filled: int,
) -> int:  # fmt: skip
    """Write the rows whose rank is above `offset` and at most `limit` (if it is not negative), in their order."""
    stack = np.empty(DEPTH, np.int64)
    depth, at, place, rank, before, copy = 0, root, 0, 0, NONE, -1
    while at >= 0 or depth > 0:
        while at >= 0:
            stack[depth] = at
            depth += 1
            at = left[at]
        depth -= 1
        at = stack[depth]
        place += 1
        if function == ROW_NUMBER:
            rank = place
        elif before < 0 or compare_words(words, order_width, before, at) != 0:
            rank = place if function == RANK else rank + 1
        if 0 <= limit < rank:
            break
        if rank > offset:
            same = place > offset + 1 and compare_words(words, words.shape[1], before, at) == 0
            copy = copy + 1 if same and copy >= 0 else 0
            out[filled, 0], out[filled, 1], out[filled, 2], out[filled, 3], out[filled, 4] = point, sign, at, rank, copy
            filled += 1
        before = at
        at = right[at]
    return filled


@compile_kernel
def rank_changes(
    ends: I64, codes: I32, signs: I8, slots: I64,
    function: int, order_width: int, offset: int, limit: int,
    roots: I64, words: Table, left: I64, right: I64, size: I64,
) -> Table:  # fmt: skip
    """Apply changes; returns the top rows before (-1) and after (+1) each point at which they may have changed.

    A line is the point, the sign, the slot, the rank, and the number of equal rows before it in the top.
    """
    out = np.empty((64, 5), np.int64)
    filled, at = 0, 0
    for p in range(ends.size):
        code = codes[p]
        touched = False
        while at < ends[p]:
            x = slots[at]
            if not touched:
                touched = limit < 0 or function == DENSE_RANK
                if not touched:
                    width = -1 if function == ROW_NUMBER else order_width
                    touched = _count_before(roots[code], x, words, width, left, right, size) < limit
                if touched:
                    out = _reserve(out, filled, _count_top(roots[code], function, limit, size))
                    filled = _list_top(
                        roots[code], function, order_width, offset, limit, words, left, right, p, -1, out, filled
                    )
            if signs[at] > 0:
                roots[code] = insert_node(roots[code], x, words, left, right, size)
            else:
                roots[code] = remove_node(roots[code], x, words, left, right, size)
            at += 1
        if touched:
            out = _reserve(out, filled, _count_top(roots[code], function, limit, size))
            filled = _list_top(roots[code], function, order_width, offset, limit, words, left, right, p, 1, out, filled)
    return out[:filled]


@compile_kernel
def _count_top(root: int, function: int, limit: int, size: I64) -> int:
    """At most how many rows the top has."""
    rows: int = get_size(root, size)
    return min(rows, limit) if function == ROW_NUMBER and limit >= 0 else rows


@compile_kernel
def _reserve(out: Table, filled: int, more: int) -> Table:
    if filled + more <= out.shape[0]:
        return out
    larger = np.empty((2 * (filled + more), out.shape[1]), np.int64)
    larger[:filled] = out[:filled]
    return larger
