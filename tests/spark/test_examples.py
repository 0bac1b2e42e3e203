"""The examples of the README give the documented results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_cold_chain_example(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", "examples/cold_chain.cql", "--once", "--cells", "2"])
    assert result.exit_code == 0, result.output
    assert "passages: 2 cells" in result.output
    found = pq.read_table(tmp_path / "out" / "cold_chain" / "warm_goods").to_pylist()
    assert len(found) == 122
    assert {row["room"] for row in found} == {"cold store"}
    assert list((tmp_path / "out" / "cold_chain").glob("passages/*.json"))
    assert spark is not None
