"""Links between the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from doc_blocks import ROOT, list_pages, read_prose

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
INDEX = ROOT / "docs" / "index.md"


def make_anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def list_anchors(path: Path) -> set[str]:
    without_blocks = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {make_anchor(heading) for heading in HEADING.findall(without_blocks)}


def list_links(path: Path) -> list[str]:
    """The links to files and headings of the repository."""
    return [link for link in LINK.findall(read_prose(path)) if not re.match(r"https?:|mailto:", link)]


def is_broken(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    return not target.exists() or bool(anchor and anchor not in list_anchors(target))


def test_links_resolve() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in list_pages()
        for link in list_links(path)
        if is_broken(path, link)
    ]
    assert not broken, "\n".join(broken)


def test_index_lists_every_page() -> None:
    listed = {(INDEX.parent / link.partition("#")[0]).resolve() for link in list_links(INDEX)}
    missing = [str(path.relative_to(ROOT)) for path in list_pages() if path != INDEX and path.resolve() not in listed]
    assert not missing, missing
