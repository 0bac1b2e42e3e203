"""Run a selection of the tests on every supported Python, with the lowest and the newest version of each dependency.

    python scripts/run_matrix.py [--python 3.12] [--versions lowest] [TESTS ...]

Each cell has an environment below out/matrix and compiles its own kernels. The exit code is 1 if a cell fails or has
no interpreter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from pathlib import Path

from interpreters import PYTHONS, ROOT, create_environment, find_interpreter, print_table

VERSIONS = ("lowest", "newest")
SELECTION = (
    "tests/cql",
    "tests/expr",
    "tests/engine",
    "tests/state",
    "tests/law/test_regressions.py",
    "tests/cli",
    "tests/spark/test_environment.py",
    "tests/spark/test_examples.py",
)
TOOLS = ("pytest", "hypothesis", "pytest-rerunfailures")


def run_cell(version: str, which: str, tests: list[str], folder: Path) -> str:
    """Install and test one cell; the last line of pytest, or what is missing."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return f"no python{version} on this machine"
    place = folder / f"{version}-{which}"
    requirements = (*TOOLS, "--editable", ".[spark,java,lab]")
    python = create_environment(place, interpreter, *requirements, lowest=which == "lowest")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(place / "kernels"), "PYTHONPATH": ""}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak and not faults", *tests]
    ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(ended.stdout, flush=True)
    lines = ended.stdout.strip().splitlines() or ["no output"]
    return lines[-1] if ended.returncode == 0 else f"FAILED: {lines[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=list(SELECTION), help="files of tests; default: a selection")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this Python")
    parser.add_argument("--versions", action="append", choices=VERSIONS, help="only these versions")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "matrix", help="folder of the environments")
    given = parser.parse_args()
    rows = [("python", "versions", "minutes", "result")]
    for version in given.python or PYTHONS:
        for which in given.versions or VERSIONS:
            print(f"== Python {version}, {which} versions", flush=True)
            begin = time.monotonic()
            result = run_cell(version, which, given.tests, given.out)
            rows.append((version, which, f"{(time.monotonic() - begin) / 60:.1f}", result))
    print_table(rows)
    if any("FAILED" in row[-1] or "no python" in row[-1] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
