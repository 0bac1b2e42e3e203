"""The record of a pipeline in its checkpoint: `penstock.json` beside Spark's own files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from penstock.errors import QueryError
from penstock.spark.pipeline_config import ConfigSchedule, PipelineConfig, QuerySpec
from penstock.spark.spec import PipelineSpec, normalize_declared
from penstock.spark.storage import Folder

_FILE_NAME = "penstock.json"
_FORMAT = 3


@dataclass
class CheckpointMetadata:
    """The record of a checkpoint: the id of its run, the declarations, the configs and the number of their changes."""

    folder: Folder
    run: str
    declared: dict[str, Any]
    schedule: ConfigSchedule
    generation: int

    @classmethod
    def open(cls, folder: Folder, spec: PipelineSpec) -> CheckpointMetadata:
        """The record of a checkpoint, which is created if there is none; QueryError if it is of another pipeline.

        Queries may be added and dropped between two starts: a new query sees the rows that arrive from now on. Orders
        stay.
        """
        metadata = cls.read(folder)
        if metadata is None:
            if "offsets" in folder.list_names():
                message = f"the checkpoint {folder.path} is that of another streaming query; give this one its own"
                raise QueryError("CHECKPOINT_DIFFERS", message, checkpoint=folder.path)
            metadata = cls(
                folder, uuid4().hex, spec.describe(), ConfigSchedule(((0, spec.config.clear_shedding()),)), 0
            )
            metadata.save()
            return metadata
        _check_declared(folder.path, metadata.declared, json.loads(json.dumps(spec.describe())))
        plan = _continue_config(folder.path, spec, metadata.schedule.last, metadata.generation + 1)
        if plan != metadata.schedule.last:
            metadata.generation += 1
            metadata.schedule = ConfigSchedule(((0, plan),))
            metadata.save()
        return metadata

    @classmethod
    def read(cls, folder: Folder) -> CheckpointMetadata | None:
        saved = folder.read(_FILE_NAME)
        if saved is None:
            return None
        try:
            record = json.loads(saved)
            if record["format"] != _FORMAT:
                raise ValueError(f"format {record['format']}, this version reads {_FORMAT}")
            schedule = ConfigSchedule.from_json(record["plans"])
            return cls(folder, record["run"], record["declared"], schedule, record["generation"])
        except (ValueError, KeyError, TypeError, IndexError, QueryError) as error:
            message = f"{folder.path}/{_FILE_NAME} is not a record of a pipeline: {error}"
            raise QueryError("BAD_CHECKPOINT", message, checkpoint=folder.path) from error

    def change_config(self, batch: int, plan: PipelineConfig) -> None:
        """Set the config from a micro-batch on, and save the record."""
        self.generation += 1
        self.schedule = self.schedule.with_config(batch, plan)
        self.save()

    def save(self) -> None:
        """Write the record atomically."""
        record = {
            "format": _FORMAT,
            "run": self.run,
            "generation": self.generation,
            "declared": self.declared,
            "plans": self.schedule.as_json(),
        }
        self.folder.write(_FILE_NAME, json.dumps(record, indent=1).encode())


def _check_declared(place: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["cells"] != now["cells"]:
        raise QueryError(
            "CELLS_DIFFER",
            f"the checkpoint {place} was made with {before['cells']} cells, not {now['cells']}: its state is divided "
            f"that way; start with cells={before['cells']}, or with a new checkpoint",
            cells=before["cells"],
        )
    for kind in ("streams", "tables"):
        old, new = normalize_declared(before[kind]), normalize_declared(now[kind])
        if old != new:
            other = ", ".join(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))
            raise QueryError(
                "CHECKPOINT_DIFFERS",
                f"the checkpoint {place} belongs to another pipeline: {kind} declared differently: {other}; "
                "give this pipeline a checkpoint of its own",
                checkpoint=place,
            )


def _continue_config(place: str, spec: PipelineSpec, before: PipelineConfig, generation: int) -> PipelineConfig:
    """The declared queries; those that ran before continue, with their plan unless another one is declared."""
    known = {query.name.casefold(): query for query in before.queries}
    queries: list[QuerySpec] = []
    for query in spec.queries:
        same = known.get(query.name.casefold())
        if same is None:
            queries.append(replace(query, since=generation))
            continue
        if same.text != query.text:
            raise QueryError(
                "QUERY_DIFFERS",
                f"the checkpoint {place} has a query {query.name} with another text; "
                "give the new query a name of its own, or start with a new checkpoint",
                query=query.name,
            )
        plan, state = query.plan or same.plan, query.state or same.state
        queries.append(replace(same, name=query.name, plan=plan, state=state))
    if known and not any(query.name.casefold() in known for query in spec.queries):
        names = ", ".join(query.name for query in before.queries)
        raise QueryError(
            "CHECKPOINT_DIFFERS",
            f"the checkpoint {place} belongs to another pipeline: its queries are {names}; "
            "give this pipeline a checkpoint of its own",
            checkpoint=place,
        )
    return PipelineConfig(tuple(queries), before.orders).clear_shedding()
