"""Schemas of Spark as schemas of Arrow; Spark 4.1 names the option for the zone in another way than later versions."""

from __future__ import annotations

from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_ZONE = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {"timestamp_utc": True}


def convert_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a frame: a TIMESTAMP has the zone UTC."""
    return to_arrow_schema(schema, **_ZONE)
