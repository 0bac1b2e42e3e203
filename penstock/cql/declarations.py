"""Declarations made in Python instead of CQL: the same values as a script's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import get_args

import pyarrow as pa

from penstock.cql.catalog import Stream, Timestamps
from penstock.cql.durations import parse_duration
from penstock.cql.types import build_schema, find_time_column, list_required
from penstock.errors import require_known

Duration = str | int | timedelta
"""As text ("5 seconds"), in units of the time column, or as a timedelta."""


def describe_stream(
    name: str,
    schema: Mapping[str, str] | pa.Schema,
    time: str,
    lateness: Duration = 0,
    timestamps: Timestamps = "external",
    skew: Duration = 0,
    idle_after: Duration | None = None,
    ahead: Duration | None = None,
) -> Stream:
    """The declaration of a stream, with canonical types and durations in units of its time column."""
    require_known(timestamps, get_args(Timestamps), "kind of timestamps")
    columns = build_schema(schema)
    time = find_time_column(columns, time)
    unit = columns.field(time).type
    idle = None if idle_after is None else parse_duration(idle_after, unit)
    limit = None if ahead is None else parse_duration(ahead, unit)
    return Stream(
        name=name,
        schema=columns,
        time=time,
        lateness=parse_duration(lateness, unit),
        timestamps=timestamps,
        skew=parse_duration(skew, unit),
        idle_after=idle,
        ahead=limit,
        required=list_required(schema),
    )
