"""The control stream: commands as small JSON files in a folder of the checkpoint, read by Spark like any source.

Commands are part of the checkpointed input: after a restart the same micro-batch holds the same commands. Every cell
gets every command. Cells apply commands about time (`advance`, `end`) at the end of the micro-batch, in order of their
numbers, and skip those they have seen. The driver applies commands about queries to the config of the next micro-batch
(see `pipeline_config`): the rows of a micro-batch are routed before its commands are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.adapt import Begin, Command
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.control_command import ControlCommand
from penstock.spark.layout import ALWAYS
from penstock.spark.storage import Folder
from penstock.spark.worker.pack import COMMAND, PACKED_SCHEMA

CONTROL_FOLDER = "control"
FIRST_FILE = "00000000.json"


class CommandLog:
    """Writes the commands of a run, with consecutive numbers."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child(CONTROL_FOLDER)
        if not self._folder.list_names():
            self._folder.write(FIRST_FILE, ControlCommand(0, Begin()).encode())
        self._last_number = max(int(name.split(".")[0]) for name in self._folder.list_names() if name[0].isdigit())
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        return self._folder.path

    def append(self, command: Command) -> ControlCommand:
        with self._lock:
            self._last_number += 1
            numbered = ControlCommand(self._last_number, command)
            self._folder.write(f"{numbered.number:08d}.json", numbered.encode())
        return numbered


def build_command_map(cells: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` that sends every command to every cell."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = find_cell_keys(cells)
        for batch in batches:
            out = [
                {"cell": key, "stream": -1, "inlet": COMMAND, "part": 0, "seq": 0, "top": ALWAYS, "data": text.encode()}
                for text in batch.column(0).to_pylist()
                for key in keys
            ]
            yield pa.RecordBatch.from_pylist(out, schema=PACKED_SCHEMA)

    return pack
