"""The compiled loops. Each works on plain arrays and has a numpy or Python twin in the tests.

Rings: an array of a power-of-two length, `mask` = length - 1; the row with absolute id i lies at `i & mask`.
Chains: `head[code]` is the newest row with that code, `following[row]` the next older one, NONE ends a chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.state.compiled import compile_kernel

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

NONE = -1
FOREVER = np.int64(2**63 - 1)
ALWAYS = np.int64(-(2**63))


@compile_kernel
def _mix(key: int) -> np.uint64:
    """A splitmix-style hash: keys are often dense, and dense keys must not cluster."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@compile_kernel
def _hash_slot(key: int, mask: int) -> np.int64:
    return np.int64(_mix(key) & np.uint64(mask))


@compile_kernel
def table_lookup(keys: I64, table: I32, values: I64, out: I32) -> None:
    """The code of every key, NONE where the table has none."""
    mask = table.size - 1
    for i in range(keys.size):
        key = keys[i]
        at = _hash_slot(key, mask)
        code = table[at]
        while code >= 0 and values[code] != key:
            at = (at + 1) & mask
            code = table[at]
        out[i] = code


@compile_kernel
def table_intern(keys: I64, start: int, table: I32, values: I64, free: I32, counts: I64, out: I32) -> int:
    """The code of every key from `start` on; a new key gets a free code or the next one.

    `counts` is [codes ever used, free codes, live codes]. Returns the position where it stopped, which is before the
    end if the table or `values` must grow first.
    """
    mask = table.size - 1
    for i in range(start, keys.size):
        key = keys[i]
        at = _hash_slot(key, mask)
        code = table[at]
        while code >= 0 and values[code] != key:
            at = (at + 1) & mask
            code = table[at]
        if code < 0:
            if 2 * (counts[2] + 1) > table.size or (counts[1] == 0 and counts[0] == values.size):
                return i
            if counts[1] > 0:
                counts[1] -= 1
                code = free[counts[1]]
            else:
                code = np.int32(counts[0])
                counts[0] += 1
            counts[2] += 1
            values[code] = key
            table[at] = code
        out[i] = code
    return keys.size


@compile_kernel
def table_fill(table: I32, values: I64, live: U8) -> None:
    """Enter every live code into an empty table."""
    mask = table.size - 1
    for code in range(live.size):
        if live[code]:
            at = _hash_slot(values[code], mask)
            while table[at] >= 0:
                at = (at + 1) & mask
            table[at] = code


@compile_kernel
def chain_append(codes: I32, first: int, mask: int, head: I64, following: I64) -> None:
    """Link the rows first, first + 1, … of a ring in front of their chains. A row with code NONE is in no chain."""
    for i in range(codes.size):
        code = codes[i]
        if code >= 0:
            row = first + i
            following[row & mask] = head[code]
            head[code] = row


@compile_kernel
def ring_chain_append(codes: I32, start: int, first: int, ring: I32, head: I64, following: I64) -> int:
    """Write the codes of the rows first, first + 1, … to a ring, and link the rows as `chain_append` does.

    `start`: the row to begin with. Returns the row where it stopped, which is before the end if `head` must grow first.
    """
    mask = ring.size - 1
    for i in range(start, codes.size):
        code = codes[i]
        if code >= head.size:
            return i
        slot = (first + i) & mask
        ring[slot] = code
        if code >= 0:
            following[slot] = head[code]
            head[code] = first + i
    return codes.size


@compile_kernel
def chain_retract(codes: I32, first: int, mask: int, head: I64, following: I64) -> None:
    """Undo `chain_append` for the newest rows."""
    for i in range(codes.size - 1, -1, -1):
        if codes[i] >= 0:
            head[codes[i]] = following[(first + i) & mask]


@compile_kernel
def probe_chain(
    codes: I32, born: I64, dies: I64, at: int, row: int,
    head: I64, following: I64, mask: int, base: int, limit: int, row_born: I64, row_dies: I64, fresh: U8, fifo: bool,
    oldest: I64, out_probe: I64, out_row: I64, out_born: I64, out_dies: I64,
) -> tuple[int, int, int]:  # fmt: skip
    """Pairs (probe i, row) with equal codes and overlapping validity, rows with base <= id < limit only.

    If `fresh` has a byte per row, rows marked there are skipped. The loop starts at probe `at` (inside its chain at
    `row`, or at NONE) and runs until the end or until the output is full; it returns (pairs, at, row) to continue from.
    In a `fifo` store older rows die earlier, so a chain ends at the first dead row. If `oldest` has a time per probe, a
    chain ends at the first row not born after that time: rows are in the order of their births then.
    """
    n = 0
    room = out_probe.size
    while at < codes.size:
        code = codes[at]
        if row == NONE and 0 <= code < head.size:
            row = head[code]
        b, d = born[at], dies[at]
        while row >= base:
            slot = row & mask
            other_dies = row_dies[slot]
            if oldest.size and row_born[slot] <= oldest[at]:
                break
            if row < limit and (fresh.size == 0 or not fresh[row]):
                low = max(b, row_born[slot])
                high = min(d, other_dies)
                if low < high:
                    if n == room:
                        return n, at, row
                    out_probe[n] = at
                    out_row[n] = row
                    out_born[n] = low
                    out_dies[n] = high
                    n += 1
            if fifo and other_dies <= b:
                break
            row = following[slot]
        row = NONE
        at += 1
    return n, at, row


@compile_kernel
def rows_window_append(
    parts: I32, times: I64, ids: I64, size: int, counts: I64, oldest: I64, newest: I64,
    mask: int, position: I64, successor: I64, row_dies: I64,
) -> None:  # fmt: skip
    """Tuples of a [PARTITION BY .. ROWS size] window arrive in order.

    Every tuple counts in its partition, whether it is stored (ids >= 0) or filtered out (NONE). The stored row `size`
    tuples before it dies at its time. Stored rows that are alive form a queue per partition.
    """
    for i in range(parts.size):
        p = parts[i]
        row = oldest[p]
        if row >= 0 and position[row & mask] == counts[p] - size:
            row_dies[row & mask] = times[i]
            oldest[p] = successor[row & mask]
            if oldest[p] < 0:
                newest[p] = NONE
        row = ids[i]
        if row >= 0:
            position[row & mask] = counts[p]
            successor[row & mask] = NONE
            if newest[p] >= 0:
                successor[newest[p] & mask] = row
            else:
                oldest[p] = row
            newest[p] = row
        counts[p] += 1


@compile_kernel
def rows_window_relink(
    parts: I32, ids: I64, counts: I64, size: int, oldest: I64, newest: I64, mask: int, position: I64, successor: I64
) -> None:
    """Rebuild the queues of `rows_window_append` from stored rows in order; `position` is already set."""
    for i in range(parts.size):
        row = ids[i]
        p = parts[i]
        successor[row & mask] = NONE
        if position[row & mask] < counts[p] - size:
            continue
        if newest[p] >= 0:
            successor[newest[p] & mask] = row
        else:
            oldest[p] = row
        newest[p] = row


@compile_kernel
def skip_dead_rows(row_dies: I64, mask: int, base: int, end: int, bound: int) -> int:
    """The first id from base on that is still alive at `bound`."""
    while base < end and row_dies[base & mask] <= bound:
        base += 1
    return base


@compile_kernel
def collect_living_rows(row_dies: I64, mask: int, base: int, end: int, bound: int, out: I64) -> int:
    """The ids from base on that are still alive at `bound`; returns their number."""
    n = 0
    for row in range(base, end):
        out[n] = row
        n += row_dies[row & mask] > bound
    return n


@compile_kernel
def ring_gather(ring: Any, ids: I64, out: Any) -> None:
    """The values of rows of a ring."""
    mask = ring.size - 1
    for i in range(ids.size):
        out[i] = ring[ids[i] & mask]


@compile_kernel
def text_gather(starts: I64, lengths: I32, pool: U8, mask: int, ids: I64, valid: U8, out_offsets: I32, out: U8) -> None:
    """Copy the texts of rows from a byte ring into Arrow's layout; `out_offsets` are already filled."""
    ring = pool.size - 1
    for i in range(ids.size):
        if valid[i]:
            slot = ids[i] & mask
            start = starts[slot]
            to = out_offsets[i]
            for j in range(lengths[slot]):
                out[to + j] = pool[(start + j) & ring]


@compile_kernel
def probe_sorted(
    lows: Any, highs: Any, born: I64, dies: I64, at: int, place: int,
    keys: Any, rows: I64, least: Any, maxima: Any, levels: I64,
    mask: int, base: int, limit: int, row_born: I64, row_dies: I64, fresh: U8,
    out_probe: I64, out_row: I64, out_born: I64, out_dies: I64,
) -> tuple[int, int, int]:  # fmt: skip
    """As `probe_chain`, over a sorted run: the rows whose key lies in the probe's [low, high].

    Unless `least` is empty, a row's second key must also be at least the probe's. `maxima` holds the second keys, then
    the maximum of every 16 of them, then of every 256 and so on; `levels` is where each of these levels begins. Blocks
    whose maximum is too small are skipped.
    """
    n = 0
    room = out_probe.size
    while at < born.size:
        if place == NONE:
            place = np.searchsorted(keys, lows[at])
        b, d, high = born[at], dies[at], highs[at]
        while place < keys.size and keys[place] <= high:
            if least.size:
                level = 0
                while (
                    level + 1 < levels.size
                    and place & ((16 << 4 * level) - 1) == 0
                    and maxima[levels[level + 1] + (place >> 4 * (level + 1))] < least[at]
                ):
                    level += 1
                if level > 0 or maxima[place] < least[at]:
                    place += 1 << 4 * level
                    continue
            row = rows[place]
            if base <= row < limit and (fresh.size == 0 or not fresh[row]):
                slot = row & mask
                low = max(b, row_born[slot])
                until = min(d, row_dies[slot])
                if low < until:
                    if n == room:
                        return n, at, place
                    out_probe[n] = at
                    out_row[n] = row
                    out_born[n] = low
                    out_dies[n] = until
                    n += 1
            place += 1
        place = NONE
        at += 1
    return n, at, place


@compile_kernel
def rowset_add(ids: Any, stored: Any, size: int, first: int, table: I32, absent: Any) -> None:
    """Insert rows (columns of `ids`) that are neither in `stored[:, :size]` nor earlier in `ids`.

    The n-th absent row is inserted as position first + n; rows inserted by this call are compared through `ids`.
    """
    mask = table.size - 1
    entered = np.empty(ids.shape[1], np.int64)
    n = 0
    for i in range(ids.shape[1]):
        h = np.int64(0)
        for k in range(ids.shape[0]):
            h = h * np.int64(1000003) + ids[k, i]
        at = _hash_slot(h, mask)
        found = False
        while table[at] >= 0:
            row = table[at]
            same = True
            for k in range(ids.shape[0]):
                other = stored[k, row] if row < size else ids[k, entered[row - first]]
                if other != ids[k, i]:
                    same = False
                    break
            if same:
                found = True
                break
            at = (at + 1) & mask
        absent[i] = not found
        if not found:
            table[at] = first + n
            entered[n] = i
            n += 1


@compile_kernel
def _bloom_hash(parts: Any, i: int) -> np.uint64:
    h = np.uint64(0)
    for k in range(parts.shape[0]):
        h = _mix(np.int64(h) ^ np.int64(parts[k, i]))
    return h


@compile_kernel
def bloom_add(parts: Any, bits: U8, hashes: int) -> None:
    """Set the bits of every key, a column of `parts`; bit b is in byte b >> 3, and the size is a power of two."""
    mask = np.uint64(8 * bits.size - 1)
    for i in range(parts.shape[1]):
        h = _bloom_hash(parts, i)
        step = (h >> np.uint64(32)) | np.uint64(1)
        for _ in range(hashes):
            at = h & mask
            bits[at >> np.uint64(3)] |= np.uint8(1 << (at & np.uint64(7)))
            h += step


@compile_kernel
def bloom_has(parts: Any, bits: U8, hashes: int, out: Any) -> None:
    """Whether all bits of a key are set."""
    mask = np.uint64(8 * bits.size - 1)
    for i in range(parts.shape[1]):
        h = _bloom_hash(parts, i)
        step = (h >> np.uint64(32)) | np.uint64(1)
        out[i] = True
        for _ in range(hashes):
            at = h & mask
            if not bits[at >> np.uint64(3)] >> (at & np.uint64(7)) & 1:
                out[i] = False
                break
            h += step


@compile_kernel
def number_map_put(numbers: I64, rows: I64, keys: I64, values: I64) -> None:
    """Enter numbers that the map does not have; `values` is NONE in a free slot, and the map has free slots."""
    mask = keys.size - 1
    for i in range(numbers.size):
        at = _hash_slot(numbers[i], mask)
        while values[at] >= 0:
            at = (at + 1) & mask
        keys[at] = numbers[i]
        values[at] = rows[i]


@compile_kernel
def number_map_pop(numbers: I64, keys: I64, values: I64, out: I64) -> int:
    """Remove numbers; `out` is the row of each, NONE where the map has none. Returns how many were removed.

    The slots behind a removed one move up, so that a search ends at the first free slot.
    """
    mask = keys.size - 1
    removed = 0
    for i in range(numbers.size):
        at = _hash_slot(numbers[i], mask)
        while values[at] >= 0 and keys[at] != numbers[i]:
            at = (at + 1) & mask
        out[i] = values[at]
        if values[at] < 0:
            continue
        removed += 1
        after = (at + 1) & mask
        while values[after] >= 0:
            home = _hash_slot(keys[after], mask)
            if ((after - home) & mask) >= ((after - at) & mask):
                keys[at] = keys[after]
                values[at] = values[after]
                at = after
            after = (after + 1) & mask
        values[at] = NONE
    return removed
