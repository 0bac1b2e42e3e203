"""A command of the control stream: its number, its text in a file, and the frontiers it sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.adapt import Command, TimeCommand, decode_command, encode_command
from penstock.errors import InternalError, QueryError


@dataclass(frozen=True)
class ControlCommand:
    """A command with its number in the control stream."""

    number: int
    command: Command

    def encode(self) -> bytes:
        key, arguments = encode_command(self.command)
        return json.dumps({"number": self.number, "do": key, "arguments": arguments}).encode()

    @classmethod
    def decode(cls, blob: bytes) -> ControlCommand:
        try:
            entry = json.loads(blob)
            return cls(entry["number"], decode_command(entry["do"], entry["arguments"]))
        except (ValueError, TypeError, KeyError, QueryError) as error:
            raise InternalError("BAD_COMMAND", f"a file in the control folder is not a command: {error}") from error


def read_frontiers(
    commands: Iterable[ControlCommand], seen: int, streams: Sequence[str], end: int
) -> Iterator[tuple[str, int]]:
    """The frontiers set by commands that were not seen yet, in order."""
    for each in sorted(commands, key=lambda each: each.number):
        if each.number > seen and isinstance(each.command, TimeCommand):
            yield from each.command.list_frontiers(streams, end)
