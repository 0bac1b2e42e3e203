"""The decorator of compiled kernels: machine code is cached on disk, so that a process does not compile again.

numba caches beside the module (`__pycache__`), else in the user's cache folder, else it refuses the function. Neither
is writable in a container with a read-only installation and without a home folder. There a private folder below the
temporary folder is used. If that is not safe either, every process compiles the kernels it calls.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, without the interpreter's lock, and cache the machine code."""
    kernel: Any = njit(nogil=True, boundscheck=False)(function)
    try:
        kernel.enable_caching()
    except RuntimeError:  # numba found no writable folder
        folder = make_private_folder()
        if folder is not None:
            _cache_in(folder, kernel)
    return kernel


def make_private_folder() -> Path | None:
    """A folder below the temporary folder that only this user can change; None if there is none.

    Cached code is run when it is loaded, so a folder that another user can write to is not used.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"penstock-kernels-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not stat.S_IMODE(found.st_mode) & 0o077
    return folder if private else None


def find_cache_folder(kernel: Any) -> str | None:
    """The folder with the machine code of a kernel; None if it is not cached."""
    folder = getattr(kernel.stats, "cache_path", None)
    return str(folder) if folder else None


def _cache_in(folder: Path, kernel: Any) -> None:
    given = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        kernel.enable_caching()
    except RuntimeError:  # not writable: this process compiles
        return
    finally:
        config.CACHE_DIR = given
