"""Values as JSON, for columns of `jsonb` and records of Kafka."""

from __future__ import annotations

import json
import math
from datetime import UTC
from typing import Any

import pyarrow as pa


def write_json(value: Any, kind: pa.DataType) -> str:
    """A value as JSON: numbers have all their digits, times are ISO 8601 in UTC, and NaN and infinity are texts."""
    if value is None:
        return "null"
    if pa.types.is_map(kind):
        pairs = ((_write_key(key, kind.key_type), write_json(each, kind.item_type)) for key, each in value)
        return "{" + ", ".join(f"{key}: {text}" for key, text in pairs) + "}"
    if pa.types.is_struct(kind):
        parts = ((field.name, write_json(value[field.name], field.type)) for field in kind)
        return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in parts) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(write_json(each, kind.value_type) for each in value) + "]"
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if pa.types.is_floating(kind) and not math.isfinite(value):
        return {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}.get(value, '"NaN"')
    if pa.types.is_timestamp(kind):
        instant = value.astimezone(UTC).replace(tzinfo=None) if kind.tz else value
        return f'"{instant.isoformat(timespec="microseconds")}Z"'
    if pa.types.is_date(kind):
        return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=False)


def _write_key(key: Any, kind: pa.DataType) -> str:
    """The name of an entry of a map: its key as JSON. That of a number, a boolean or a nested key becomes a text."""
    text = write_json(key, kind)
    return text if text.startswith('"') else json.dumps(text, ensure_ascii=False)
