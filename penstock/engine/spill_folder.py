"""The folder of an engine for window rows that do not fit into memory.

Law: every file belongs to one engine, has a name of its own, and is gone when the engine is closed or collected, or
when the process ends in good order. What was written is mapped into memory, so a folder that vanishes loses no row.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from uuid import uuid4
from weakref import finalize

from penstock.errors import ResourceError


class SpillFolder:
    """A folder inside the folder that the user gave, made when the first file is written."""

    def __init__(self, parent: str | Path) -> None:
        self.parent = Path(parent)
        self._folder = self.parent / f"penstock-{os.getpid()}-{uuid4().hex[:12]}"
        self._numbers = count()
        try:
            self.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise make_spill_error(self.parent, error) from error
        finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def new_file(self) -> Path:
        """A path that does not exist yet. The parent is not made again: a disk may have been taken away."""
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{next(self._numbers)}.arrow"

    def remove(self) -> None:
        """Delete all files; rows in them can still be read by this process."""
        shutil.rmtree(self._folder, ignore_errors=True)


def make_spill_error(folder: Path, cause: OSError) -> ResourceError:
    """A file cannot be written."""
    message = (
        f"window rows cannot be written to the folder {folder}: {cause.strerror or cause}; nothing was changed and the "
        "push was not processed. Free space in the folder or make it available again, then repeat the push"
    )
    return ResourceError("SPILL_FAILED", message, folder=str(folder))
