"""The list of functions in the documentation is that of the registry."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_functions_are_listed_as_registered() -> None:
    spec = importlib.util.spec_from_file_location("list_functions", ROOT / "scripts" / "list_functions.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "functions.md").read_text()
    listed = page.split(script.START)[1].split(script.END)[0]
    assert listed == script.write_tables(), "run: python scripts/list_functions.py"
