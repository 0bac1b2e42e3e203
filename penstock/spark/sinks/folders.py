"""Folders that have results of other runs: refused, added to or replaced, by the mode of the sink."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import DataError
from penstock.spark.sinks.driver_files import DriverFileSink
from penstock.spark.sinks.files import FileSink
from penstock.spark.sinks.protocol import Sink


def check_folders(sinks: Iterable[Sink], run: str | None = None) -> None:
    """Refuse folders with result files of other runs, except for sinks that append or overwrite."""
    for sink in sinks:
        if isinstance(sink, FileSink | DriverFileSink) and sink.mode == "error" and sink.list_files_of_others(run):
            message = (
                f"{sink.path} has results of an earlier run that this run does not continue: they would be mixed. "
                "Continue the earlier run with its checkpoint (--checkpoint DIR, or checkpointLocation in Python), add "
                'to the files (--append, or mode="append" of the sink), or replace them (--overwrite, or '
                'mode="overwrite")'
            )
            raise DataError("FOLDER_IN_USE", message, folder=sink.path)


def clear_folders(sinks: Iterable[Sink], run: str | None = None) -> None:
    """Remove the result files of other runs that are to be overwritten."""
    for sink in sinks:
        if isinstance(sink, FileSink | DriverFileSink) and sink.mode == "overwrite":
            sink.remove_files_of_others(run)


def describe_sink(sink: Sink) -> str:
    """Where the results of a sink go, in words."""
    return str(sink) if type(sink).__str__ is not object.__str__ else type(sink).__name__
