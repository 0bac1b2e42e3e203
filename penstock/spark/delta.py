"""Tables of Delta Lake, by the package deltalake.

No jar is needed, so this works with every Spark; Delta's own connector has no release for Spark 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.cql import redact, resolve_secrets
from penstock.errors import DataError, ResourceError
from penstock.spark.lake_columns import cast_rows, check_columns

_WRITTEN_FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "domainMetadata",
                     "generatedColumns", "identityColumns", "invariants", "timestampNtz"}  # fmt: skip
"""Features that a table may have; whether it uses them is looked up in its columns and properties."""
_COMPUTED = ("delta.generationExpression", "delta.identity", "delta.invariants")


def open_table(path: str, options: Mapping[str, str], version: int | None = None) -> Any:
    """A table as it is now, or as it was at a version."""
    deltalake = import_deltalake()
    try:
        return deltalake.DeltaTable(path, version=version, storage_options=resolve_secrets(dict(options)) or None)
    except (OSError, deltalake.exceptions.DeltaError) as error:
        if version is not None:
            message = f"Delta table {path} no longer has its version {version}: {redact(str(error))}"
            raise DataError("SOURCE_VERSION_LOST", f"{message}; start with a new checkpoint") from None
        message = f"Delta table {path} cannot be read: {redact(str(error))}; check path"
        raise DataError("SOURCE_UNREADABLE", message) from None


def list_obstacles(table: Any, *, merged: bool) -> list[str]:
    """What a table has that files of tasks would not obey, or with `merged` the MERGE of deltalake."""
    metadata, protocol = table.metadata(), table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - _WRITTEN_FEATURES
    found = [f"the feature {name}" for name in sorted(features)]
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        found.append("column mapping")
    for field in table.schema().fields:
        if not field.nullable:
            found.append(f"NOT NULL for {field.name}")
        found += [f"{name} for {field.name}" for name in field.metadata if name.startswith(_COMPUTED)]
    if merged:
        found += ["delta.appendOnly"] * (metadata.configuration.get("delta.appendOnly") == "true")
    else:
        found += [f"the constraint {name}" for name in metadata.configuration if name.startswith("delta.constraints.")]
        found += [f"a partition by {name}" for name in metadata.partition_columns]
    return found


def read_schema(path: str, options: Mapping[str, str]) -> pa.Schema:
    """The columns of a table. A table with features that are not read is refused."""
    table = open_table(path, options)
    features = sorted(set(table.protocol().reader_features or ()) - {"timestampNtz"})
    if features or table.protocol().min_reader_version == 2:
        named = ", ".join(features) or "columnMapping"
        message = f"Delta table {path} has the features {named}, which are not read"
        raise DataError("SOURCE_FEATURES", f"{message}; read it with Delta's connector for Spark and pipe.stream")
    return pa.schema(table.schema().to_arrow())


def read_rows(path: str, options: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    """The present rows of a table, with some of its columns."""
    found = read_schema(path, options)
    check_columns(f"Delta table {path}", found, schema)
    table = open_table(path, options)
    return cast_rows(f"Delta table {path}", table.to_pyarrow_table(columns=schema.names), schema)


def import_deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional extra
        import deltalake.exceptions  # noqa: PLC0415
        import deltalake.transaction  # noqa: PLC0415
    except ImportError:
        message = "Delta tables need the package deltalake: pip install 'penstock[delta]'"
        raise ResourceError("PACKAGE_MISSING", message, package="deltalake") from None
    return deltalake
