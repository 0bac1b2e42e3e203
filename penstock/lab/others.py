"""The embedded engine beside Pathway on the same micro-batches, if an interpreter that has it is named.

PENSTOCK_PATHWAY_PYTHON is that interpreter, in a venv of its own (`pip install pathway`): its dependencies and those of
Penstock do not go together.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock.engine import Engine
from penstock.errors import ResourceError
from penstock.lab.join_loads import Load

PATHWAY = "PENSTOCK_PATHWAY_PYTHON"
_PATIENCE = 900


def pathway_python() -> str | None:
    return os.environ.get(PATHWAY)


def compared(load: Load, python: str) -> list[dict[str, Any]]:
    """The first query of a load by the embedded engine and by Pathway: seconds of a run, and results."""
    embedded(load)  # its loops are compiled now
    rows = load.rows_in_batch * load.batches
    found = {"penstock, embedded": embedded(load), "pathway": pathway(load, python)}
    return [
        {"load": load.name, "engine": engine, "rows_s": rows / seconds, "results": results}
        for engine, (seconds, results) in found.items()
    ]


def embedded(load: Load) -> tuple[float, int]:
    engine = Engine()
    for name in load.names:
        engine.stream(name, load.schema(name), time="ts")
    engine.query("q", load.cql(load.asked[0]))
    pushes = [{name: load.table(name, batch) for name in load.names} for batch in range(load.batches)]
    begun = perf_counter()
    results = sum(engine.push(push)["q"].num_rows for push in pushes)
    results += engine.flush()["q"].num_rows
    return perf_counter() - begun, results


def pathway(load: Load, python: str) -> tuple[float, int]:
    program = Path(__file__).with_name("pathway_join.py")
    with tempfile.TemporaryDirectory(prefix="penstock-lab-") as place:
        load.write(Path(place))
        window = str(load.asked[0].millis * 1000)
        command = [python, str(program), place, window, *load.names]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ResourceError("PEER_FAILED", f"{python} ({PATHWAY}) did not run Pathway: {last[0]}")
    said = json.loads(ended.stdout.strip().splitlines()[-1])
    return said["seconds"], said["results"]
