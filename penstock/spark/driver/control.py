"""The log of commands: small JSON files in a folder of the checkpoint, until the micro-batch that holds them is done.

Commands are part of the checkpointed input: after a restart the same micro-batch holds the same commands. A command is
written to the checkpoint first, then to the spool, a local folder from which Spark reads (see `control_source`). Spark
removes from the spool what it has committed, and the log removes that from the checkpoint. The newest file stays, so
that numbers go on after a restart.

Every cell gets every command and skips those it has seen, by their numbers. Cells obey commands to engines (`migrate`,
`policy`, `budget`, `schedule`, `reslice`) before the rows of the micro-batch, and commands about time (`advance`,
`end`) after them. The driver applies all commands about queries to the config of the next micro-batch (see
`pipeline_config`): rows are sent to cells before commands are read, so `add`, `alter` and `drop` wait for it.

A command about queries whose micro-batch is not done when a run ends has no effect: the caller was told that the run
has ended. The next start replaces it by one without an effect. Results do not depend on commands to engines, so a
micro-batch that is repeated without one has the same results.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from penstock.adapt import Begin, Command, TimeCommand
from penstock.errors import InternalError
from penstock.spark.control_command import ControlCommand
from penstock.spark.control_source import list_numbers
from penstock.spark.storage import Folder

CONTROL_FOLDER = "control"
REJECTED_FOLDER = "rejected"
_EXTENSION = ".json"


class CommandLog:
    """Writes the commands of a run, with consecutive numbers."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child(CONTROL_FOLDER)
        self._lock = threading.Lock()
        self.spool = Path(tempfile.mkdtemp(prefix="penstock-control-"))
        atexit.register(shutil.rmtree, self.spool, ignore_errors=True)
        self.rejected = 0
        """The number of files in the checkpoint that were not commands. They are set aside."""
        self._stored = self._load()
        self._last_number = max(self._stored, default=-1)
        if self._last_number < 0:
            self.append(Begin())

    def append(self, command: Command) -> ControlCommand:
        with self._lock:
            numbered = ControlCommand(self._last_number + 1, command)
            self._folder.write(_make_file_name(numbered.number), numbered.encode())
            self._last_number = numbered.number
            self._stored.append(numbered.number)
            self._put_into_spool(numbered)
            self._remove_done()
        return numbered

    def _load(self) -> list[int]:
        """Put the commands in the checkpoint into the spool; returns their numbers.

        A file that is not a command is set aside. In its place, and in that of a command about queries, there is a
        command without an effect: a micro-batch that is repeated may need its number.
        """
        names = [name for name in self._folder.list_names() if name.endswith(_EXTENSION)]
        numbers = sorted(
            int(name.removesuffix(_EXTENSION)) for name in names if name.removesuffix(_EXTENSION).isdigit()
        )
        for number in numbers:
            self._put_into_spool(self._read_command(number))
        return numbers

    def _read_command(self, number: int) -> ControlCommand:
        name = _make_file_name(number)
        content = self._folder.read(name) or b""
        try:
            found = ControlCommand.decode(content)
        except InternalError:
            found = None
        if found is not None and found.number == number and isinstance(found.command, TimeCommand):
            return found
        if found is None or found.number != number:
            self.rejected += 1
            self._folder.child(REJECTED_FOLDER).write(name, content)
        replacement = ControlCommand(number, Begin())
        self._folder.write(name, replacement.encode())
        return replacement

    def _put_into_spool(self, command: ControlCommand) -> None:
        self.spool.mkdir(parents=True, exist_ok=True)
        part = self.spool / f"_{command.number}"
        part.write_bytes(command.encode())
        part.rename(self.spool / str(command.number))

    def _remove_done(self) -> None:
        """Remove commands that Spark has committed from the checkpoint; what fails is tried again next time."""
        waiting = set(list_numbers(str(self.spool)))
        with suppress(OSError):
            for number in [number for number in self._stored[:-1] if number not in waiting]:
                self._folder.remove(_make_file_name(number))
                self._stored.remove(number)


def _make_file_name(number: int) -> str:
    return f"{number:08d}{_EXTENSION}"
