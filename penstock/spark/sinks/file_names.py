"""Names of result files, which tell of which run and query they are, and what a new run does with those of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from penstock.errors import QueryError
from penstock.spark.storage import as_file_name

FolderMode = Literal["error", "append", "overwrite"]
"""What a run with a new checkpoint does with a folder that has result files: refuse, add to them, or replace them."""
FOLDER_MODES: tuple[FolderMode, ...] = get_args(FolderMode)


def check_mode(mode: FolderMode) -> FolderMode:
    """The mode, if there is such a one."""
    if mode not in FOLDER_MODES:
        raise QueryError("BAD_MODE", f"the mode of a folder is {' or '.join(FOLDER_MODES)}, not {mode!r}")
    return mode


def name_output(run: str, query: str) -> str:
    """The beginning of the names of all files of a query in a run."""
    return f"part-{run[:8]}-{as_file_name(query)}"


def choose_files_of_others(names: Iterable[str], run: str | None, extension: str) -> list[str]:
    """The result files that a run did not write; of all runs without one."""
    own = f"part-{run[:8]}-" if run else None
    results = (name for name in names if name.startswith("part-") and name.endswith(f".{extension}"))
    return sorted(name for name in results if not (own and name.startswith(own)))
