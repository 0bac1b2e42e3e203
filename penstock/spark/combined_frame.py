"""The rows of several streams as one DataFrame, which few tasks read; `worker.combined` packs them.

A column with the number of the stream comes first. Columns of one type share a slot; a stream that does not use a slot
has NULL there. Small partitions are read by one task: there are as many tasks as the session runs at a time, or as
there are cells if these are more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.types import DataType

SlotNumbers = tuple[int, ...]


def assign_slots(streams: Sequence[Sequence[DataType]]) -> tuple[list[DataType], list[SlotNumbers]]:
    """The types of the slots, and for the columns of every stream their slots: the first free one of their type."""
    types: list[DataType] = []
    found: list[SlotNumbers] = []
    for columns in streams:
        slots: list[int] = []
        for kind in columns:
            free = (slot for slot, other in enumerate(types) if other == kind and slot not in slots)
            slot = next(free, len(types))
            if slot == len(types):
                types.append(kind)
            slots.append(slot)
        found.append(tuple(slots))
    return types, found


def combine_frames(frames: Sequence[DataFrame], tasks: int) -> tuple[DataFrame, list[SlotNumbers]]:
    """One frame with the rows of all, in at most so many partitions, and the slots of the columns of each.

    The columns of the frames have plain names.
    """
    schemas = [frame.schema for frame in frames]
    types, slots = assign_slots([[field.dataType for field in schema] for schema in schemas])
    together = []
    for number, (frame, schema, used) in enumerate(zip(frames, schemas, slots, strict=True)):
        columns = {slot: col(name) for slot, name in zip(used, schema.names, strict=True)}
        values = [columns.get(slot, lit(None).cast(kind)).alias(f"s{slot}") for slot, kind in enumerate(types)]
        together.append(frame.select(lit(number).alias("stream"), *values))
    return reduce(DataFrame.unionAll, together).coalesce(tasks), slots
