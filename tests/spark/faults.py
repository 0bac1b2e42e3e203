"""A processor that fails once, at a stage of a version, in the way it is told; it travels to the workers by value."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import cloudpickle

from penstock.spark.pipeline import Pipeline
from penstock.spark.processor import Processor

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def failing(stage: str, version: int, mark: Path, how: str = "raise") -> type[Pipeline]:
    """A Pipeline whose cells fail at this stage of this version, the first to come there only."""
    place, marked = (stage, version), str(mark)

    class Faulty(Processor):
        def passed(self, stage: str, cell: int, version: int) -> None:
            if (stage, version) != place or os.path.exists(marked):
                return
            with open(marked, "w") as file:
                file.write(f"cell {cell}")
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"injected after {stage}")

    class FaultyPipeline(Pipeline):
        processor = Faulty

    return FaultyPipeline
