"""The code blocks of the Markdown pages, with the output that the pages show for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\s*$")
MARKER = re.compile(r"^ *<!-- not run: (?P<reason>.+) -->$")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
OUTPUT = "text"


@dataclass(frozen=True)
class Block:
    """A fenced block. `output` is the text block directly below it, `skipped` the reason in the comment above it."""

    page: str
    line: int
    language: str
    code: str
    output: str | None = None
    skipped: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def list_pages() -> list[Path]:
    """The pages that users and contributors read."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def list_blocks(path: Path) -> list[Block]:
    """The blocks of a page in order. A text block directly below another block is the output of that block."""
    blocks: list[Block] = []
    end = 0
    for block, last in _iter_fences(path):
        between = path.read_text().splitlines()[end : block.line - 1]
        is_output = block.language == OUTPUT and blocks and not any(line.strip() for line in between)
        if is_output and blocks[-1].language != OUTPUT:
            blocks[-1] = replace(blocks[-1], output=block.code)
        else:
            blocks.append(block)
        end = last
    return blocks


def _iter_fences(path: Path) -> Iterator[tuple[Block, int]]:
    """Each fenced block with the number of its last line."""
    lines = path.read_text().splitlines()
    page = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    number = 0
    while number < len(lines):
        start = FENCE.match(lines[number])
        if start is None:
            number += 1
            continue
        above = MARKER.match(lines[number - 1]) if number else None
        first = number + 1
        number = next(i for i in range(first, len(lines)) if lines[i].strip() == "```")
        code = "\n".join(line.removeprefix(start["indent"]) for line in lines[first:number])
        skipped = above["reason"] if above else None
        number += 1
        yield Block(page, first, start["language"], code + "\n", skipped=skipped), number


def read_prose(path: Path) -> str:
    """The page without comments, blocks and inline code."""
    text = COMMENT.sub("", path.read_text())
    kept, inside = [], False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return re.sub(r"`[^`]*`", "", "\n".join(kept))
