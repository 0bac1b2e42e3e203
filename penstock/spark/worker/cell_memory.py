"""The memory of the cells of a Python worker: the limit of each engine, and the folder to which its rows spill.

Law: as in every engine, results do not depend on the limit; a micro-batch that does not fit is refused as a whole.

The limit is that of the pipeline (`Pipeline(memory=...)`), else it follows from `spark.executor.pyspark.memory`. Spark
divides that by the cores of an executor and limits the address space of every worker to it. The interpreter and its
libraries map about 1.75 GiB of that. Half of the rest is for the engines, in equal parts for the cells of a core; the
other half is for the rows and results of a micro-batch. A worker may get any cell, so engines of other cells leave its
cache before a cell works, until there is room for the whole limit of that cell.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from penstock.errors import ResourceError
from penstock.spark.spec import PipelineSpec
from penstock.state import Maintenance, format_size

_WORKER_MEGABYTES = "PYSPARK_EXECUTOR_MEMORY_MB"
"""The environment variable with the memory of a worker, which Spark sets."""
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The environment variable with the local folders of an executor. Spark deletes them when the executor ends."""
_LIBRARIES = 7 << 28
"""The address space that an engine's libraries map in a worker; more counts if the worker has mapped more."""
_ENGINES_SHARE = 0.5
"""The part of the free memory of a worker that its engines may hold."""
_LEAST_SHARE = 1 / 16
"""The part of all its memory that they may hold in any case."""
_PARTS = 16
"""Stored rows are loaded, and segments written, in parts of at most this fraction of the limit."""


@dataclass(frozen=True)
class CellMemory:
    """The limit of one cell's engine in bytes."""

    limit: int
    spill: str
    """The folder for rows that do not fit."""
    worker: int | None = None
    """What all engines of the worker may hold together; None if Spark gives no limit."""
    origin: str = "memory of the pipeline"
    """What determines the limit."""

    @property
    def part(self) -> int:
        """About how many bytes of stored rows are loaded at a time."""
        return max(1, self.limit // _PARTS)

    @property
    def room_beside(self) -> int | None:
        """What the engines of other cells may hold while this one works; None if that has no limit."""
        return None if self.worker is None else max(0, self.worker - self.limit)

    def fit_segments(self, maintenance: Maintenance) -> Maintenance:
        """The thresholds of the cell, with segments that can be loaded one by one."""
        return replace(maintenance, segment_bytes=min(maintenance.segment_bytes, max(4096, self.part)))

    def explain(self, number: int, cells: int, error: ResourceError) -> ResourceError:
        """The error of an engine as that of a cell."""
        cell = f"cell {number} of {cells}"
        if error.condition != "MEMORY_LIMIT":
            return ResourceError(error.condition, f"{cell}: {error.message}", **{**error.parameters, "cell": number})
        held, needed = (format_size(int(str(error.parameters[key]))) for key in ("held", "needed"))
        message = (
            f"{cell} holds {held} and the next rows need about {needed}, but its limit is {format_size(self.limit)} "
            f"({self.origin}). No row is lost: the micro-batch is repeated by the next start. Use fewer rows per "
            "micro-batch, more cells (penstock rescale), shorter windows, or a higher limit"
        )
        return ResourceError("MEMORY_LIMIT", message, **{**error.parameters, "cell": number})


def choose_cell_memory(
    asked: int | None, cells_per_core: int, worker: int | None, mapped: int, spill: str
) -> CellMemory | None:
    """The memory of a cell; None without a limit.

    `asked`: the limit of the pipeline. `worker`: the bytes that Spark gives to a worker, of which `mapped` are used.
    """
    free = None
    if worker is not None:
        free = int(max((worker - max(mapped, _LIBRARIES)) * _ENGINES_SHARE, worker * _LEAST_SHARE))
    if asked is not None:
        return CellMemory(asked, spill, free)
    if free is None:
        return None
    return CellMemory(free // max(1, cells_per_core), spill, free, "from spark.executor.pyspark.memory")


def find_cell_memory(spec: PipelineSpec) -> CellMemory | None:
    """The memory of a cell in this worker; None without a limit. First called before there is an engine."""
    mapped, spill = _read_mapped_bytes(), _find_spill_folder(os.environ)
    return choose_cell_memory(spec.memory, spec.cells_per_core, _read_worker_bytes(os.environ), mapped, spill)


def _read_worker_bytes(environment: Mapping[str, str]) -> int | None:
    megabytes = environment.get(_WORKER_MEGABYTES, "")
    return int(megabytes) << 20 if megabytes.isdecimal() and int(megabytes) else None


def _find_spill_folder(environment: Mapping[str, str]) -> str:
    folders = [folder for folder in environment.get(_LOCAL_FOLDERS, "").split(",") if folder]
    return folders[os.getpid() % len(folders)] if folders else tempfile.gettempdir()


@cache
def _read_mapped_bytes() -> int:
    """The address space of this process when this was first called; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@contextmanager
def name_cell(number: int, cells: int, memory: CellMemory | None) -> Iterator[None]:
    """Errors about memory inside are those of a cell."""
    try:
        yield
    except ResourceError as error:
        if memory is None or error.condition not in ("MEMORY_LIMIT", "SPILL_FAILED"):
            raise
        raise memory.explain(number, cells, error) from error
