"""The hooks of the documentation site."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="the site is built with `make docs`, which installs mkdocs")
ROOT = Path(__file__).parents[2]
PAGE = "<html><head></head><body>{}</body></html>"
DIAGRAM = PAGE.format('<pre class="mermaid"><code>flowchart TB</code></pre>')


def load_hooks() -> Any:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("fetched", [True, False])
def test_pages_with_diagrams_have_the_library(fetched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = load_hooks()
    library = tmp_path / "mermaid.min.js"
    if fetched:
        library.write_text("")
    monkeypatch.setattr(hooks, "MERMAID", library)
    built = hooks.on_post_page(DIAGRAM, page=None, config=None)
    assert ('<script src="assets/javascripts/mermaid.min.js"></script></head>' in built) == fetched
    plain = PAGE.format("text")
    assert hooks.on_post_page(plain, page=None, config=None) == plain
