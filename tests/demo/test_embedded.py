"""The demo on the embedded engine, through the command line."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.cli import app


def test_demo_embedded() -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["demo", "--embedded"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("yes  ") == 2, result.stdout
    assert "freezing" in result.stdout
