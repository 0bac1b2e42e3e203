"""Hooks of the documentation site: pages outside of docs/ become pages of the site, and the index its navigation.

The pages link to each other as files of the repository, so that they read well there. The site has them in one folder.
Other files of the repository are named there, without a link.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
"""Pages of the repository outside of docs/, and their names on the site."""
MERMAID = ROOT / "build" / "mermaid" / "mermaid.min.js"
"""What `scripts/fetch_mermaid.py` fetched."""
MERMAID_ON_SITE = "assets/javascripts/mermaid.min.js"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
GROUP = re.compile(r"^\| (?:\*\*(?P<group>[^*]+)\*\*)? ?\| \[(?P<title>[^\]]+)\]\((?P<link>[^)]+)\)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """The navigation is the table of docs/index.md."""
    nav: list[Any] = [{"Home": "index.md"}]
    for row in GROUP.finditer((ROOT / "docs" / "index.md").read_text()):
        if row["group"]:
            nav.append({row["group"]: []})
        page = {row["title"]: _find_page(PurePosixPath("docs/index.md"), row["link"])}
        next(iter(nav[-1].values())).append(page)
    config["nav"] = nav
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID_ON_SITE, abs_src_path=str(MERMAID)))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:  # noqa: ARG001
    """A page with diagrams has the library that draws them; without it the theme fetches one from the web."""
    if 'class="mermaid"' not in output or not MERMAID.exists():
        return output
    return output.replace("</head>", f'<script src="{MERMAID_ON_SITE}"></script></head>', 1)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    given = {name: path for path, name in OUTSIDE.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def replace(found: re.Match[str]) -> str:
        link = found[2]
        if re.match(r"[a-z]+:|#", link):
            return found[0]
        target = _find_page(PurePosixPath(given), link)
        return found[1] if target is None else f"[{found[1]}]({target})"

    return LINK.sub(replace, markdown)


def _find_page(page: PurePosixPath, link: str) -> str | None:
    """Where a link of a page leads on the site; None for a file that is neither page nor picture."""
    name, sign, anchor = link.partition("#")
    target = normpath(str(page.parent / name)) if name else str(page)
    if target in OUTSIDE:
        return OUTSIDE[target] + sign + anchor
    if target.startswith("docs/") and (ROOT / target).suffix in (".md", ".png"):
        return target.removeprefix("docs/") + sign + anchor
    return None
