"""The notebook of the examples was executed without an error, and its cells run today."""

from __future__ import annotations

import json
from typing import Any

from doc_blocks import ROOT

NOTEBOOK = ROOT / "examples" / "cold_store.ipynb"


def list_code_cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_notebook_is_executed() -> None:
    cells = list_code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"execute_result"}
    kinds = {kind for output in outputs for kind in output["data"]}
    assert {"text/html", "image/png"} <= kinds


def test_cells_run() -> None:
    names: dict[str, Any] = {}
    for cell in list_code_cells():
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert sum(names["counts"]) == names["alarms"].num_rows > 0
