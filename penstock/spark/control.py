"""The control stream: commands as small JSON files in a folder of the checkpoint, read by Spark like any source.

So commands are part of the checkpointed input: after a restart the same micro-batch holds the same commands. Every cell
gets every command, takes them in the order of their numbers at the end of the micro-batch, and skips those it has seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa

from penstock.errors import InternalError
from penstock.plan.placement import cell_keys
from penstock.spark.layout import ALWAYS
from penstock.spark.pack import COMMAND, SCHEMA
from penstock.spark.storage import Folder

FOLDER = "control"
FIRST = "00000000.json"


@dataclass(frozen=True)
class Command:
    """`advance`: no row of the stream before `time` will come. `end`: of every stream, no row will come."""

    number: int
    do: Literal["advance", "end", "begin"]
    stream: str | None = None
    time: int | None = None

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, blob: bytes) -> Command:
        try:
            return cls(**json.loads(blob))
        except (ValueError, TypeError) as error:
            raise InternalError("BAD_COMMAND", f"a file in the control folder is not a command: {error}") from error


class Desk:
    """Writes commands."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child(FOLDER)
        if not self._folder.names():
            self._folder.write(FIRST, Command(0, "begin").packed())

    @property
    def place(self) -> str:
        return self._folder.place

    def give(self, do: Literal["advance", "end"], stream: str | None = None, time: int | None = None) -> Command:
        number = 1 + max(int(name.split(".")[0]) for name in self._folder.names() if name[0].isdigit())
        command = Command(number, do, stream, time)
        self._folder.write(f"{number:08d}.json", command.packed())
        return command


def frontiers(commands: Iterable[Command], seen: int, streams: Iterable[str], end: int) -> Iterator[tuple[str, int]]:
    """What the commands that were not seen yet promise, in order."""
    for command in sorted(commands, key=lambda command: command.number):
        if command.number > seen:
            if command.do == "advance" and command.stream is not None and command.time is not None:
                yield command.stream, command.time
            elif command.do == "end":
                yield from ((stream, end) for stream in streams)


def commanding(cells: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` that sends every command to every cell."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = cell_keys(cells)
        for batch in batches:
            out = [
                {"cell": key, "stream": -1, "inlet": COMMAND, "part": 0, "seq": 0, "top": ALWAYS, "data": text.encode()}
                for text in batch.column(0).to_pylist()
                for key in keys
            ]
            yield pa.RecordBatch.from_pylist(out, schema=SCHEMA)

    return pack
