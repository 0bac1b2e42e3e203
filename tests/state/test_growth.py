"""Arrays that grow: the part that no value needs yet takes no memory. The C library maps arrays of these sizes.

Memory is measured in new processes: the free memory of another test would be used again, and written as zeros.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from penstock.state import ChainIndex, CodeTable, grow_array

LARGE = 1 << 22
IMPORTS = f"""
import numpy as np
from penstock.state import ChainIndex, HeldBytes, grow_array
LARGE = {LARGE}
"""
GROWS = """
grown = grow_array(np.ones(LARGE, np.int64), 2 * LARGE)
assert grown[:LARGE].all() and not grown[-1]
print(HeldBytes().add(grown) / grown.nbytes)
"""
CHAINS = """
index = ChainIndex(64)
for first, code in enumerate((3, LARGE, LARGE + 5, 3)):
    index.append(first, np.array([code], np.int32))
print(HeldBytes().add(index) / (8 * LARGE))
"""


def measure(program: str) -> float:
    """What a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", IMPORTS + program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_pages_that_are_not_written_take_no_memory() -> None:
    assert measure(GROWS) < 0.6
    wide = grow_array(np.arange(6).reshape(2, 3), 5)
    assert wide.tolist() == [[0, 1, 2, 0, 0], [3, 4, 5, 0, 0]]


def test_heads_are_written_as_far_as_codes_go() -> None:
    assert measure(CHAINS) < 1.2
    index = ChainIndex(64)
    for first, code in enumerate((3, 1000, 1005, 3)):
        index.append(first, np.array([code], np.int32))
    assert index.head[[0, 3, 1000, 1001, 1005]].tolist() == [-1, 3, 1, -1, 2]
    assert index.next_older[3] == 0


def test_code_table_grows() -> None:
    table, keys = CodeTable(1), np.arange(1000) * 7
    codes = table.intern(keys)
    assert codes.tolist() == list(range(1000))
    assert table.values(codes).tolist() == keys.tolist()
