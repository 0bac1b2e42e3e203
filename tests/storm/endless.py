"""`make storm`: run seeds of every kind, from a random first seed, until stopped or for some minutes."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from storm.seed_processes import Outcome, run_seeds

KINDS = {
    "embedded": 40,
    "large": 10,
    "cells": 20,
    "types": 10,
    "shared": 20,
    "bounds": 20,
    "counted": 20,
    "nested": 20,
    "grammar": 40,
    "migrations": 20,
    "budgets": 10,
}
"""The number of seeds of each kind per round."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run storms until stopped.")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--first", type=int, help="the first seed; by default a random one")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    given = parser.parse_args()
    first = random.SystemRandom().randrange(10_000_000, 2_000_000_000) if given.first is None else given.first
    print(f"first seed {first}", flush=True)
    stop_at = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    done, failed = 0, list[Outcome]()
    try:
        while stop_at is None or time.monotonic() < stop_at:
            for kind in given.kinds:
                if stop_at is not None and time.monotonic() > stop_at:
                    break
                for outcome in run_seeds(kind, first, first + KINDS[kind], stop_at=stop_at):
                    done += 1
                    if outcome.fault is not None:
                        failed.append(outcome)
                        print(
                            f"\nFAILED {kind} seed {outcome.seed}\n{outcome.fault}\nrepeat: {outcome.command}\n",
                            flush=True,
                        )
                print(f"{done} seeds done, {len(failed)} failed (last: {kind} from seed {first})", flush=True)
            first += max(KINDS.values())
    except KeyboardInterrupt:
        print("stopped")
    print(f"{done} seeds, {len(failed)} failed")
    for outcome in failed:
        print(f"  {outcome.command}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
