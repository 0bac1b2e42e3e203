"""Fetch the library that draws the diagrams of the documentation, so that the site loads nothing from outside.

    python scripts/fetch_mermaid.py      # into build/mermaid, once

It comes from npm. Without npm the site is built too; a browser then fetches the library from the web.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VERSION = "11"
"""The version that the theme of the site asks for."""
MERMAID = Path(__file__).parents[1] / "build" / "mermaid" / "mermaid.min.js"
_PACKED = "package/dist/mermaid.min.js"


def fetch() -> str:
    """Returns what was done, as a sentence."""
    if MERMAID.exists():
        return f"diagrams are drawn by {MERMAID.name}, which is part of the site"
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm: a browser fetches the library for diagrams from the web"
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, f"mermaid@{VERSION}"]
        if subprocess.run(command, capture_output=True, check=False, cwd=folder).returncode:
            return "npm cannot fetch mermaid: a browser fetches the library for diagrams from the web"
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            member = archive.extractfile(_PACKED)
            assert member is not None
            MERMAID.parent.mkdir(parents=True, exist_ok=True)
            MERMAID.write_bytes(member.read())
    return f"fetched {MERMAID.name} from npm; it is part of the site"


if __name__ == "__main__":
    print(fetch())
