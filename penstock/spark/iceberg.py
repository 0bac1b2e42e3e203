"""Tables of Apache Iceberg, by the package pyiceberg: catalogs, their options and their errors.

No jar is needed, so this works with every Spark; Iceberg's own Spark runtime has no release for Spark 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.cql import is_secret, redact, resolve_secrets
from penstock.errors import DataError, PenstockError, ResourceError, UnsupportedError
from penstock.spark.lake_columns import cast_rows, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT_CATALOG = "default"
_PLAIN_OPTIONS = ("catalog", "type", "warehouse")
"""Options that never have a password in them."""


@dataclass(frozen=True)
class IcebergTable:
    """A table by its name in a catalog.

    `options` are those of pyiceberg, and `catalog`: the name of a catalog, perhaps one of pyiceberg's own settings.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"Iceberg table {self.name}"

    @property
    def has_open_secret(self) -> bool:
        """Whether an option may have a password in it, and is not a reference to a secret."""
        return any(
            not is_secret(value) and ("@" in value if key == "uri" else key not in _PLAIN_OPTIONS)
            for key, value in self.options
        )

    def open_catalog(self) -> Any:
        pyiceberg = import_pyiceberg()
        given = self.resolve_options()
        return pyiceberg.catalog.load_catalog(given.pop("catalog", _DEFAULT_CATALOG), **given)

    def load(self) -> Any:
        """The table as it is now."""
        return self.open_catalog().load_table(self.name)

    def resolve_options(self) -> dict[str, str]:
        """The options with the values of their secrets."""
        return resolve_secrets(dict(self.options))

    def open_files(self, location: str) -> Any:
        """The storage of the table, for a task: it does not ask the catalog."""
        return import_pyiceberg().io.load_file_io(self.resolve_options(), location)

    @contextmanager
    def explain_errors(self, condition: str, what: str) -> Iterator[None]:
        """Errors of pyiceberg and of the catalog's driver, without the values of secrets."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            said = (redact(str(error)).strip().splitlines() or [""])[0]
            message = f"{self} cannot be {what}: {type(error).__name__}: {said}; check table, type, uri and warehouse"
            raise DataError(condition, message) from None


def split_table(options: Mapping[str, str]) -> IcebergTable:
    """The table that options name; the others are those of pyiceberg, whose names are in lower case."""
    given = {key.casefold(): value for key, value in options.items()}
    return IcebergTable(given.pop("table"), tuple(given.items()))


def read_schema(table: IcebergTable) -> pa.Schema:
    """The columns of a table. Texts have Arrow's usual type."""
    with table.explain_errors("SOURCE_UNREADABLE", "read"):
        found = table.load().schema().as_arrow()
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([pa.field(field.name, plain.get(field.type, field.type)) for field in found])


def refuse_parts(what: str, schema: pa.Schema, condition: str) -> None:
    """Refuse arrays and maps of structs: pyiceberg reads those that are NULL as empty ones."""
    found = [field.name for field in schema if _has_array_of_structs(field.type)]
    if found:
        message = f"{what}: pyiceberg does not keep NULL in {', '.join(found)}, an array or a map of structs"
        raise UnsupportedError(condition, f"{message}; leave the column out, or divide it into columns")


def _has_array_of_structs(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        value = kind.item_type if pa.types.is_map(kind) else kind.value_type
        return pa.types.is_struct(value) or _has_array_of_structs(value)
    return pa.types.is_struct(kind) and any(_has_array_of_structs(field.type) for field in kind)


def read_table(table: IcebergTable, schema: pa.Schema) -> pa.Table:
    """The present rows of a table, with some of its columns."""
    check_columns(str(table), read_schema(table), schema)
    refuse_parts(str(table), schema, "SOURCE_FEATURES")
    with table.explain_errors("SOURCE_UNREADABLE", "read"):
        rows = table.load().scan(selected_fields=tuple(schema.names)).to_arrow()
    return cast_rows(str(table), rows, schema)


def import_pyiceberg() -> Any:
    try:
        import pyiceberg  # noqa: PLC0415 - an optional extra
        import pyiceberg.catalog  # noqa: PLC0415
        import pyiceberg.exceptions  # noqa: PLC0415
        import pyiceberg.expressions  # noqa: PLC0415
        import pyiceberg.io  # noqa: PLC0415
    except ImportError:
        message = "Iceberg tables need the package pyiceberg: pip install 'penstock[iceberg]'"
        raise ResourceError("PACKAGE_MISSING", message, package="pyiceberg") from None
    return pyiceberg
