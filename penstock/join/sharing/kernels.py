"""The compiled loops of sharing: which filter groups need a tuple or a combination, for how long, and in which slice.

Each works on plain arrays and has a twin in the tests. A code of interest stands for a set of filter groups; code 0 is
the empty set.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state import I32, I64, NONE, compile_kernel


@compile_kernel
def _compute_end(born: int, reach: int) -> np.int64:
    """The death of a tuple that lives for `reach`, at most FOREVER. (A test for a wrap is compiled away.)"""
    forever = np.int64(np.iinfo(np.int64).max)
    return forever if reach == forever or (born > 0 and reach > forever - born) else np.int64(born + reach)


@compile_kernel
def extend_wanted_rows(
    ids: Any, born: I64, dies: I64, at: int, row: int, place: int, codes: I32,
    head: I64, following: I64, mask: int, base: int, limit: int, row_born: I64, row_dies: I64,
    wanted: Any, row_wanted: Any, meets: Any, probe_reach: I64, row_reach: I64,
    ids_first: bool, found: int, out: Any, out_wanted: I32,
) -> tuple[int, int, int]:  # fmt: skip
    """As `extend_rows` for rows of two leaves in the order of their births, only pairs that some group needs.

    `wanted` and `row_wanted` are the rings of codes of interest, of one place while all rows have the same code.
    `meets[a, b]` is the code of the groups that need both a tuple of code a and one of code b; `probe_reach` and
    `row_reach` are by code the longest windows on the two streams. A pair dies when it leaves the longest window of the
    groups that need it.
    """
    room = out.shape[1]
    forever = np.iinfo(np.int64).max
    to, to_other = (0, 1) if ids_first else (1, 0)
    code_mask, probe_mask, row_mask = codes.size - 1, wanted.size - 1, row_wanted.size - 1
    while at < born.size:
        id_ = ids[0, at]
        if row == NONE:
            code = codes[at] if place == NONE else codes[id_ & code_mask]
            if 0 <= code < head.size:
                row = head[code]
        b, d, mine = born[at], dies[at], wanted[id_ & probe_mask]
        longest = row_reach[mine]
        while row >= base:
            slot = row & mask
            other = row_born[slot]
            if b > other and longest != forever and b - other >= longest:
                break
            theirs = row_wanted[row & row_mask]
            both = meets[mine, theirs]
            if row < limit and both != 0:
                low = max(b, other)
                high = min(d, row_dies[slot])  # the ends for all groups that need one of the two
                if both != theirs:
                    high = min(high, _compute_end(other, row_reach[both]))
                if both != mine:
                    high = min(high, _compute_end(b, probe_reach[both]))
                if low < high:
                    if found == room:
                        return found, at, row
                    out[to, found] = id_
                    out[to_other, found] = row
                    out[2, found] = low
                    out[3, found] = high
                    out_wanted[found] = both
                    found += 1
            row = following[slot]
        row = NONE
        at += 1
    return found, at, row


@compile_kernel
def intersect_codes(row_wanted: Any, ids: I64, meets: Any, codes: I32) -> None:
    """Restrict the codes of combinations to the groups that also need one of their parts, rows of a ring."""
    mask = row_wanted.size - 1
    for i in range(ids.size):
        codes[i] = meets[codes[i], row_wanted[ids[i] & mask]]


@compile_kernel
def clip_expirations(row_born: I64, ids: I64, reach: I64, codes: I32, dies: I64) -> None:
    """Lower the deaths of combinations to when a part leaves the longest window of the groups that need them."""
    mask = row_born.size - 1
    for i in range(ids.size):
        dies[i] = min(dies[i], _compute_end(row_born[ids[i] & mask], reach[codes[i]]))


@compile_kernel
def compute_window_ends(born: I64, reach: I64, codes: I32, out: I64) -> None:
    """The deaths of tuples: when they leave the longest window of the groups that need them."""
    for i in range(born.size):
        out[i] = _compute_end(born[i], reach[codes[i]])


@compile_kernel
def find_longest_windows(bits: Any, windows: I64, out: I64) -> None:
    """For each row of bits the longest window of the groups whose bits are set; 0 without groups."""
    for row in range(bits.shape[0]):
        longest = np.int64(0)
        for place in range(bits.shape[1]):
            byte = bits[row, place]
            if byte != 0:
                for bit in range(min(8, windows.size - 8 * place)):
                    if byte >> bit & 1 and windows[8 * place + bit] > longest:
                        longest = windows[8 * place + bit]
        out[row] = longest


@compile_kernel
def intersect_bits(row_wanted: Any, ids: I64, sets: Any, bits: Any) -> None:
    """As `intersect_codes`, for sets that are rows of bits: `sets` has the row of each code."""
    mask = row_wanted.size - 1
    for i in range(ids.size):
        code = row_wanted[ids[i] & mask]
        for place in range(bits.shape[1]):
            bits[i, place] &= sets[code, place]


@compile_kernel
def is_ascending(times: I64, after: int) -> bool:
    """Whether times do not decrease, and the first is not before `after`."""
    for i in range(times.size):
        if times[i] < after:
            return False
        after = times[i]
    return True


@compile_kernel
def select_by_age(age: I64, life: int, codes: I32, has: Any, out: I64) -> int:
    """The places of combinations younger than `life` that a filter group needs; returns how many.

    `has` says for each code of interest whether the group is in its set. If `codes` is empty, every group needs all.
    """
    n = 0
    if codes.size == 0:
        for i in range(age.size):
            out[n] = i
            n += age[i] < life
    else:
        for i in range(age.size):
            out[n] = i
            n += (age[i] < life) & has[codes[i]]
    return n


@compile_kernel
def _find_slice(age: int, windows: I64) -> int:
    """The number of windows (ascending) that are not above an age."""
    low, high = 0, windows.size
    if high <= 8:
        for place in range(high):
            low += windows[place] <= age
        return low
    while low < high:
        middle = (low + high) >> 1
        if windows[middle] <= age:
            low = middle + 1
        else:
            high = middle
    return low


@compile_kernel
def count_by_group(age: I64, bits: Any, windows: I64, firsts: I64, counts: I64) -> None:
    """Count combinations by group, given the groups that need each as a row of bits, and by the group's windows.

    Group g has the cells from firsts[g] to before firsts[g + 1]: one for each of its windows (ascending), one for older
    combinations. `windows` has the end of each cell.
    """
    for i in range(age.size):
        for place in range(bits.shape[1]):
            byte, group = bits[i, place], 8 * place
            while byte != 0:
                if byte & 1:
                    low, high = firsts[group], firsts[group + 1] - 1
                    while low < high:
                        middle = (low + high) >> 1
                        if windows[middle] <= age[i]:
                            low = middle + 1
                        else:
                            high = middle
                    counts[low] += 1
                byte >>= 1
                group += 1


@compile_kernel
def count_slices(age: I64, codes: I32, windows: I64, tally: Any) -> None:
    """Count combinations by code and slice; without codes all have the code 0."""
    for i in range(age.size):
        tally[codes[i] if codes.size else 0, _find_slice(age[i], windows)] += 1


@compile_kernel
def find_slice_keys(age: I64, codes: I32, windows: I64, out: I64) -> None:
    """For each combination its code and slice as one number."""
    for i in range(age.size):
        out[i] = (np.int64(codes[i]) if codes.size else 0) * (windows.size + 1) + _find_slice(age[i], windows)
