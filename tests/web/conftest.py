"""Chromium for the browser tests. Without one they are skipped, and the reason says how to install it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
PICTURES = Path(__file__).parents[2] / "out" / "page"


def find_chromium() -> str | None:
    given = os.environ.get("PENSTOCK_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with a new profile."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(
            "the browser tests did not run: no Chromium; install it with `make browser`, or set "
            "PENSTOCK_CHROMIUM to its path"
        )
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests did not run: no playwright")
    with playwright.sync_playwright() as driver:
        profile = tmp_path_factory.mktemp("chromium")
        context = driver.chromium.launch_persistent_context(
            profile, executable_path=chromium, args=FLAGS, viewport={"width": 1280, "height": 900}
        )
        context.set_default_timeout(120_000)  # milliseconds; on a busy machine readings are far apart
        yield context
        context.close()


@pytest.fixture
def pictures() -> Path:
    """Where screenshots are kept."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
