"""The kernel of ranks against sorted lists, and its treap's depth."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.ops.rank.kernels import DENSE_RANK, RANK, ROW_NUMBER, rank_changes


def list_top(words: np.ndarray, members: set[int], function: int, width: int, limit: int) -> list[tuple[int, int]]:
    """The twin: sorts all rows of a partition. Returns slots and ranks."""
    ordered = sorted(members, key=lambda slot: (*words[slot].tolist(), slot))
    keys = [tuple(words[slot, :width].tolist()) for slot in ordered]
    found = []
    for place, slot in enumerate(ordered):
        rank = {ROW_NUMBER: place + 1, RANK: keys.index(keys[place]) + 1}.get(function, len(set(keys[: place + 1])))
        if limit < 0 or rank <= limit:
            found.append((slot, rank))
    return found


@pytest.mark.parametrize("function", [ROW_NUMBER, RANK, DENSE_RANK])
@pytest.mark.parametrize("limit", [-1, 1, 3])
def test_ranks_against_sorted_lists(function: int, limit: int) -> None:
    rng = np.random.default_rng(function * 10 + limit + 1)
    words = rng.integers(0, 3, (40, 4))
    left, right, size, roots = (np.full(40, -1, np.int64) for _ in range(4))
    members: tuple[set[int], set[int]] = (set(), set())
    for _ in range(300):
        slot = int(rng.integers(0, 40))
        code = slot % 2
        sign = -1 if slot in members[code] else 1
        before = list_top(words, members[code], function, 2, limit)
        members[code].symmetric_difference_update({slot})
        after = list_top(words, members[code], function, 2, limit)
        lines = rank_changes(
            np.array([1]), np.array([code], np.int32), np.array([sign], np.int8), np.array([slot]),
            function, 2, 0, limit, roots, words, left, right, size,
        )  # fmt: skip
        if lines.size:
            assert [tuple(line) for line in lines[lines[:, 1] < 0][:, 2:4].tolist()] == before
            assert [tuple(line) for line in lines[lines[:, 1] > 0][:, 2:4].tolist()] == after
        else:
            assert before == after
