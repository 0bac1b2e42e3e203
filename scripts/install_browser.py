"""Install Chromium for the browser tests, if there is none: Debian's package, as root. Says so if it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """The path of a browser that the tests use."""
    given = os.environ.get("PENSTOCK_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


def main() -> int:
    found = find_browser()
    if found is not None:
        print(f"browser tests use {found}")
        return 0
    if os.getuid() or shutil.which("apt-get") is None:
        print("no Chromium: the browser tests will be skipped; apt-get install chromium, or set PENSTOCK_CHROMIUM")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        if subprocess.run(["apt-get", *command], env=environment, check=False).returncode:
            print(f"no Chromium: apt-get {command[0]} failed; the browser tests will be skipped")
            return 1
    print(f"browser tests use {find_browser()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
