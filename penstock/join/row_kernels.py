"""Compiled loops that read and write rows of join nodes. Each has a Python twin in the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state import FOREVER, I32, I64, NONE, U8, compile_kernel

ID_LINES = NDArray[np.int64]
"""Row ids: a line for each alias, a column for each row."""


@compile_kernel
def extend_rows(
    ids: ID_LINES, born: I64, dies: I64, at: int, row: int, place: int, codes: I32,
    head: I64, following: I64, mask: int, base: int, limit: int, row_born: I64, row_dies: I64, fresh: U8, fifo: bool,
    row_ids: ID_LINES, ids_first: bool, found: int, out: ID_LINES,
) -> tuple[int, int, int]:  # fmt: skip
    """Rows with their partners in a chain index, as rows of the node above: see `probe_chain` for the conditions.

    The key code of a row is that of its leaf row in line `place`, in the ring `codes`; if `place` is NONE, `codes` has
    one code per row. `row_ids` are the ids that partners are made of; without lines, a partner is a leaf row.
    `ids_first`: the lines of partners come after those of `ids`. The lines of `out` are ids, then births, then deaths;
    output begins at the position `found`. Returns (found, at, row), to continue from if the output is full.
    """
    room = out.shape[1]
    out_born, out_dies = out[-2], out[-1]
    width, others = ids.shape[0], max(1, row_ids.shape[0])
    to, to_other = (0, width) if ids_first else (others, 0)
    code_mask = codes.size - 1
    while at < born.size:
        if row == NONE:
            code = codes[at] if place == NONE else codes[ids[place, at] & code_mask]
            if 0 <= code < head.size:
                row = head[code]
        b, d = born[at], dies[at]
        while row >= base:
            slot = row & mask
            other_dies = row_dies[slot]
            if row < limit and (fresh.size == 0 or not fresh[row]):
                low = max(b, row_born[slot])
                high = min(d, other_dies)
                if low < high:
                    if found == room:
                        return found, at, row
                    for line in range(width):
                        out[to + line, found] = ids[line, at]
                    if row_ids.shape[0] == 0:
                        out[to_other, found] = row
                    else:
                        for line in range(others):
                            out[to_other + line, found] = row_ids[line, row]
                    out_born[found] = low
                    out_dies[found] = high
                    found += 1
            if fifo and other_dies <= b:
                break
            row = following[slot]
        row = NONE
        at += 1
    return found, at, row


@compile_kernel
def read_rows(born: I64, dies: I64, first: int, out: ID_LINES) -> None:
    """The rows first, first + 1, … of a leaf, from the rings of births and deaths: lines of ids, births and deaths."""
    mask = born.size - 1
    for i in range(out.shape[1]):
        row = first + i
        out[0, i] = row
        out[1, i] = born[row & mask]
        out[2, i] = dies[row & mask]


@compile_kernel
def raise_ages(born_ring: I64, ids: I64, born: I64, ages: I64) -> None:
    """Raise the ages of rows at their births to those of one of their parts, at most FOREVER."""
    mask = born_ring.size - 1
    for i in range(ids.size):
        age = born[i] - born_ring[ids[i] & mask]
        ages[i] = max(ages[i], FOREVER if age < 0 else age)  # an overflow, because no part is later than `born`


@compile_kernel
def store_lifetimes(
    born: I64, dies: I64, length: int, first: int, born_ring: I64, dies_ring: I64, out: ID_LINES
) -> None:
    """Write births and deaths of the rows first, first + 1, … of a leaf to their rings, and to `out` as `read_rows`.

    Without `dies`, each row lives for `length`, at most until FOREVER.
    """
    mask = born_ring.size - 1
    for i in range(born.size):
        time = born[i]
        end = dies[i] if dies.size else FOREVER if time > FOREVER - length else time + length
        born_ring[(first + i) & mask] = time
        dies_ring[(first + i) & mask] = end
        out[0, i] = first + i
        out[1, i] = time
        out[2, i] = end


@compile_kernel
def append_rows(
    ids: ID_LINES, born: I64, dies: I64, place: int, code_ring: I32, first: int, fresh: bool,
    codes: I32, row_born: I64, row_dies: I64, row_ids: ID_LINES, row_fresh: U8, head: I64, following: I64,
) -> None:  # fmt: skip
    """Store rows of a node as positions first, first + 1, …, each in front of the chain of its key code.

    Key codes are given as in `extend_rows`.
    """
    mask = code_ring.size - 1
    for i in range(born.size):
        to = first + i
        code = code_ring[i] if place == NONE else code_ring[ids[place, i] & mask]
        codes[to] = code
        row_born[to] = born[i]
        row_dies[to] = dies[i]
        row_fresh[to] = fresh
        for line in range(ids.shape[0]):
            row_ids[line, to] = ids[line, i]
        if code >= 0:
            following[to] = head[code]
            head[code] = to


@compile_kernel
def count_star(
    leaf: I64, times: I64, codes: I32, dies: I64, firsts: I64, living: I64, alive: Any, members: Any, counts: Any,
    most: I64,
) -> None:  # fmt: skip
    """Count the combinations of rows with equal codes that new rows make, for several sets of leaves.

    New rows arrive in temporal order; `leaf` and `times` say where and when. The rows of leaf i are those of `codes`
    and `dies` from `firsts[i]` to before `firsts[i + 1]`, in the order of their deaths: `living[i]` that are stored,
    then the new ones. `members[n, i]` is whether set n contains leaf i. Adds to `counts` by set, and sets `most` to
    the largest number of rows of a leaf with one code. `alive` has a zero for each leaf and code.
    """
    leaves = living.size
    dead = firsts[:-1].copy()
    end = firsts[:-1] + living
    for i in range(leaves):
        for row in range(dead[i], end[i]):
            if codes[row] >= 0:
                alive[i, codes[row]] += 1
                most[i] = max(most[i], alive[i, codes[row]])
    for at in range(leaf.size):
        one, time = leaf[at], times[at]
        for i in range(leaves):
            while dead[i] < end[i] and dies[dead[i]] <= time:
                if codes[dead[i]] >= 0:
                    alive[i, codes[dead[i]]] -= 1
                dead[i] += 1
        row = end[one]
        code = codes[row]
        for n in range(counts.size):
            if members[n, one]:
                product = 1.0
                for i in range(leaves):
                    if i != one and members[n, i]:
                        product *= alive[i, code]
                counts[n] += product
        alive[one, code] += 1
        most[one] = max(most[one], alive[one, code])
        end[one] += 1


KeyColumn = tuple[int, I32]
"""The key codes of some rows: those of the leaf rows in a line of their ids, or (line NONE) one per row."""

ChainTarget = tuple[I64, I64, int, int, int, I64, I64, U8, bool, ID_LINES]
"""A chain index and the rows it refers to: the arguments of `extend_rows` from `head` to `row_ids`."""


NO_MARKS: U8 = np.empty(0, np.uint8)
NO_LINES: ID_LINES = np.empty((0, 0), np.int64)
