"""A command of the control stream: its number, its text in a file, and when it takes effect.

Commands about time and commands to engines take effect in the micro-batch that holds them. Commands that add, alter or
drop queries change which rows are sent to which cell, and rows are sent before commands are read. So they take effect
with the next micro-batch, and so do commands to engines that follow them: these may be about an added query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.adapt import Command, EngineCommand, QueryCommand, TimeCommand, decode_command, encode_command
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


def list_engine_commands(commands: Iterable[ControlCommand], seen: int) -> dict[int, EngineCommand]:
    """The commands to engines that take effect in the micro-batch that holds them and were not seen yet, in order."""
    found: dict[int, EngineCommand] = {}
    for each in sorted(commands, key=lambda each: each.number):
        if each.number <= seen or not isinstance(each.command, QueryCommand):
            continue
        if not isinstance(each.command, EngineCommand):
            break
        found[each.number] = each.command
    return found


def read_frontiers(
    commands: Iterable[ControlCommand], seen: int, streams: Sequence[str], end: int
) -> Iterator[tuple[str, int]]:
    """The frontiers set by commands that were not seen yet, in order."""
    for each in sorted(commands, key=lambda each: each.number):
        if each.number > seen and isinstance(each.command, TimeCommand):
            yield from each.command.list_frontiers(streams, end)
