"""The supported Python versions on this machine, and new virtual environments for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
LOWEST = ROOT / "scripts" / "lowest.txt"


def find_interpreter(version: str) -> str | None:
    """An interpreter of a version: of the PATH, of pyenv or of uv; None if there is none that runs."""
    found = [shutil.which(f"python{version}")]
    for folder in (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"):
        found += [str(path) for path in sorted(folder.glob(f"*{version}.*/bin/python{version}"), reverse=True)]
    return next((path for path in found if path is not None and _read_version(path) == version), None)


def _read_version(path: str) -> str | None:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    ended = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None


def create_environment(folder: Path, interpreter: str, *requirements: str, lowest: bool = False) -> Path:
    """A virtual environment with these requirements, by default in their newest versions; its interpreter."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
    versions = ["--constraint", str(LOWEST)] if lowest else ["--upgrade", "--upgrade-strategy", "eager"]
    command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *versions, *requirements]
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT)
    return python


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Rows as aligned columns; the first row is the heading."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    sys.stdout.flush()
