"""Type names of SQL and schemas of declarations, as Arrow types. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from zoneinfo import available_timezones

import pyarrow as pa

from penstock.cql import advice
from penstock.cql.errors import suggest_similar
from penstock.errors import QueryError, UnsupportedError
from penstock.expr import BOOL, DOUBLE, INT, INTERVAL, MAX_PRECISION, STRING, TIMESTAMP, classify_type, is_nested

ZONED_TIMESTAMP = pa.timestamp("us", "UTC")
"""An instant, as Spark's TIMESTAMP is one."""

_TYPES_BY_NAME: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": INT,
    "long": INT,
    "float": pa.float32(),
    "real": pa.float32(),
    "double": DOUBLE,
    "double precision": DOUBLE,
    "boolean": BOOL,
    "bool": BOOL,
    "string": STRING,
    "varchar": STRING,
    "text": STRING,
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP,
    "timestamp_ltz": ZONED_TIMESTAMP,
    "timestamptz": ZONED_TIMESTAMP,
    "timestamp with time zone": ZONED_TIMESTAMP,
}
KNOWN_TYPES = (
    "tinyint, smallint, int, bigint, float, double, decimal(p, s), boolean, string, date, timestamp, timestamp(zone), "
    "array<t>, map<t, t>, struct<name: t, ...>"
)
_SIZED = re.compile(r"(?P<name>varchar|char|character varying|timestamp)\s*\(\s*\d{1,5}\s*\)")
"""Column types with a length or a precision. It is not enforced: texts have any length, times have microseconds."""
_CONSTRAINT = re.compile(r"\b(primary\s+key|unique|default|comment|check|references|generated)\b", re.IGNORECASE)
_NOT_NULL = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)
_ZONED = re.compile(r"timestamp\s*\(\s*([A-Za-z][\w+/-]*|[+-]\d\d:\d\d)\s*\)", re.IGNORECASE)
_NESTED = re.compile(r"(?P<kind>array|map|struct)\s*<(?P<parts>.*)>", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(r"(?P<name>`[^`]+`|[^\W\d]\w*)(?:\s*:\s*|\s+)(?P<type>.+)", re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)(?:\s*\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\))?")

_REPLACED_TYPES: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): INT,
    pa.float16(): pa.float32(),
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.date64(): pa.date32(),
}
_CANONICAL_TYPES = frozenset(_TYPES_BY_NAME.values())


def to_arrow_type(sql_name: str) -> pa.DataType:
    """The Arrow type of a SQL type name, case-insensitive."""
    name = " ".join(sql_name.casefold().split())
    if name in _TYPES_BY_NAME:
        return _TYPES_BY_NAME[name]
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1] or 10), int(match[2] or 0)
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return pa.decimal128(precision, scale)
        message = f"{sql_name}: a decimal has 1 to {MAX_PRECISION} digits, and its scale is at most its precision"
        raise QueryError("UNKNOWN_TYPE", message, type=sql_name)
    if match := _NESTED.fullmatch(sql_name.strip()):
        return _parse_nested(match["kind"].casefold(), match["parts"], sql_name)
    if match := _ZONED.fullmatch(sql_name.strip()):
        return pa.timestamp("us", _check_zone(match[1]))
    hint = suggest_similar(name, [*_TYPES_BY_NAME, "decimal"])
    raise QueryError("UNKNOWN_TYPE", f"unknown type {sql_name}; known are {KNOWN_TYPES}{hint}", type=sql_name)


def _parse_nested(kind: str, text: str, whole: str) -> pa.DataType:
    """The type of `array<...>`, `map<..., ...>` or `struct<name: type, ...>`."""
    parts = _split_parts(text)
    if kind == "array" and len(parts) == 1:
        return pa.list_(to_arrow_type(parts[0]))
    if kind == "map" and len(parts) == 2:
        return pa.map_(*map(to_arrow_type, parts))
    matches = [_FIELD.fullmatch(part) for part in parts]
    if kind != "struct" or None in matches:
        message = f"{whole}: write array<int>, map<string, int> or struct<a: int, b: string>"
        raise QueryError("UNKNOWN_TYPE", message, type=whole)
    fields = [pa.field(match["name"].strip("`"), to_arrow_type(match["type"])) for match in matches if match]
    names = [field.name.casefold() for field in fields]
    if len(set(names)) < len(names):
        raise QueryError("DUPLICATE_COLUMN", f"{whole} has two fields of one name", type=whole)
    return pa.struct(fields)


def _split_parts(text: str) -> list[str]:
    """The parts between the commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def parse_column_type(sql_name: str) -> pa.DataType:
    """The Arrow type of a declared column. Besides a type it may have a length, a precision and NOT NULL."""
    name = " ".join(split_not_null(sql_name)[0].casefold().split())
    if sized := _SIZED.fullmatch(name):
        return TIMESTAMP if sized["name"] == "timestamp" else STRING
    if constraint := _CONSTRAINT.search(name):
        raise _make_constraint_error(sql_name, constraint[0].upper())
    return to_arrow_type(split_not_null(sql_name)[0])


def _make_constraint_error(sql_name: str, constraint: str) -> UnsupportedError:
    if constraint.startswith("PRIMARY"):
        instead = advice.PRIMARY_KEY
    else:
        instead = "remove it; a column takes a name, a type and NOT NULL"
    message = f"{constraint} is not supported; {instead}"
    return UnsupportedError(f"UNSUPPORTED_{'_'.join(constraint.split())}", message, type=sql_name)


def split_not_null(sql_name: str) -> tuple[str, bool]:
    """A type without NOT NULL, and whether it had that."""
    plain = _NOT_NULL.sub("", sql_name)
    return plain, plain != sql_name


def _check_zone(zone: str) -> str:
    """A time zone by name or offset; QueryError if there is none of this name."""
    if zone[0] not in "+-" and zone not in available_timezones():
        hint = suggest_similar(zone, available_timezones())
        raise QueryError("UNKNOWN_TYPE", f"there is no time zone {zone}{hint}", type=f"timestamp({zone})")
    return zone


def canonicalize_type(given: pa.DataType) -> pa.DataType | None:
    """The type in which Penstock computes with data of a given type; None if the type is not supported."""
    if pa.types.is_dictionary(given):
        return canonicalize_type(given.value_type)
    if pa.types.is_timestamp(given):
        return pa.timestamp("us", given.tz)
    if pa.types.is_duration(given):
        return INTERVAL
    if pa.types.is_nested(given):
        return _canonicalize_nested(given)
    if given in _CANONICAL_TYPES or pa.types.is_decimal128(given):
        return given
    return _REPLACED_TYPES.get(given)


def _canonicalize_nested(given: pa.DataType) -> pa.DataType | None:
    if pa.types.is_map(given):
        key, value = canonicalize_type(given.key_type), canonicalize_type(given.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(given):
        types = [canonicalize_type(field.type) for field in given]
        known = [pa.field(field.name, type_) for field, type_ in zip(given, types, strict=True) if type_ is not None]
        return pa.struct(known) if known and len(known) == len(types) else None
    if pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given):
        element = canonicalize_type(given.value_type)
        return None if element is None else pa.list_(element)
    return None


def build_schema(columns: Mapping[str, str] | pa.Schema) -> pa.Schema:
    """A schema of canonical types, from SQL type names or from an Arrow schema."""
    if not isinstance(columns, (pa.Schema, Mapping)):
        message = f"columns are given as {{name: type}} or as a pyarrow.Schema, not as a {type(columns).__name__}"
        raise QueryError("NO_COLUMNS", message)
    fields = []
    if isinstance(columns, pa.Schema):
        for field in columns:
            if (known := canonicalize_type(field.type)) is None:
                message = f"column {field.name} has type {field.type}; known are {KNOWN_TYPES}"
                raise QueryError("UNKNOWN_TYPE", message, column=field.name, type=str(field.type))
            fields.append(pa.field(field.name, known))
    else:
        for name, type_name in columns.items():
            if not isinstance(name, str) or not isinstance(type_name, str):
                message = (
                    f"columns are given as {{name: SQL type}} or as a pyarrow.Schema, not as {name!r}: {type_name!r}"
                )
                raise QueryError("NO_COLUMNS", message)
            fields.append(pa.field(name, parse_column_type(type_name)))
    seen: set[str] = set()
    for field in fields:
        if field.name.casefold() in seen:
            raise QueryError("DUPLICATE_COLUMN", f"column {field.name} is declared twice", column=field.name)
        seen.add(field.name.casefold())
    if not fields:
        raise QueryError("NO_COLUMNS", "a declaration needs at least one column")
    return pa.schema(fields)


def list_required(columns: Mapping[str, str] | pa.Schema) -> tuple[str, ...]:
    """The columns that must not be NULL: declared NOT NULL, or not nullable in an Arrow schema."""
    if isinstance(columns, pa.Schema):
        return tuple(field.name for field in columns if not field.nullable)
    return tuple(name for name, type_name in columns.items() if split_not_null(type_name)[1])


def find_common_time_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type of times that come from several time columns.

    Timestamps have the zone that all of them have, else UTC. Integers have the widest type. So the order of the streams
    does not matter.
    """
    if not pa.types.is_timestamp(types[0]):
        return max(types, key=lambda type_: int(type_.bit_width))
    return types[0] if len(set(types)) == 1 else ZONED_TIMESTAMP


def zone_columns(schema: pa.Schema) -> pa.Schema:
    """A schema in which timestamps without a zone are instants, as a script's TIMESTAMP is on Spark."""
    return pa.schema([field.with_type(_zone_type(field.type)) for field in schema])


def _zone_type(given: pa.DataType) -> pa.DataType:
    match classify_type(given):
        case "array":
            return pa.list_(_zone_type(given.value_type))
        case "map":
            return pa.map_(_zone_type(given.key_type), _zone_type(given.item_type))
        case "struct":
            return pa.struct([pa.field(field.name, _zone_type(field.type)) for field in given])
    return ZONED_TIMESTAMP if given == TIMESTAMP else given


def find_time_column(schema: pa.Schema, name: str) -> str:
    """The declared spelling of a stream's time column, which must be a timestamp or an integer."""
    spelling: dict[str, str] = {column.casefold(): column for column in schema.names}
    if not isinstance(name, str):
        raise QueryError("UNKNOWN_COLUMN", f"time= must be the name of the time column, not {name!r}", column=name)
    if name.casefold() not in spelling:
        known = ", ".join(schema.names)
        hint = suggest_similar(name, schema.names)
        raise QueryError("UNKNOWN_COLUMN", f"unknown time column {name}; the columns are {known}{hint}", column=name)
    column = spelling[name.casefold()]
    time_type = schema.field(column).type
    if not (pa.types.is_timestamp(time_type) or pa.types.is_integer(time_type)):
        message = f"time column {column} has type {format_type(time_type)}; it must be a timestamp or an integer type"
        if pa.types.is_string(time_type):
            message += f". Declare {column} TIMESTAMP: Spark reads ISO 8601 text of csv and json files as timestamps"
        raise QueryError("TIME_COLUMN_TYPE", message, column=column, type=str(time_type))
    return column


def format_type(given: pa.DataType) -> str:
    """A type in SQL, for error messages."""
    match classify_type(given):
        case "decimal":
            return f"decimal({given.precision}, {given.scale})"
        case "interval":
            return "interval"
        case "timestamp":
            return f"timestamp({given.tz})" if given.tz else "timestamp"
        case "null":
            return "null"
        case "array":
            return f"array<{format_type(given.value_type)}>"
        case "map":
            return f"map<{format_type(given.key_type)}, {format_type(given.item_type)}>"
        case "struct":
            return f"struct<{', '.join(f'{field.name}: {format_type(field.type)}' for field in given)}>"
    return next(name for name, named in _TYPES_BY_NAME.items() if named == given)


def can_cast(given: pa.DataType, target: pa.DataType) -> bool:
    """Whether CAST allows this pair of types."""
    source, goal = classify_type(given), classify_type(target)
    if source == goal == "array":
        return can_cast(given.value_type, target.value_type)
    if is_nested(given) or is_nested(target):
        return source == "null" or given == target
    numbers = ("integer", "float", "decimal", "boolean")
    return (
        source in (goal, "null")
        or (source in numbers and goal in numbers)
        or (goal == "string" and source != "interval")
        or (source == "string" and goal != "interval")
        or {source, goal} == {"date", "timestamp"}
    )
