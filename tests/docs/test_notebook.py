"""The notebooks of the examples were executed without an error, and their cells run today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT
from notebook import show_html

NAMES = ("cold_store", "spark_streams")


def list_code_cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cells(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cells of a notebook define, run in a folder with nothing but a copy of the examples."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(ROOT / "examples", folder / "examples")
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    for cell in list_code_cells(name):
        exec(compile("".join(cell["source"]), name, "exec"), found)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_executed(name: str) -> None:
    cells = list_code_cells(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"execute_result"}
    kinds = {kind for output in outputs for kind in output["data"]}
    assert {"text/html", "image/png"} <= kinds


def test_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_cells("cold_store", tmp_path, monkeypatch)
    assert sum(names["counts"]) == names["alarms"].num_rows > 0


@pytest.mark.usefixtures("spark")
def test_cells_run_on_spark(spark_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_cells("spark_streams", spark_folder, monkeypatch)
    assert names["written"]["warm_goods"] == len(names["stored"]) > 0
    shown = show_html(names["pipe"])
    assert "image/svg+xml" in shown
    assert "warm_goods" in shown
