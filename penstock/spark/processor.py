"""The processor of a cell, as `transformWithStateInPandas` wants it: a thin coat over the `Keeper`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.plan.placement import cell_keys
from penstock.spark.batch import Packed
from penstock.spark.keeper import Keeper
from penstock.spark.layout import layout_of
from penstock.spark.spec import Spec

RESULTS = "cell int, kind string, name string, rows bigint, data binary"


class Processor(StatefulProcessor):
    """Works on the micro-batches of the cells."""

    def __init__(self, run: str, spec: Spec) -> None:
        self._run = run
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("cell", "version bigint, token string, meta binary")
        self._segments = handle.getMapState("segments", "first bigint, last bigint", "token string, data binary")

    def close(self) -> None:
        pass

    def passed(self, stage: str, cell: int, version: int) -> None:
        """Called between the stages of a micro-batch: fault tests raise here."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        number = cell_keys(self._spec.cells).index(int(key[0]))
        keeper = Keeper(self._run, layout_of(self._spec), self._value, self._segments)
        for output in keeper.step(number, _packed(rows), self.passed):
            yield pd.DataFrame(output, columns=["cell", "kind", "name", "rows", "data"])


def _packed(frames: Iterator[pd.DataFrame]) -> Iterator[Packed]:
    for frame in frames:
        for _, *packed in frame.itertuples(index=False, name=None):
            yield tuple(packed)
