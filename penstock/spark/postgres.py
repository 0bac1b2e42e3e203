"""PostgreSQL: connections, names, types, and rows by COPY.

Options that are not Penstock's own go to libpq as they are (host, port, dbname, user, password, sslmode, sslrootcert
and others), so TLS is configured as for every client. Names of tables and columns are always quoted, values are always
parameters or COPY data. Rows pass through COPY as CSV that Arrow writes and reads: there is no loop over rows.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from penstock.cql import format_type, redact, resolve_secrets
from penstock.errors import DataError, QueryError, ResourceError, UnsupportedError
from penstock.spark.waits import watch_server

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r'(?:"(?:[^"]|"")+"|[^."]+)(?:\.(?:"(?:[^"]|"")+"|[^."]+))?')
_PART = re.compile(r'"(?:[^"]|"")+"|[^."]+')
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.date32(): "date",
}
T = TypeVar("T")


@dataclass(frozen=True)
class PostgresTable:
    """A table: the options of its connection, with references to secrets, and its name."""

    options: tuple[tuple[str, str], ...]
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise QueryError("BAD_TABLE_NAME", f"a table is named table or schema.table, not {self.name!r}")

    def __str__(self) -> str:
        given = dict(self.options)
        return f"table {self.name} of PostgreSQL at {given.get('host', 'localhost')}:{given.get('port', '5432')}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the schema, if there is one, and of the table."""
        found = _PART.findall(self.name)
        return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in found)

    def name_neighbour(self, name: str) -> Composable:
        """The quoted name of another table in the schema of this one."""
        return quote(*self.parts[:-1], name)

    @property
    def quoted(self) -> Composable:
        return quote(*self.parts)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """A connection with one transaction: committed at the end, rolled back by an error."""
        psycopg = import_psycopg()
        given = {"application_name": "penstock", "connect_timeout": "10", **dict(self.options)}
        try:
            connection = psycopg.connect(**resolve_secrets(given))
        except psycopg.ProgrammingError as error:
            raise QueryError("POSTGRES_OPTIONS", f"{self}: {redact(str(error)).strip()}") from None
        except psycopg.OperationalError as error:
            raise UnreachableError(f"{self} cannot be reached: {redact(str(error)).strip()}") from None
        with connection:
            yield connection

    def retry(self, seconds: float, work: Callable[[Connection], T]) -> T:
        """Do work in a transaction. While the server is away it is tried again, for some seconds."""
        psycopg = import_psycopg()
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with watch_server(str(self)) as begin_wait:
            while True:
                try:
                    with self.connect() as connection:
                        return work(connection)
                except (UnreachableError, psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if time.monotonic() + pause > end:
                        raise
                    _LOG.warning("%s: %s; trying again", self, redact(str(error)).strip())
                begin_wait()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)


class UnreachableError(ResourceError):
    """The server does not answer, or refuses the user."""

    def __init__(self, message: str) -> None:
        super().__init__("POSTGRES_UNREACHABLE", f"{message}; check host, port, dbname, user and password")


def import_psycopg() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an optional extra
    except ImportError:
        message = "PostgreSQL needs the package psycopg: pip install 'penstock[postgres]'"
        raise ResourceError("PACKAGE_MISSING", message, package="psycopg") from None
    return psycopg


def quote(*parts: str) -> Composable:
    from psycopg.sql import Identifier  # noqa: PLC0415

    return Identifier(*parts)


def compose(text: str, **parts: Any) -> Composable:
    """A statement with quoted parts; a list of names is joined by commas."""
    from psycopg.sql import SQL  # noqa: PLC0415

    joined = {
        name: SQL(", ").join(map(quote, part)) if isinstance(part, list | tuple) else part
        for name, part in parts.items()
    }
    return SQL(text).format(**joined)


def name_type(kind: pa.DataType) -> str:
    """The type of PostgreSQL for a column."""
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if kind not in _TYPES:
        raise UnsupportedError("POSTGRES_TYPE", f"PostgreSQL has no type for {format_type(kind)}; CAST the column")
    return _TYPES[kind]


def define_columns(schema: pa.Schema) -> Composable:
    """Column definitions of CREATE TABLE."""
    from psycopg.sql import SQL  # noqa: PLC0415

    definitions = [quote(field.name) + SQL(" " + name_type(field.type)) for field in schema]
    return SQL(", ").join(definitions)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_rows(connection: Connection, table: Composable, rows: Iterable[pa.RecordBatch]) -> int:
    """Append batches to a table, by COPY. NULL is an empty field, an empty text is a quoted one."""
    count = 0
    statement = None
    with connection.cursor() as cursor:
        for batch in rows:
            if statement is None:
                columns = list(batch.schema.names)
                statement = compose("COPY {table} ({columns}) FROM STDIN (FORMAT csv)", table=table, columns=columns)
            file = io.BytesIO()
            pa_csv.write_csv(batch, file, pa_csv.WriteOptions(include_header=False))
            with cursor.copy(statement) as copy:
                copy.write(file.getbuffer())
            count += batch.num_rows
    return count


def read_rows(table: PostgresTable, schema: pa.Schema) -> pa.Table:
    """The rows of a table, with the columns and types of a schema."""
    psycopg = import_psycopg()
    file = io.BytesIO()
    names = list(schema.names)
    statement = compose(
        "COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT csv)", columns=names, table=table.quoted
    )
    try:
        with table.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET TIME ZONE 'UTC'; SET DATESTYLE TO 'ISO'")
            with cursor.copy(statement) as copy:
                for block in copy:
                    file.write(block)
    except psycopg.Error as error:
        raise DataError("SOURCE_UNREADABLE", f"{table} cannot be read: {_get_first_line(error)}") from None
    return parse_rows(file.getvalue(), schema, str(table))


def parse_rows(data: bytes, schema: pa.Schema, what: str) -> pa.Table:
    """Rows of COPY … TO STDOUT as a table. PostgreSQL writes booleans as t and f."""
    if not data:
        return schema.empty_table()
    # Arrow reads no zone of hours alone, such as +00: these texts are converted below
    texts = {field.name: pa.string() if _is_zoned(field.type) else field.type for field in schema}
    options = pa_csv.ConvertOptions(
        column_types=texts, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        true_values=["t"], false_values=["f"],
    )  # fmt: skip
    try:
        table = pa_csv.read_csv(
            io.BytesIO(data), pa_csv.ReadOptions(column_names=schema.names),
            pa_csv.ParseOptions(newlines_in_values=True), options,
        )  # fmt: skip
        columns = [_parse_column(table.column(field.name), field.type) for field in schema]
        return pa.table(columns, schema=schema)
    except pa.ArrowInvalid as error:
        message = f"{what} does not have the declared types: {error}; change the declaration"
        raise DataError("SOURCE_UNREADABLE", message) from None


def _parse_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not _is_zoned(kind):
        return column
    import pyarrow.compute as pc  # noqa: PLC0415

    plain = pc.replace_substring_regex(column, r"\+00$", "").cast(pa.timestamp("us"))
    return pc.assume_timezone(plain, "UTC").cast(kind)


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _get_first_line(error: Exception) -> str:
    return (redact(str(error)).strip().splitlines() or [type(error).__name__])[0]


def list_columns(connection: Connection, table: PostgresTable) -> Sequence[str]:
    """The columns of a table; none if there is no such table."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        [table.quoted.as_string(connection)],
    )
    return [name for (name,) in found]
