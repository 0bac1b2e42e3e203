"""Avro payloads: their schemas, given as text or by a registry, and their records.

A registry is asked by its REST interface. A payload then begins with a zero byte and the number of its schema in four
bytes. A registry that cannot be asked stops the run, since every payload would be bad; a number that it does not know
is a bad payload.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import UUID

import pyarrow as pa

from penstock.cql import format_type, redact, resolve_secret
from penstock.errors import QueryError, ResourceError
from penstock.expr import classify_type

_HEADER = 5
_REGISTRY_SECONDS = 30
BAD_RECORD = (struct.error, OverflowError, AttributeError, MemoryError)
"""Errors of fastavro for bad payloads, beside those of Python for bad values."""


def read_schema_text(schema: str) -> str:
    """A schema given as JSON text, or as the path of its file."""
    if schema.lstrip().startswith(("{", "[", '"')):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the Avro schema {schema[:100]} is neither JSON nor a file that can be read: {error}"
        raise QueryError("PAYLOAD_SCHEMA", message) from None


def check_avro_fields(stream: str, schema: str, fields: pa.Schema) -> None:
    """Refuse a schema that is not one of records, or that has not the declared fields with fitting types."""
    try:
        parsed = parse_schema(schema)
    except Exception as error:  # fastavro has many
        message = f"the Avro schema cannot be used: {type(error).__name__}: {str(error)[:300]}"
        raise QueryError("PAYLOAD_SCHEMA", message) from None
    if not isinstance(parsed, Mapping) or parsed.get("type") != "record":
        raise QueryError("PAYLOAD_SCHEMA", "the Avro schema is not that of a record")
    known = {str(field["name"]): field["type"] for field in parsed["fields"]}
    if missing := [name for name in fields.names if name not in known]:
        message = f"the Avro schema of {stream} has no field {', '.join(missing)}; it has {', '.join(known)}"
        raise QueryError("PAYLOAD_SCHEMA", message)
    for field in fields:
        if not _may_fit(known[field.name], field.type):
            said = f"{json.dumps(_strip(known[field.name]))}, but it is declared as {format_type(field.type)}"
            raise QueryError("PAYLOAD_SCHEMA", f"the Avro schema of {stream} has the field {field.name} of type {said}")


_FITTING: Mapping[str, tuple[str, ...]] = {
    "boolean": ("boolean",), "int": ("integer", "float", "decimal"), "long": ("integer", "float", "decimal"),
    "float": ("float", "integer"), "double": ("float", "integer"), "string": ("string",), "enum": ("string",),
    "bytes": ("string",), "fixed": ("string",), "array": ("array",), "map": ("map",), "record": ("struct",),
    "date": ("date",), "decimal": ("decimal",), "uuid": ("string",),
}  # fmt: skip
"""The kinds of declared types for types of Avro, by their logical type if they have one. Values are checked too."""


def _may_fit(given: Any, kind: pa.DataType) -> bool:
    """Whether some values of an Avro type can be values of a declared type. Names of earlier types are not followed."""
    if isinstance(given, list):
        return any(_may_fit(each, kind) for each in given)
    plain = given if isinstance(given, str) else str(given["type"])
    if plain == "null":
        return False
    name = plain if isinstance(given, str) else str(given.get("logicalType", plain))
    if "timestamp-" in name:
        return bool(pa.types.is_timestamp(kind))
    return classify_type(kind) in _FITTING.get(name, _FITTING.get(plain, (classify_type(kind),)))


def _strip(given: Any) -> Any:
    """A type as users write it, without fastavro's own marks."""
    if isinstance(given, list):
        return [_strip(each) for each in given]
    if isinstance(given, Mapping):
        return {name: _strip(each) for name, each in given.items() if not name.startswith("__")}
    return given


def decode_avro(payloads: Sequence[bytes], schema: str, registry: str, fields: pa.Schema) -> pa.Table:
    """The records of payloads; a field that a record does not have is NULL. Raises for a bad one."""
    reader = import_fastavro().schemaless_reader
    rows: list[Mapping[str, Any]] = []
    for payload in payloads:
        text, data = (schema, payload) if not registry else _split_number(registry, payload)
        file = io.BytesIO(data)
        rows.append(reader(file, parse_schema(text), None))
        if file.tell() != len(data):
            raise ValueError("the payload is longer than its Avro schema says")
    return pa.table([_convert([row.get(each.name) for row in rows], each.type) for each in fields], schema=fields)


def _convert(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column. Arrow cuts the fraction of a float in an integer column, so such a value is bad."""
    if pa.types.is_integer(kind) and any(isinstance(value, float) and value % 1 for value in values):
        raise ValueError(f"a value with a fraction is no {format_type(kind)}")
    if pa.types.is_string(kind):
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    return pa.array(values, kind)


def _split_number(registry: str, payload: bytes) -> tuple[str, bytes]:
    """The schema of a payload of a registry, and the rest."""
    if payload[:1] != b"\0" or len(payload) < _HEADER:
        raise ValueError("the payload does not begin with the number of a schema")
    return fetch_schema(registry, int.from_bytes(payload[1:_HEADER], "big")), payload[_HEADER:]


@cache
def parse_schema(text: str) -> Any:
    return import_fastavro().parse_schema(json.loads(text))


@cache
def fetch_schema(registry: str, number: int) -> str:
    """The text of a schema. The address of the registry may be a secret, and have a user and password."""
    parts = urlsplit(resolve_secret(registry))
    place = parts._replace(
        netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/schemas/ids/{number}"
    )
    shown = redact(urlunsplit(place))
    request = urllib.request.Request(urlunsplit(place))
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_REGISTRY_SECONDS) as answer:
            return str(json.load(answer)["schema"])
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise ValueError(f"the registry has no schema {number}") from None
        raise ResourceError("REGISTRY_UNREACHABLE", f"{shown} answers {error.code} {error.reason}") from None
    except (OSError, ValueError, KeyError) as error:
        message = f"{shown} cannot be read: {redact(str(error))}; check registry"
        raise ResourceError("REGISTRY_UNREACHABLE", message) from None


def import_fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an optional extra
    except ImportError:
        message = "avro payloads need the package fastavro: pip install 'penstock[kafka]'"
        raise ResourceError("PACKAGE_MISSING", message, package="fastavro") from None
    return fastavro
