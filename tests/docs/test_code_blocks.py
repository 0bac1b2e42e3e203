"""Every code block of the documentation runs. CONTRIBUTING.md describes the conventions.

A page has one namespace for Python, one catalogue for SQL and one folder, which holds a copy of `examples/`.
"""

from __future__ import annotations

import doctest
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT, Block, list_blocks, list_pages
from doc_commands import Command, run_command, split_commands
from doc_python import run_python
from typer.testing import CliRunner

from penstock.cli import app

PAGES = [path for path in list_pages() if list_blocks(path)]
DIAGRAMS = ("flowchart", "graph", "sequenceDiagram", "stateDiagram-v2")
FILE_NAME = re.compile(r"^-- ([\w/]+\.cql)$", re.MULTILINE)
DECLARATION = re.compile(r"^CREATE (?:[^';]|'[^']*')*;\n?", re.MULTILINE)
USES_SPARK = re.compile(r"\bspark\b|\bPipeline\b|\bSparkSession\b")
MOST_SKIPPED = 3


class Page:
    """Runs the blocks of one page in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.declared = ""

    def run(self, block: Block) -> None:
        match block.language:
            case "python":
                printed = run_python(block.code, str(ROOT / block.page), block.line, self.namespace)
                check_output(block, printed, block.output)
            case "sql":
                self.check_sql(block)
            case "sh" | "bash" | "console":
                for command in split_commands(block.code, block.output, prompts=block.language == "console"):
                    check_command(block, command)
            case "json":
                json.loads(block.code)
            case "mermaid":
                assert block.code.lstrip().startswith(DIAGRAMS), f"{block.place} is no diagram"
            case "text":
                pass
            case language:
                known = "python, sql, sh, console, json, mermaid, or text for output"
                pytest.fail(f"{block.place}: the block is in {language or 'no language'}; write {known}")

    def check_sql(self, block: Block) -> None:
        """Check the block as a script, after the declarations of the blocks above it."""
        named = FILE_NAME.search(block.code)
        path = self.folder / (named[1] if named else "block.cql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code if named else self.declared + block.code)
        self.declared += "".join(DECLARATION.findall(block.code))
        result = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["check", str(path)])
        assert result.exit_code == 0, f"{block.place}\n{result.output}"
        check_output(block, result.stdout, block.output)


def check_command(block: Block, command: Command) -> None:
    shown = run_command(command)
    if shown is not None:
        check_output(block, shown, command.output)


def check_output(block: Block, printed: str, wanted: str | None) -> None:
    """Compare the output with what the page shows. In the page `...` stands for any text."""
    if wanted is None:
        return
    found, expected = (
        re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n") + "\n" for text in (printed, wanted)
    )
    fits = doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS)
    assert fits, f"{block.place} prints\n{found}instead of\n{expected}"


def strip_lines(text: str) -> str:
    """The text without spaces at the ends of lines and without empty lines around it."""
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n") + "\n"


def open_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    for entry in folder.iterdir():  # of the page before; the folder itself stays
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(ROOT / "examples", folder / "examples")
    monkeypatch.chdir(folder)
    return Page(folder)


@pytest.mark.flaky(reruns=2, only_rerun=["Python worker failed to connect back"])  # see tests/spark/conftest.py
@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_blocks_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    blocks = [block for block in list_blocks(path) if block.skipped is None]
    needs_spark = any(block.language == "python" and USES_SPARK.search(block.code) for block in blocks)
    spark = request.getfixturevalue("spark") if needs_spark else None
    page = open_page(request.getfixturevalue("spark_folder") if needs_spark else tmp_path, monkeypatch)
    try:
        for block in blocks:
            page.run(block)
    finally:
        for query in spark.streams.active if spark else ():
            query.stop()


def test_few_blocks_are_skipped() -> None:
    skipped = [f"{block.place}: {block.skipped}" for path in PAGES for block in list_blocks(path) if block.skipped]
    assert len(skipped) <= MOST_SKIPPED, "\n".join(skipped)
