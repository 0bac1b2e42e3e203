"""The loops over rows of join nodes against naive versions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from penstock.join.join_rows import JoinRows, sort_rows
from penstock.join.row_kernels import (
    NO_LINES,
    NO_MARKS,
    append_rows,
    count_star,
    extend_rows,
    raise_ages,
    read_rows,
    store_lifetimes,
)
from penstock.join.sharing.kernels import extend_wanted_rows
from penstock.state import FOREVER, NONE, chain_append


@pytest.mark.parametrize("seed", range(40))
def test_rows_extended_by_chain(seed: int) -> None:
    """Any sizes, with codes in a ring or per row, partners that are leaf rows or rows of a state, and small output."""
    rng = np.random.default_rng(seed)
    stored, probes, width, room = rng.integers(1, 40), int(rng.integers(0, 20)), int(rng.integers(1, 4)), 1 + seed % 5
    codes = rng.integers(-1, 5, stored).astype(np.int32)
    head, following = np.full(5, NONE, np.int64), np.full(64, NONE, np.int64)
    chain_append(codes, 0, 63, head, following)
    ids, row_born, born = rng.integers(0, 64, (width, probes)), rng.integers(0, 50, 64), rng.integers(0, 50, probes)
    row_dies, dies = row_born + rng.integers(0, 9, 64), born + rng.integers(0, 9, probes)
    base, limit = int(rng.integers(0, stored)), int(rng.integers(0, stored + 1))
    fresh = rng.integers(0, 2, stored).astype(np.uint8) if seed % 2 else NO_MARKS
    row_ids = rng.integers(0, 99, (2, stored)) if seed % 3 else NO_LINES
    place, ring = (
        (NONE, rng.integers(-1, 7, probes).astype(np.int32))
        if seed % 4
        else (0, rng.integers(-1, 7, 64).astype(np.int32))
    )
    ids_first = bool(seed % 2)
    lines = width + max(1, len(row_ids))
    out = np.zeros((lines + 2, room), np.int64)
    found, at, row, rows = 0, 0, NONE, []
    while at < probes:
        found, at, row = extend_rows(
            ids, born, dies, at, row, place, ring, head, following, 63, base, limit, row_born, row_dies, fresh, False,
            row_ids, ids_first, found, out,
        )  # fmt: skip
        if at < probes:
            assert found == room
            rows += out.T.tolist()
            found = 0
    rows += out.T[:found].tolist()
    expected = []
    for probe in range(probes):
        code = ring[probe] if place == NONE else ring[ids[0, probe] & 63]
        for other in reversed(range(base, min(limit, stored))):
            low, high = max(born[probe], row_born[other]), min(dies[probe], row_dies[other])
            if codes[other] == code >= 0 and low < high and not (fresh.size and fresh[other]):
                one, two = ids[:, probe].tolist(), row_ids[:, other].tolist() if len(row_ids) else [other]
                expected.append([*(one + two if ids_first else two + one), low, high])
    assert rows == expected


@pytest.mark.parametrize("seed", range(40))
def test_leaf_rows_extended_where_a_group_needs_both(seed: int) -> None:
    """Sets of groups as bits: code 0 is the empty set, and the intersection of two codes is their common bits."""
    rng = np.random.default_rng(seed)
    stored, probes, room = int(rng.integers(1, 40)), int(rng.integers(0, 20)), 1 + seed % 5
    reaches = [int(FOREVER) if seed % 7 == 0 else 12, 5, 30]
    mine, theirs = (np.array([max((r for g, r in enumerate(reaches) if code >> g & 1), default=0) for code in range(8)])
                    for _ in range(2))  # fmt: skip
    theirs[theirs == 30] = 17
    codes, keys = rng.integers(-1, 3, stored).astype(np.int32), rng.integers(-1, 4, probes).astype(np.int32)
    head, following = np.full(3, NONE, np.int64), np.full(64, NONE, np.int64)
    chain_append(codes, 0, 63, head, following)
    row_wanted = rng.integers(0, 8, 64).astype(np.uint8) if seed % 3 else np.full(1, 7, np.uint8)
    wanted = rng.integers(0, 8, 64).astype(np.int32) if seed % 5 else np.full(1, 6, np.uint8)
    row_born, born = np.zeros(64, np.int64), np.sort(rng.integers(0, 40, probes))
    row_born[:stored] = np.sort(rng.integers(0, 40, stored))
    ids = np.arange(7, 7 + probes)[np.newaxis]

    def read(ring: np.ndarray, row: int) -> int:
        return int(ring[row & (ring.size - 1)])

    def end(time: int, reach: int) -> int:
        return int(FOREVER) if reach == FOREVER else int(time) + int(reach)

    row_dies = np.array([end(time, theirs[read(row_wanted, row)]) for row, time in enumerate(row_born)])
    dies = np.array([end(time, mine[read(wanted, int(id_))]) for id_, time in zip(ids[0], born, strict=True)], np.int64)
    meets = np.arange(8, dtype=np.int32)[:, np.newaxis] & np.arange(8, dtype=np.int32)
    base, limit, ids_first = int(rng.integers(0, stored)), int(rng.integers(0, stored + 1)), bool(seed % 2)
    out, out_wanted = np.zeros((4, room), np.int64), np.zeros(room, np.int32)
    found, at, row, rows = 0, 0, NONE, []
    while at < probes:
        found, at, row = extend_wanted_rows(
            ids, born, dies, at, row, NONE, keys, head, following, 63, base, limit, row_born, row_dies,
            wanted, row_wanted, meets, mine, theirs, ids_first, found, out, out_wanted,
        )  # fmt: skip
        if at < probes:
            assert found == room
            rows += [[*line, code] for line, code in zip(out.T.tolist(), out_wanted.tolist(), strict=True)]
            found = 0
    rows += [[*line, code] for line, code in zip(out.T.tolist()[:found], out_wanted.tolist()[:found], strict=True)]
    expected = []
    for probe in range(probes):
        for other in reversed(range(base, min(limit, stored))):
            both = read(wanted, int(ids[0, probe])) & read(row_wanted, other)
            low = int(max(born[probe], row_born[other]))
            high = min(end(born[probe], mine[both]), end(row_born[other], theirs[both]))
            if codes[other] == keys[probe] >= 0 and both and low < high:
                pair = [int(ids[0, probe]), other]
                expected.append([*(pair if ids_first else pair[::-1]), low, high, both])
    assert rows == expected


def test_ages_of_oldest_parts() -> None:
    ring, ids, born = np.array([3, -(2**63), 9, 4]), np.array([0, 1, 6, 7]), np.array([5, 0, 9, 20])
    ages = np.array([1, 1, 1, 17])
    raise_ages(ring, ids, born, ages)
    assert ages.tolist() == [2, int(FOREVER), 1, 17]


@pytest.mark.parametrize(("span", "rows"), [(1, 9), (8, 30), (1000, 30), (3, 0)])
def test_rows_sorted_by_birth_keep_their_order(span: int, rows: int) -> None:
    """By counting instants where there are few, else by comparing."""
    rng = np.random.default_rng(span)
    born = rng.integers(-5, span - 5, rows)
    given = JoinRows(np.arange(2 * rows).reshape(2, rows), born, born + 7, np.arange(rows, dtype=np.int32))
    found, order = sort_rows(given), sorted(range(rows), key=lambda place: int(born[place]))
    assert (found.ids == given.ids[:, order]).all()
    assert found.born.tolist() == born[order].tolist()
    assert found.dies.tolist() == (born[order] + 7).tolist()
    assert found.interest is not None
    assert found.interest.tolist() == order


@pytest.mark.parametrize(("first", "rows"), [(0, 0), (3, 1), (14, 5), (35, 16)])
def test_rows_written_to_rings_and_read(first: int, rows: int) -> None:
    born, dies, out = np.zeros(16, np.int64), np.zeros(16, np.int64), np.zeros((3, rows), np.int64)
    ids = np.arange(first, first + rows)
    stored = np.zeros((3, rows), np.int64)
    store_lifetimes(2 * ids, 3 * ids, 0, first, born, dies, stored)
    assert np.count_nonzero(born) == np.count_nonzero(ids)
    assert (born[ids % 16] == 2 * ids).all()
    read_rows(born, dies, first, out)
    assert (out == [ids, 2 * ids, 3 * ids]).all()
    assert (stored == out).all()
    store_lifetimes(2 * ids, ids[:0], FOREVER - 20, first, born, dies, stored)
    assert (dies[ids % 16] == np.minimum(2 * ids, 20) + FOREVER - 20).all()
    assert (stored[2] == dies[ids % 16]).all()


@pytest.mark.parametrize("seed", range(10))
def test_rows_appended_to_table(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, first = int(rng.integers(0, 9)), int(rng.integers(0, 5))
    ids, born, dies = rng.integers(0, 64, (2, rows)), rng.integers(0, 9, rows), rng.integers(9, 19, rows)
    place, ring = (
        (NONE, rng.integers(-1, 4, rows).astype(np.int32))
        if seed % 2
        else (1, rng.integers(-1, 4, 64).astype(np.int32))
    )
    codes, fresh = np.zeros(16, np.int32), np.zeros(16, np.uint8)
    row_born, row_dies, row_ids = np.zeros(16, np.int64), np.zeros(16, np.int64), np.zeros((2, 16), np.int64)
    head, following = np.full(4, NONE, np.int64), np.full(16, NONE, np.int64)
    append_rows(ids, born, dies, place, ring, first, True, codes, row_born, row_dies, row_ids, fresh, head, following)
    here = slice(first, first + rows)
    expected = ring if place == NONE else ring[ids[1] & 63]
    assert (codes[here] == expected).all()
    assert (row_born[here] == born).all()
    assert (row_dies[here] == dies).all()
    assert (row_ids[:, here] == ids).all()
    assert fresh.tolist() == [int(first <= place < first + rows) for place in range(16)]
    naive, links = np.full(4, NONE, np.int64), np.full(16, NONE, np.int64)
    chain_append(expected, first, -1, naive, links)
    assert (head == naive).all()
    assert (following == links).all()


@pytest.mark.parametrize("seed", range(10))
def test_combinations_counted_for_new_rows(seed: int) -> None:
    """Against all combinations of rows: those with equal codes that live together and contain a new row."""
    rng = np.random.default_rng(seed)
    stored, new, lives = rng.integers(0, 6, 3), rng.integers(0, 6, 3), rng.integers(1, 12, 3)
    rows = []  # by leaf: (code, born, dies, whether it is new)
    for old, more, life in zip(stored, new, lives, strict=True):
        born = np.concatenate([np.sort(rng.integers(0, 10, old)), 10 + np.sort(rng.integers(0, 10, more))])
        codes = np.concatenate([rng.integers(-1, 3, old), rng.integers(0, 3, more)])
        both = zip(codes.tolist(), born.tolist(), strict=True)
        rows.append([(code, begin, begin + int(life), place >= old) for place, (code, begin) in enumerate(both)])
    arrivals = sorted((row[1], leaf) for leaf, each in enumerate(rows) for row in each if row[3])
    counts, most, firsts = np.zeros(2), np.zeros(3, np.int64), np.cumsum([0, *map(len, rows)])
    codes, dies = (np.array([row[place] for each in rows for row in each], np.int64) for place in (0, 2))
    members = np.array([[True, True, True], [True, False, True]])
    times, leaf = np.array([time for time, _ in arrivals], np.int64), np.array([leaf for _, leaf in arrivals], np.int64)
    count_star(
        leaf, times, codes.astype(np.int32), dies, firsts, stored, np.zeros((3, 3), np.int64), members, counts, most
    )
    for place, leaves in enumerate(([0, 1, 2], [0, 2])):
        found = [
            parts
            for parts in product(*(rows[leaf] for leaf in leaves))
            if len({part[0] for part in parts}) == 1 and parts[0][0] >= 0 and any(part[3] for part in parts)
            and max(part[1] for part in parts) < min(part[2] for part in parts)
        ]  # fmt: skip
        assert counts[place] == len(found)
    for leaf_rows, largest in zip(rows, most, strict=True):
        assert largest <= max((sum(row[0] == code for row in leaf_rows) for code in range(3)), default=0)
