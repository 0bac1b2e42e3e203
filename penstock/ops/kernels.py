"""The compiled loops of groups and sequences. Each works on plain arrays and has a numpy twin in the tests."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.state import I32, I64, NONE, U8, compile_kernel

I8 = np.ndarray[tuple[int], np.dtype[np.int8]]


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Changes of groups are sorted by group, then time. A point is a group at an instant: `ends[p]` is the number of changes
# up to it, `codes[p]` its group. Every loop applies the changes and writes the state of the group at each point.


@compile_kernel
def count_group_rows(ends: I64, codes: I32, weights: I8, counts: I64, out: I64) -> None:
    """How many rows a group has."""
    at = 0
    for p in range(ends.size):
        code = codes[p]
        while at < ends[p]:
            counts[code] += weights[at]
            at += 1
        out[p] = counts[code]


@compile_kernel
def sum_group_values(ends: I64, codes: I32, weights: I8, pieces: I64, starts: I64, limbs: I64, out: I64) -> None:
    """Exact sums: `limbs[code]` are digits to the base 2**32, the last one signed. A value is a few digits from
    `starts` on. The digits do not overflow between carries while a point has fewer than 2**31 changes."""
    at = 0
    width = limbs.shape[1]
    for p in range(ends.size):
        row = limbs[codes[p]]
        if at < ends[p]:
            while at < ends[p]:
                if weights[at] != 0:
                    for j in range(pieces.shape[1]):
                        row[starts[at] + j] += weights[at] * pieces[at, j]
                at += 1
            for j in range(width - 1):
                carry = row[j] >> 32
                row[j] -= carry << 32
                row[j + 1] += carry
        for j in range(width):
            out[p, j] = row[j]


@compile_kernel
def limbs_to_double(limbs: I64, exponent: int, out: NDArray[np.float64]) -> None:
    """The doubles next to exact sums (ties to even); the lowest digit counts 2**exponent, at least 2**-1074."""
    width = limbs.shape[1]
    digits = np.empty(width, np.int64)
    for p in range(limbs.shape[0]):
        negative = limbs[p, width - 1] < 0
        carry = 0
        for j in range(width):
            digit = (-limbs[p, j] if negative else limbs[p, j]) + carry
            carry = digit >> 32 if j < width - 1 else 0
            digits[j] = digit - (carry << 32)
        top = width - 1
        while top >= 0 and digits[top] == 0:
            top -= 1
        if top < 0:
            out[p] = 0.0
            continue
        length = 0
        rest = digits[top]
        while rest > 0:
            rest >>= 1
            length += 1
        cut = max(32 * top + length - 53, 0)  # bits below this one are rounded away
        mantissa = 0
        for j in range(top, cut // 32 - 1, -1):
            if j == cut // 32:
                mantissa = (mantissa << (32 - cut % 32)) | (digits[j] >> (cut % 32))
            else:
                mantissa = (mantissa << 32) | digits[j]
        if cut > 0:
            place = cut - 1
            half = (digits[place // 32] >> (place % 32)) & 1
            below = digits[place // 32] & ((1 << (place % 32)) - 1)
            for j in range(place // 32):
                below |= digits[j]
            if half and (below or mantissa & 1):
                mantissa += 1
        value = math.ldexp(float(mantissa), cut + exponent)
        out[p] = -value if negative else value


@compile_kernel
def compute_distinct_weights(codes: I32, weights: I8, counts: I64, out: I8) -> None:
    """DISTINCT: of the changes of equal values (equal codes), those that add the first or remove the last."""
    for i in range(codes.size):
        out[i] = 0
        if weights[i] != 0:
            before = counts[codes[i]]
            counts[codes[i]] = before + weights[i]
            if before == 0 and weights[i] > 0:
                out[i] = 1
            elif before == 1 and weights[i] < 0:
                out[i] = -1


@compile_kernel
def _heap_link(a: int, b: int, key: I64, child: I64, sibling: I64) -> int:
    """Merge two pairing heaps; NONE is an empty heap."""
    if a < 0:
        return b
    if b < 0:
        return a
    if key[b] < key[a]:
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    return a


@compile_kernel
def _heap_pop(root: int, key: I64, child: I64, sibling: I64) -> int:
    """The heap without its smallest node."""
    left = child[root]
    paired = NONE
    while left >= 0:  # link pairs from the left …
        a = left
        b = sibling[a]
        left = NONE
        if b >= 0:
            left = sibling[b]
            sibling[b] = NONE
        sibling[a] = NONE
        pair = _heap_link(a, b, key, child, sibling)
        sibling[pair] = paired
        paired = pair
    root = NONE
    while paired >= 0:  # … and the pairs from the right
        following = sibling[paired]
        sibling[paired] = NONE
        root = _heap_link(root, paired, key, child, sibling)
        paired = following
    return root


@compile_kernel
def find_group_minimum(
    ends: I64, codes: I32, weights: I8, values: I64, roots: I64,
    key: I64, child: I64, sibling: I64, owner: I64, pool: I64, out: I64, found: U8,
) -> None:  # fmt: skip
    """The smallest value of a group. `roots[code]` are two pairing heaps: the values that came, and those of them that
    left but are not removed yet. `pool` is [first free node, number of nodes used]; every change has a node."""
    at = 0
    for p in range(ends.size):
        code = codes[p]
        while at < ends[p]:
            if weights[at] != 0:
                side = 0 if weights[at] > 0 else 1
                node = pool[0]
                if node >= 0:
                    pool[0] = sibling[node]
                else:
                    node = pool[1]
                    pool[1] += 1
                key[node] = values[at]
                child[node] = NONE
                sibling[node] = NONE
                owner[node] = 2 * code + side
                roots[code, side] = _heap_link(roots[code, side], node, key, child, sibling)
            at += 1
        while roots[code, 1] >= 0 and key[roots[code, 0]] == key[roots[code, 1]]:
            for side in range(2):
                node = roots[code, side]
                roots[code, side] = _heap_pop(node, key, child, sibling)
                owner[node] = NONE
                sibling[node] = pool[0]
                pool[0] = node
        found[p] = roots[code, 0] >= 0
        out[p] = key[roots[code, 0]] if found[p] else 0


# ── sequences ────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Earlier rows are in a ring, in their order. Those of one key form a queue (`head`, `tail`, `older`, `newer`).


@compile_kernel
def compute_sequence_limits(
    left_times: I64, left_numbers: I64, first: int, times: I64, numbers: I64, tie: int, out: I64
) -> None:
    """For every later row, the id after the last row that is before it. Earlier rows have the ids first, first + 1, …

    `tie` orders rows of one time: -1 the left ones come first, 1 the right ones, 0 by their numbers.
    """
    i = 0
    for j in range(times.size):
        while i < left_times.size and (
            left_times[i] < times[j]
            or (left_times[i] == times[j] and (tie < 0 or (tie == 0 and left_numbers[i] < numbers[j])))
        ):
            i += 1
        out[j] = first + i


@compile_kernel
def _append_to_queue(row: int, code: int, mask: int, head: I64, tail: I64, older: I64, newer: I64) -> None:
    last = tail[code]
    older[row & mask] = last
    newer[row & mask] = NONE
    if last >= 0:
        newer[last & mask] = row
    else:
        head[code] = row
    tail[code] = row


@compile_kernel
def remove_from_queues(rows: I64, codes: I32, mask: int, head: I64, tail: I64, older: I64, newer: I64) -> None:
    """Remove rows from their queues."""
    for i in range(rows.size):
        _drop_from_queue(rows[i], codes[rows[i] & mask], mask, head, tail, older, newer)


@compile_kernel
def _drop_from_queue(row: int, code: int, mask: int, head: I64, tail: I64, older: I64, newer: I64) -> None:
    before, behind = older[row & mask], newer[row & mask]
    if before >= 0:
        newer[before & mask] = behind
    else:
        head[code] = behind
    if behind >= 0:
        older[behind & mask] = before
    else:
        tail[code] = before


@compile_kernel
def append_to_queues(first: int, end: int, codes: I32, mask: int, head: I64, tail: I64, older: I64, newer: I64) -> None:
    """Add rows to their queues."""
    for row in range(first, end):
        _append_to_queue(row, codes[row & mask], mask, head, tail, older, newer)


@compile_kernel
def match_sequence(
    recent: bool, wanted: I32, times: I64, limits: I64, queued: int, codes: I32, dies: I64, mask: int,
    head: I64, tail: I64, older: I64, newer: I64, gone: U8, out: I64,
) -> int:  # fmt: skip
    """For every later row, the earlier row it pairs with, or NONE: the newest (RECENT) or oldest (CHRONICLE) row
    before its limit that has its key and is valid at its time.

    Rows from `queued` on enter their queues when a limit passes them; returns the first row that is not queued. A row
    that no later row can use leaves its queue and is marked `gone`: an expired row, a paired one (CHRONICLE), or one
    that expires before a newer one of its key (RECENT).
    """
    for j in range(wanted.size):
        while queued < limits[j]:
            code = codes[queued & mask]
            if recent:
                row = tail[code]
                while row >= 0 and dies[row & mask] <= dies[queued & mask]:
                    gone[row & mask] = 1
                    _drop_from_queue(row, code, mask, head, tail, older, newer)
                    row = tail[code]
            _append_to_queue(queued, code, mask, head, tail, older, newer)
            queued += 1
        out[j] = NONE
        code = wanted[j]
        if code < 0 or code >= head.size:
            continue
        row = tail[code] if recent else head[code]
        while row >= 0 and dies[row & mask] <= times[j]:
            gone[row & mask] = 1
            _drop_from_queue(row, code, mask, head, tail, older, newer)
            row = tail[code] if recent else head[code]
        if row >= 0:
            out[j] = row
            if not recent:
                gone[row & mask] = 1
                _drop_from_queue(row, code, mask, head, tail, older, newer)
    return queued


@compile_kernel
def find_sequence_candidates(
    recent: bool, wanted: I32, times: I64, limits: I64, start: int, waiting: int, dies: I64, mask: int,
    head: I64, tail: I64, older: I64, newer: I64, out_right: I64, out_left: I64,
) -> tuple[int, int]:  # fmt: skip
    """Pairs of a later row with an earlier row of its key that is before its limit and valid at its time, in the order
    in which they are tested. Starts at the later row `start` and stops when `waiting` more pairs may not fit into the
    output; returns (pairs, next start). The output has room for `waiting` pairs at least."""
    n = 0
    for j in range(start, wanted.size):
        code = wanted[j]
        if code < 0 or code >= head.size:
            continue
        if n + waiting > out_left.size:
            return n, j
        row = tail[code] if recent else head[code]
        while row >= 0:
            if row < limits[j]:
                if dies[row & mask] > times[j]:
                    out_right[n] = j
                    out_left[n] = row
                    n += 1
            elif not recent:
                break
            row = older[row & mask] if recent else newer[row & mask]
    return n, wanted.size


@compile_kernel
def pick_sequence_pairs(recent: bool, right: I64, left: I64, holds: U8, mask: int, used: U8, out: I64) -> None:
    """Of the pairs that satisfy the predicates, the first of every later row. In CHRONICLE a row pairs once."""
    for i in range(right.size):
        if holds[i] and out[right[i]] < 0 and (recent or not used[left[i] & mask]):
            out[right[i]] = left[i]
            if not recent:
                used[left[i] & mask] = 1


# ── outer joins ──────────────────────────────────────────────────────────────────────────────────────────────────
#
# `covered[slot]` is the time until which a row of a preserved side has partners. `shown[slot]` says whether the row is
# in the answer, without a partner. An event is a row that enters (+1) or leaves (-1).


@compile_kernel
def cover_rows(
    numbers: I64, starts: I64, ends: I64, table: I64, first: int, base: int,
    covered: I64, shown: U8, raised: U8, times: I64, slots: I64, signs: I8, touched: I64,
) -> tuple[int, int]:  # fmt: skip
    """Apply pairs in temporal order: the number of the row, and the interval of the pair. `table` has the slot of each
    number from `first` on; slots are counted from `base`. Returns the number of events, and of slots in `touched`:
    those that are covered longer. `raised` is zero before and after."""
    found, count = 0, 0
    for i in range(numbers.size):
        place = numbers[i] - first
        if place < 0 or place >= table.size or table[place] < base:
            continue
        slot = table[place] - base
        if starts[i] > covered[slot]:
            if not shown[slot]:
                times[found] = covered[slot]
                slots[found] = slot
                signs[found] = 1
                found += 1
            times[found] = starts[i]
            slots[found] = slot
            signs[found] = -1
            found += 1
            shown[slot] = 0
        if ends[i] > covered[slot]:
            covered[slot] = ends[i]
            if not raised[slot]:
                raised[slot] = 1
                touched[count] = slot
                count += 1
    for i in range(count):
        raised[touched[i]] = 0
    return found, count
