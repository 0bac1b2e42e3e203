"""Run seeds of one kind in this process: `python tests/storm/seed_runner.py embedded 1243 1244`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from storm.seed_processes import main

if __name__ == "__main__":
    sys.exit(main())
