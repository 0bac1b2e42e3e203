"""The compiled loops of frames: a list of rows for each partition, and a part of it that is in the frame.

The rows of a partition are linked in their order. Those from `head` to before `entry` are in the frame; those from
`entry` on have not entered it yet; `tail` is the last one. Rows before `head` are dead.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from penstock.ops.protocol import I8
from penstock.state import I32, I64, NONE, U8, compile_kernel


@compile_kernel
def _append_row(row: int, code: int, heads: I64, entries: I64, tails: I64, counts: I64, links: I64, mask: int) -> None:
    links[row & mask] = NONE
    if heads[code] < 0:
        heads[code] = row
    else:
        links[tails[code] & mask] = row
    if entries[code] < 0:
        entries[code] = row
    tails[code] = row
    counts[code] += 1


@compile_kernel
def _remove_head(
    code: int, heads: I64, entries: I64, tails: I64, counts: I64, links: I64, alive: U8, mask: int
) -> None:
    row = heads[code]
    alive[row & mask] = 0
    counts[code] -= 1
    if entries[code] == row:
        entries[code] = links[row & mask]
    heads[code] = links[row & mask]
    if heads[code] < 0:
        tails[code] = NONE


@compile_kernel
def slide_frames(
    codes: I32, places: I64, added: U8, first: int, start: int, end: int,
    heads: I64, entries: I64, tails: I64, lasts: I64, counts: I64,
    stored: I64, links: I64, alive: U8,
    changed: I64, signs: I8, point_codes: I32, ends: I64, points: I64, first_rows: I64, last_rows: I64,
) -> int:  # fmt: skip
    """Move the frame to places, sorted by partition; returns the number of points.

    At a place with `added` there is a new row: `first` and those after it. The frame of place p has the rows from p -
    start (if that is not negative) to p - end. Rows of one place have one point. `changed` and `signs` are the rows
    that enter (+1) and leave (-1) up to `ends` of a point; `first_rows` and `last_rows` are the first and last row of
    the frame there.
    """
    mask = links.size - 1
    at, filled, p, row = 0, 0, 0, first
    while at < codes.size:
        code, place = codes[at], places[at]
        while at < codes.size and codes[at] == code and places[at] == place:
            if added[at]:
                _append_row(row, code, heads, entries, tails, counts, links, mask)
                row += 1
            points[at] = p
            at += 1
        while entries[code] >= 0:
            distance = place - stored[entries[code] & mask]
            if 0 <= distance < end:
                break
            changed[filled], signs[filled] = entries[code], 1
            filled += 1
            lasts[code] = entries[code]
            entries[code] = links[entries[code] & mask]
        if start >= 0:
            while heads[code] != entries[code]:
                distance = place - stored[heads[code] & mask]
                if 0 <= distance <= start:  # a negative one is an overflow
                    break
                changed[filled], signs[filled] = heads[code], -1
                filled += 1
                _remove_head(code, heads, entries, tails, counts, links, alive, mask)
        empty = heads[code] == entries[code]
        first_rows[p] = NONE if empty else heads[code]
        last_rows[p] = NONE if empty else lasts[code]
        point_codes[p], ends[p] = code, filled
        p += 1
    return p


@compile_kernel
def expire_rows(
    first: int, stop: int, limit: int, heads: I64, entries: I64, tails: I64, counts: I64,
    stored_codes: I64, stored: I64, links: I64, alive: U8, left: I64,
) -> int:  # fmt: skip
    """Remove the rows first ... stop - 1 that are alive and before `limit`; returns how many of them were in a frame.

    Rows of a partition come in their order, so that each is the head of its partition when it is its turn.
    """
    mask = links.size - 1
    count = 0
    for row in range(first, stop):
        if alive[row & mask] and stored[row & mask] < limit:
            code = stored_codes[row & mask]
            if entries[code] != row:
                left[count] = row
                count += 1
            _remove_head(code, heads, entries, tails, counts, links, alive, mask)
    return count


@compile_kernel
def complete_rows(
    codes: I32, first: int, delay: int, heads: I64, entries: I64, tails: I64, counts: I64, links: I64, alive: U8,
    completed: I64, at: I64,
) -> int:  # fmt: skip
    """Add rows, sorted by partition; each one completes the row that is `delay` before it in its partition.

    Returns how many are completed: the row, and the number of the added one.
    """
    mask = links.size - 1
    found = 0
    for i in range(codes.size):
        code = codes[i]
        _append_row(first + i, code, heads, entries, tails, counts, links, mask)
        if counts[code] > delay:
            completed[found], at[found] = heads[code], i
            found += 1
            _remove_head(code, heads, entries, tails, counts, links, alive, mask)
    return found


@compile_kernel
def link_rows(
    codes: I64, entered: U8, first: int, heads: I64, entries: I64, tails: I64, lasts: I64, counts: I64, links: I64
) -> None:
    """Add stored rows; those that had entered the frame come first in their partition."""
    mask = links.size - 1
    for at in range(codes.size):
        code = codes[at]
        _append_row(first + at, code, heads, entries, tails, counts, links, mask)
        if entered[at]:
            lasts[code] = first + at
            entries[code] = NONE


@compile_kernel
def find_nth_rows(nth: int, first_rows: I64, last_rows: I64, links: I64, out: I64) -> None:
    """The nth row of each frame, NONE if it has fewer."""
    mask = links.size - 1
    for p in range(first_rows.size):
        row = first_rows[p]
        for _ in range(nth - 1):
            if row < 0 or row == last_rows[p]:
                row = NONE
                break
            row = links[row & mask]
        out[p] = row
