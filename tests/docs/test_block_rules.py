"""The rules for code blocks notice what they are for: other output, unknown names and missing files."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import list_blocks
from doc_commands import Command, run_command, split_commands
from doc_python import run_python

PAGE = """
Text.
<!-- not run: needs a cluster -->
```python
start()
```
```python
print(1)
```
```text
1
```
Prose between two blocks.
```text
a picture
```
- an item
  ```sh
  make test
  ```
"""


def test_blocks_with_output_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    found = [(block.language, block.code, block.output, block.skipped) for block in list_blocks(path)]
    assert found == [
        ("python", "start()\n", None, "needs a cluster"),
        ("python", "print(1)\n", "1\n", None),
        ("text", "a picture\n", None, None),
        ("sh", "make test\n", None, None),
    ]


def test_python_values_in_comments() -> None:
    namespace = {"rows": [1, 2]}
    assert (
        run_python("print(3)  # three\nrows  # [1, 2]\nlen(rows)  # the number of rows\n", "page", 0, namespace)
        == "3\n"
    )
    with pytest.raises(AssertionError, match="page:8 is"):
        run_python("rows  # [1]\n", "page", 7, namespace)


def test_commands_with_prompts_have_output() -> None:
    found = split_commands("$ penstock --version\npenstock 0.1.0\n$ make\n", None, prompts=True)
    assert found == [Command("penstock --version", "penstock 0.1.0\n"), Command("make")]


@pytest.mark.parametrize(
    "text",
    [
        "penstock run script.cql --once --cells 4",
        "penstock lab peers --quick",
        "python -m penstock rescale old new --cells 4",
        "PENSTOCK_SEEDS=9 make test WORKERS=4",
        "pip install 'penstock[spark,java]' && make setup",
        "source .venv/bin/activate  # a comment",
    ],
)
def test_known_command(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(Command(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "penstock walk script.cql",
        "penstock run script.cql --twice",
        "penstock run script.cql --cells none",
        "penstock run",
        "penstock lab nothing",
        "penstock check missing.cql",
        "make coffee",
        "pip install 'penstock[coffee]'",
        "python scripts/missing.py",
        "pytest nowhere/missing",
        "sudo reboot",
    ],
)
def test_unknown_command_fails(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run_command(Command(text))
