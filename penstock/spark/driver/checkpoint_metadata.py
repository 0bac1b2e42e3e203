"""The record of a pipeline in its checkpoint: `penstock.json` beside Spark's own files.

Law: a start changes the record with its first micro-batch, before that is committed and before its sinks write. Until
Spark has committed it, the record before counts for any other pipeline: the state of the cells is still the old one. So
a start that is refused or fails loses nothing. A start of the same pipeline repeats the micro-batch with the record
that it had.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from uuid import uuid4

from penstock.errors import PenstockError, QueryError
from penstock.spark.driver.checkpoint_formats import FORMAT, convert_file
from penstock.spark.driver.continuation import Continuation, continue_pipeline, is_same_pipeline, start_pipeline
from penstock.spark.driver.pipeline_record import PipelineRecord
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import ConfigSchedule
from penstock.spark.spec import PipelineSpec
from penstock.spark.storage import Folder

_FILE_NAME = "penstock.json"


@dataclass
class CheckpointMetadata:
    """The file of a checkpoint: the id of its run, the record that counts, and the one before the last start."""

    folder: Folder
    run: str
    current: PipelineRecord
    before: PipelineRecord
    _written: bytes | None = None
    """The content of the file, as far as this run knows; None if the record is not written yet."""
    _begun: bool = False

    @property
    def schedule(self) -> ConfigSchedule:
        return self.current.schedule

    @property
    def generation(self) -> int:
        return self.current.generation

    @classmethod
    def open(
        cls, folder: Folder, spec: PipelineSpec, *, evolve: bool = False
    ) -> tuple[CheckpointMetadata, Continuation]:
        """The metadata for a start, and how the pipeline continues; QueryError if it cannot. Nothing is written yet.

        Queries may be added and dropped between two starts: a new query sees the rows that arrive from now on. Orders
        stay.
        """
        saved, used = cls.read(folder), "offsets" in folder.list_names()
        if saved is None and used:
            message = f"the checkpoint {folder.path} is that of another streaming query; give this one its own"
            raise QueryError("CHECKPOINT_DIFFERS", message, checkpoint=folder.path)
        if saved is None or not used:
            started = start_pipeline(spec)
            run = uuid4().hex if saved is None else saved.run
            return cls(folder, run, started.record, started.record.forget_queries()), started
        counted = saved.current
        if find_last_commit(folder) < counted.first_batch and not is_same_pipeline(counted, spec):
            counted = saved.before
        generation = max(saved.current.generation, saved.before.generation) + 1
        found = continue_pipeline(folder.path, counted, spec, generation, evolve=evolve)
        if found.record == replace(saved.current, first_batch=found.record.first_batch):
            return saved, found
        return cls(folder, saved.run, found.record, counted), found

    @classmethod
    def read(cls, folder: Folder) -> CheckpointMetadata | None:
        """The metadata in a folder, None if there is none; QueryError if this version cannot read it."""
        content = folder.read(_FILE_NAME)
        if content is None:
            return None
        try:
            parsed = json.loads(content)
            saved = convert_file(parsed)
            current, before = PipelineRecord.from_json(saved["current"]), PipelineRecord.from_json(saved["before"])
            return cls(folder, saved["run"], current, before, content if parsed is saved else None)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, PenstockError) as error:
            message = f"{folder.path}/{_FILE_NAME} is not a record of a pipeline that this version reads: {error}"
            raise QueryError("BAD_CHECKPOINT", message, checkpoint=folder.path) from error

    def prepare(self) -> None:
        """Record a new checkpoint before Spark writes to it: its run, streams and cells, and no query yet."""
        if self.folder.read(_FILE_NAME) is None:
            self.folder.write(_FILE_NAME, self._encode(self.before))

    def begin(self, batch: int) -> None:
        """Record this start with its first micro-batch, before anything of it is written.

        In later micro-batches the file is compared: another driver that tried to run this checkpoint may have changed
        it. Spark lets only one of them commit a micro-batch, and that one goes on to the next.
        """
        if self._written is None:
            self.current = replace(self.current, first_batch=batch)
            self.save()
        elif self._begun and self.folder.read(_FILE_NAME) != self._written:
            self.save()
        self._begun = True

    def change_config(self, batch: int, layout: Layout) -> None:
        """Set the config from a micro-batch on, and save the record."""
        self.current = self.current.with_config(batch, layout)
        self.save()

    def save(self) -> None:
        """Write the file atomically."""
        self._written = self._encode(self.current)
        self.folder.write(_FILE_NAME, self._written)

    def _encode(self, current: PipelineRecord) -> bytes:
        file = {"format": FORMAT, "run": self.run, "current": current.as_json(), "before": self.before.as_json()}
        return json.dumps(file, indent=1).encode()


def find_last_commit(folder: Folder) -> int:
    """The last micro-batch that Spark committed, -1 if there is none."""
    return max((int(name) for name in folder.child("commits").list_names() if name.isdigit()), default=-1)
