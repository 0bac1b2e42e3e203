"""Reduce a failing storm: `python tests/storm/shrink_storm.py embedded 1243`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from storm.shrink_scenario import main

if __name__ == "__main__":
    main()
