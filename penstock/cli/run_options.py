"""The options of `penstock run`, checked before Spark starts."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.cql import Script, parse_duration
from penstock.errors import QueryError
from penstock.spark.sinks import FolderMode, Sink, check_folders, console, from_connector

DEFAULT_MASTER = "local[*,4]"
"""Local Spark on all cores; a task has four attempts, as on a cluster."""
_MASTER = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|local-cluster\[[\d,\s]+\]|yarn|(spark|k8s)://\S+")
_FILE_KINDS = ("parquet", "orc", "csv", "json")
_ONE_SHOT_TRIGGERS = {"once": {"once": True}, "available-now": {"availableNow": True}}


@dataclass(frozen=True)
class SessionOptions:
    """The Spark session of a run."""

    master: str = DEFAULT_MASTER
    settings: Mapping[str, str] | None = None


@dataclass(frozen=True)
class StartOptions:
    """How the pipeline starts. Without a checkpoint it gets a temporary one."""

    checkpoint: str | None = None
    trigger: Mapping[str, Any] | None = None
    cells: int | None = None
    adapt: bool = False
    evolve: bool = False
    ui: int | None = None
    """The port of the page; None without a page."""
    memory: int | None = None
    """The limit of each cell in bytes; None as Spark's settings say."""


@dataclass(frozen=True)
class OutputOptions:
    """Where results and the summary go."""

    mode: FolderMode | None = None
    """What happens with used folders of sinks; None as each sink declares."""
    json: bool = False


@dataclass(frozen=True)
class RunOptions:
    """How a script runs."""

    script: str
    start: StartOptions = StartOptions()
    finish: bool = False
    """Whether the streams end with the data."""
    output: OutputOptions = OutputOptions()
    session: SessionOptions = SessionOptions()

    @property
    def ends(self) -> bool:
        """Whether the run ends by itself, at the end of the available data."""
        return self.start.trigger in _ONE_SHOT_TRIGGERS.values()

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.finish and not self.ends:
            raise QueryError(
                "BAD_TRIGGER", "--finish needs a run that ends: --once, or --trigger available-now or once"
            )

    def check_folders(self, script: Script) -> None:
        """Refuse used folders of a run that has no checkpoint, before Spark starts."""
        if self.start.checkpoint is None:
            sinks = ((sink.name, sink.connector) for sink in script.sinks)
            check_folders(self.make_sink(name, where.format, dict(where.options)) for name, where in sinks)

    def make_sink(self, name: str, format_: str, options: Mapping[str, str]) -> Sink:
        """The sink of a script. With JSON on stdout, rows for the console go to stderr."""
        kind = format_.casefold()
        if kind == "console" and self.output.json:
            return console(sys.stderr)
        given = dict(options)
        mode = self.output.mode
        if mode is not None and kind in _FILE_KINDS:
            given = {**{key: value for key, value in given.items() if key.casefold() != "mode"}, "mode": mode}
        return from_connector(name, format_, given)

    def format_command(self, checkpoint: str) -> str:
        """The command that continues the run from a checkpoint."""
        words = ["penstock", "run", self.script, "--checkpoint", checkpoint]
        words += _format_trigger(self.start.trigger)
        words += ["--finish"] if self.finish else []
        words += [] if self.start.cells is None else ["--cells", str(self.start.cells)]
        words += [] if self.start.memory is None else ["--memory", str(self.start.memory)]
        words += ["--adapt"] if self.start.adapt else []
        words += [] if self.start.ui is None else ["--ui", str(self.start.ui)]
        words += [] if self.session.master == DEFAULT_MASTER else ["--master", self.session.master]
        words += [word for item in (self.session.settings or {}).items() for word in ("--conf", "=".join(item))]
        return shlex.join(words)


def _format_trigger(trigger: Mapping[str, Any] | None) -> list[str]:
    if trigger is None:
        return []
    if trigger == _ONE_SHOT_TRIGGERS["available-now"]:
        return ["--once"]
    return ["--trigger", str(trigger.get("processingTime", "once"))]


def parse_trigger(text: str | None, once: bool) -> dict[str, Any] | None:
    """The trigger of `--trigger` and `--once`, as Spark takes it."""
    if once and text is not None:
        raise QueryError("BAD_TRIGGER", "--once is a trigger of its own; give --once or --trigger, not both")
    if once:
        return dict(_ONE_SHOT_TRIGGERS["available-now"])
    if text is None:
        return None
    if text.casefold() in _ONE_SHOT_TRIGGERS:
        return dict(_ONE_SHOT_TRIGGERS[text.casefold()])
    try:
        microseconds = parse_duration(text, pa.timestamp("us"))
    except QueryError as error:
        known = ", ".join(_ONE_SHOT_TRIGGERS)
        raise QueryError("BAD_TRIGGER", f"a trigger is a time such as '1 second', or {known}, not {text!r}") from error
    if microseconds < 1000:
        raise QueryError("BAD_TRIGGER", f"a trigger is at least one millisecond, not {text!r}")
    return {"processingTime": f"{microseconds // 1000} milliseconds"}


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    """The settings of `--conf KEY=VALUE`."""
    settings = {}
    for item in given:
        key, sign, value = item.partition("=")
        if not sign or not key.strip().startswith("spark."):
            raise QueryError("BAD_CONF", f"--conf takes spark.KEY=VALUE, not {item!r}")
        settings[key.strip()] = value.strip()
    return settings


def check_master(master: str) -> str:
    """The argument, if Spark can read it as a master."""
    if not _MASTER.fullmatch(master):
        known = "local, local[4], local[*], spark://host:7077, yarn or k8s://host:443"
        raise QueryError("BAD_MASTER", f"--master is such as {known}, not {master!r}")
    return master


def choose_mode(append: bool, overwrite: bool) -> FolderMode | None:
    """The mode of `--append` and `--overwrite`."""
    if append and overwrite:
        raise QueryError("BAD_MODE", "give --append or --overwrite, not both")
    return "append" if append else "overwrite" if overwrite else None
