"""What a checkpoint records of a pipeline, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.spark.inlet_record import InletRecord, record_inlets
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import ConfigSchedule, PipelineConfig
from penstock.spark.shipped_functions import ShippedFunction
from penstock.spark.spec import PipelineSpec, build_declared_spec, digest_rows


@dataclass(frozen=True)
class PipelineRecord:
    """A pipeline in its checkpoint, from a start on."""

    first_batch: int
    """The first micro-batch of that start."""
    generation: int
    """The number of changes of the pipeline."""
    declared: Mapping[str, Any]
    """Streams, tables and the number of cells; see `PipelineSpec.describe`."""
    schedule: ConfigSchedule
    inlets: Mapping[int, InletRecord]
    table_digests: Mapping[str, str]
    dropped: tuple[str, ...] = ()
    """The queries that were dropped while running."""

    @property
    def cells(self) -> int:
        return int(self.declared["cells"])

    @property
    def config(self) -> PipelineConfig:
        return self.schedule.last

    def build_spec(self, config: PipelineConfig, functions: tuple[ShippedFunction, ...]) -> PipelineSpec:
        """The recorded pipeline with a config and user-defined functions. Its static tables are empty."""
        return replace(build_declared_spec(self.declared, config, self.cells), functions=functions)

    def forget_queries(self) -> PipelineRecord:
        """The record before the first micro-batch: the state holds nothing, so queries may still change."""
        schedule = ConfigSchedule(((0, PipelineConfig((), next_inlet=self.config.next_inlet)),))
        return replace(self, schedule=schedule, inlets={}, dropped=())

    def with_config(self, batch: int, layout: Layout) -> PipelineRecord:
        """The record after a change of the config, which counts from a micro-batch on."""
        names = {query.name for query in layout.spec.queries}
        gone = [query.name for query in self.config.queries if query.name not in names]
        return replace(
            self,
            generation=self.generation + 1,
            schedule=self.schedule.with_config(batch, layout.spec.config),
            inlets=record_inlets(layout),
            dropped=tuple(name for name in dict.fromkeys((*self.dropped, *gone)) if name not in names),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "first_batch": self.first_batch,
            "generation": self.generation,
            "declared": self.declared,
            "plans": self.schedule.as_json(),
            "inlets": {str(number): inlet.as_json() for number, inlet in self.inlets.items()},
            "table_digests": self.table_digests,
            "dropped": list(self.dropped),
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> PipelineRecord:
        return cls(
            entry["first_batch"],
            entry["generation"],
            entry["declared"],
            ConfigSchedule.from_json(entry["plans"]),
            {int(number): InletRecord.from_json(inlet) for number, inlet in entry["inlets"].items()},
            entry["table_digests"],
            tuple(entry["dropped"]),
        )


def record_pipeline(layout: Layout, generation: int) -> PipelineRecord:
    """The record of a pipeline that starts."""
    spec = layout.spec
    schedule = ConfigSchedule(((0, spec.config),))
    return PipelineRecord(0, generation, spec.describe(), schedule, record_inlets(layout), digest_tables(spec))


def digest_tables(spec: PipelineSpec) -> dict[str, str]:
    """A digest of the rows of each static table."""
    return {name: digest_rows(table.read()) for name, table in spec.tables.items()}
