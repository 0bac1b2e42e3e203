"""Where compiled kernels are cached, also in an installation that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.state import chain_append, find_cache_folder
from penstock.state.compiled import make_private_folder

ROOT = Path(__file__).parents[2]
PROGRAM = """
import penstock.engine
from penstock.state import chain_append, find_cache_folder
print(find_cache_folder(chain_append))
"""


def import_read_only(folder: Path, temporary: Path) -> str:
    """Import a copy of the package whose cache folders cannot be created, without a home; the folder it uses."""
    shutil.copytree(ROOT / "penstock", folder / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    for package in [path.parent for path in (folder / "penstock").rglob("__init__.py")]:
        (package / "__pycache__").touch()
    nowhere = "/dev/null/home"
    changed = {"PYTHONPATH": str(folder), "HOME": nowhere, "XDG_CACHE_HOME": nowhere, "TMPDIR": str(temporary)}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | changed
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_cache_beside_the_module() -> None:
    assert find_cache_folder(chain_append)


def test_cache_of_a_read_only_installation(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    used = Path(import_read_only(tmp_path / "site", temporary))
    private = temporary / f"penstock-kernels-{os.getuid()}"
    assert used.parent == private
    assert private.stat().st_mode & 0o777 == 0o700


def test_no_cache_where_another_user_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = make_private_folder()
    assert folder is not None
    folder.chmod(0o777)
    assert make_private_folder() is None
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert make_private_folder() is None
    assert import_read_only(tmp_path / "site", tmp_path) == "None"
