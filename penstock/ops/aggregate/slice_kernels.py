"""The compiled loops of shared aggregates. Each works on plain arrays and has a naive twin in the tests.

The rows of all windows are in one history, in temporal order. `previous` links the rows of a group, `ordinals` counts
them. A row that is not there is NONE. A range of a group is given by two rows: `left`, the last row before it, and
`last`, its last row.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np

from penstock.state import FOREVER, I32, I64, NONE, compile_kernel

NEUTRAL = np.int64(2**63 - 1)
"""The minimum of no values."""


@compile_kernel
def link_rows(
    first: int, end: int, codes: I32, tails: I32, previous: I32, ordinals: I64, jumps: I32, depths: I64
) -> None:
    """Append rows to their groups.

    `jumps[i]` is an earlier row of the group, at ordinal `depths[i]`, so that a row is found in O(log n) jumps: the
    jump pointers of Myers, *An applicative random-access stack*.
    """
    for i in range(first, end):
        j = tails[codes[i]]
        tails[codes[i]] = i
        previous[i] = j
        ordinals[i] = 1
        jumps[i] = NONE
        depths[i] = 0
        if j >= 0:
            ordinals[i] += ordinals[j]
            k = jumps[j]
            if k >= 0 and ordinals[j] - depths[j] == depths[j] - depths[k]:
                jumps[i] = jumps[k]
                depths[i] = depths[k]
            else:
                jumps[i] = j
                depths[i] = ordinals[j]


@compile_kernel
def append_minima(first: int, end: int, words: I64, previous: I32, jumps: I32, minima: I64) -> None:
    """`minima[i]` is the smallest word from after the jump of a row up to the row."""
    for i in range(first, end):
        minima[i] = words[i]
        j = previous[i]
        if jumps[i] != j:
            minima[i] = min(words[i], minima[j])
            if jumps[j] >= 0:
                minima[i] = min(minima[i], minima[jumps[j]])


@compile_kernel
def find_range_minima(
    left: I32, last: I32, ordinals: I64, previous: I32, jumps: I32, depths: I64, words: I64, minima: I64, out: I64
) -> None:
    """The smallest word in each range."""
    for p in range(last.size):
        until = 0
        if left[p] >= 0:
            until = ordinals[left[p]]
        found = NEUTRAL
        i = last[p]
        while i >= 0 and ordinals[i] > until:
            if depths[i] >= until:
                found = min(found, minima[i])
                i = jumps[i]
            else:
                found = min(found, words[i])
                i = previous[i]
        out[p] = found


@compile_kernel
def append_counts(first: int, end: int, weights: I64, previous: I32, totals: I64) -> None:
    """`totals[i]` is the sum of the weights of the group up to a row."""
    for i in range(first, end):
        totals[i] = weights[i - first]
        if previous[i] >= 0:
            totals[i] += totals[previous[i]]


@compile_kernel
def append_limbs(first: int, end: int, weights: I64, pieces: I64, starts: I64, previous: I32, totals: I64) -> None:
    """`totals[i]` are the digits of the exact sum of the group up to a row, without carries; they may wrap around."""
    for i in range(first, end):
        for k in range(totals.shape[1]):
            totals[i, k] = 0 if previous[i] < 0 else totals[previous[i], k]
        if weights[i - first] != 0:
            for k in range(pieces.shape[1]):
                if pieces[i - first, k] != 0:
                    totals[i, starts[i - first] + k] += pieces[i - first, k]


@compile_kernel
def subtract_counts(left: I32, last: I32, totals: I64, out: I64) -> None:
    """The sums of weights of ranges."""
    for p in range(last.size):
        out[p] = 0
        if last[p] >= 0:
            out[p] = totals[last[p]]
        if left[p] >= 0:
            out[p] -= totals[left[p]]


@compile_kernel
def subtract_limbs(left: I32, last: I32, totals: I64, out: I64) -> None:
    """The exact sums of ranges as digits to the base 2**32, the last one signed."""
    width = totals.shape[1]
    for p in range(last.size):
        carry = 0
        for k in range(width):
            digit = carry
            if last[p] >= 0:
                digit += totals[last[p], k]
            if left[p] >= 0:
                digit -= totals[left[p], k]
            carry = digit >> 32
            out[p, k] = digit
            if k < width - 1:
                out[p, k] = digit - (carry << 32)


@compile_kernel
def mark_last_rows(start: int, end: int, codes: I32, out: I32) -> None:
    """The last row of every group among the rows from `start` to `end`; groups without one stay as they are."""
    for i in range(start, end):
        out[codes[i]] = i


@compile_kernel
def count_distinct_rows(start: int, end: int, codes: I32, before: I32, after: I32, counts: I64) -> None:
    """How many distinct values every group has in the rows from `start` to `end`; see `walk_windows`."""
    for i in range(start, end):
        if after[i] != i and before[i] < start:
            counts[codes[i]] += 1


@compile_kernel
def find_end(time: int, life: int) -> int:
    """When a row leaves a window."""
    return int(FOREVER) if time >= FOREVER - life else time + life


@compile_kernel
def _write_point(
    point: int, w: int, c: int, now: int, left: I32, scratch_last: I32, distinct: I64, scratch_point: I64,
    out_left: I32, out_last: I32, out_codes: I32, out_previous: I32, out_times: I64, out_distinct: I64,
) -> None:  # fmt: skip
    out_left[point] = left[w, c]
    out_last[point] = scratch_last[c]
    out_codes[point] = c
    out_previous[point] = scratch_point[c]
    out_times[point] = now
    for d in range(distinct.shape[0]):
        out_distinct[d, point] = distinct[d, w, c]
    scratch_point[c] = point


@compile_kernel
def walk_windows(
    times: I64, codes: I32, lives: I64, positions: I64, targets: I64, left: I32, last: I32, before: I32, after: I32,
    distinct: I64, scratch_last: I32, scratch_window: I32, scratch_instant: I64, scratch_point: I64, scratch_codes: I32,
    out_left: I32, out_last: I32, out_codes: I32, out_previous: I32, out_times: I64, out_distinct: I64, out_ends: I64,
) -> int:  # fmt: skip
    """Move windows ahead; writes a point for every group of a window at each instant at which it changed.

    `positions` has for every window the first row that has not left it, and the first that has not entered; `targets`
    where these will be. `left[w, c]` is the last row of the group c that left the window w; `last[c]` the last one that
    has entered all windows. The first point of a group is its state before; `out_previous` is the point before, NONE
    for the first. Returns the number of points; `out_ends[w]` is where those of a window end.

    For COUNT(DISTINCT): `before[d, i]` and `after[d, i]` are the rows with the same value before and after a row in its
    group; a row whose `after` is itself has NULL. `distinct[d, w, c]` is how many values a group has.

    The scratch arrays have one entry per group: the last row that entered, the window for which that and the last point
    hold, the last instant that changed it, its last point, and the groups that changed at this instant.
    """
    points = 0
    instant = 0
    for w in range(lives.size):
        life = lives[w]
        i, j = positions[w, 0], positions[w, 1]
        end_i, end_j = targets[w, 0], targets[w, 1]
        while i < end_i or j < end_j:
            now = FOREVER
            if j < end_j:
                now = times[j]
            if i < end_i:
                now = min(now, find_end(times[i], life))
            instant += 1
            changed = 0
            while True:
                enters = j < end_j and times[j] == now
                if not enters and not (i < end_i and find_end(times[i], life) == now):
                    break
                row = j if enters else i
                c = codes[row]
                if scratch_window[c] != w:
                    scratch_window[c] = w
                    scratch_last[c] = last[c]
                    scratch_point[c] = NONE
                    _write_point(
                        points, w, c, now, left, scratch_last, distinct, scratch_point,
                        out_left, out_last, out_codes, out_previous, out_times, out_distinct,
                    )  # fmt: skip
                    points += 1
                if scratch_instant[c] != instant:
                    scratch_instant[c] = instant
                    scratch_codes[changed] = c
                    changed += 1
                if enters:
                    for d in range(distinct.shape[0]):
                        if after[d, row] != row and before[d, row] <= left[w, c]:
                            distinct[d, w, c] += 1
                    scratch_last[c] = row
                    j += 1
                else:
                    for d in range(distinct.shape[0]):
                        if after[d, row] == NONE or after[d, row] > scratch_last[c]:
                            distinct[d, w, c] -= 1
                    left[w, c] = row
                    i += 1
            for k in range(changed):
                _write_point(
                    points, w, scratch_codes[k], now, left, scratch_last, distinct, scratch_point,
                    out_left, out_last, out_codes, out_previous, out_times, out_distinct,
                )  # fmt: skip
                points += 1
        positions[w, 0] = end_i
        positions[w, 1] = end_j
        out_ends[w] = points
    return points
