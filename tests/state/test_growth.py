"""Arrays that grow: the part that no value needs yet takes no memory. The C library maps arrays of these sizes."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state import ChainIndex, CodeTable, HeldBytes, grow_array, release_unused

LARGE = 1 << 22


@pytest.fixture(autouse=True)
def _no_free_memory() -> None:
    """Free memory of other tests would be used again, and written as zeros."""
    release_unused()


def test_pages_that_are_not_written_take_no_memory() -> None:
    grown = grow_array(np.ones(LARGE, np.int64), 2 * LARGE)
    assert grown[:LARGE].all()
    assert not grown[-1]
    assert HeldBytes().add(grown) < 0.6 * grown.nbytes
    wide = grow_array(np.arange(6).reshape(2, 3), 5)
    assert wide.tolist() == [[0, 1, 2, 0, 0], [3, 4, 5, 0, 0]]


def test_heads_are_written_as_far_as_codes_go() -> None:
    index = ChainIndex(64)
    for first, code in enumerate((3, LARGE, LARGE + 5, 3)):
        index.append(first, np.array([code], np.int32))
    assert index.head[[0, 3, LARGE, LARGE + 1, LARGE + 5]].tolist() == [-1, 3, 1, -1, 2]
    assert index.next_older[3] == 0
    assert HeldBytes().add(index) < 1.2 * 8 * LARGE


def test_code_table_grows() -> None:
    table, keys = CodeTable(1), np.arange(1000) * 7
    codes = table.intern(keys)
    assert codes.tolist() == list(range(1000))
    assert table.values(codes).tolist() == keys.tolist()
