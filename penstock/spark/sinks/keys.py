"""The columns of a query that are the key of a sink."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import QueryError


def check_key_columns(name: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """Refuse a key that has other columns than the query, or whole arrays, maps and structs."""
    if unknown := [each for each in key if each not in schema.names]:
        known = ", ".join(schema.names)
        raise QueryError("SINK_KEY", f"{name} has no column {', '.join(unknown)} for the key; it has {known}")
    if nested := [each for each in key if pa.types.is_nested(schema.field(each).type)]:
        message = f"the key of {name} cannot have {', '.join(nested)}: arrays, maps and structs are no keys"
        raise QueryError("SINK_KEY", f"{message}; select a part of them, such as {nested[0]}.a or {nested[0]}[0]")
