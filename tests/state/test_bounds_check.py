"""`make bounds` compiles the kernels with bounds checks: an index out of range is an error there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
from penstock.state import kernels

codes, head, following = np.array([7], np.int32), np.zeros(3, np.int64), np.zeros(64, np.int64)
try:
    kernels.chain_append(codes, 0, 63, head, following)
except IndexError:
    print("refused")
"""


def test_bounds_check_reaches_kernels(tmp_path: Path) -> None:
    """The environment overrides the kernels' own `boundscheck=False`."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"
