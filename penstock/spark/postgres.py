"""PostgreSQL: connections, names, and rows by COPY.

Options that are not Penstock's own go to libpq as they are (host, port, dbname, user, password, sslmode, sslrootcert
and others), so TLS is configured as for every client. Names of tables and columns are always quoted, values are always
parameters or COPY data. Rows pass through COPY as CSV that Arrow writes and reads: there is no loop over rows.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from penstock.cql import redact, resolve_secrets
from penstock.errors import DataError, QueryError, ResourceError
from penstock.expr import is_nested
from penstock.spark.postgres_values import name_type, parse_rows, write_csv
from penstock.spark.text_payloads import check_text_type
from penstock.spark.waits import watch_server

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r'(?:"(?:[^"]|"")+"|[^."]+)(?:\.(?:"(?:[^"]|"")+"|[^."]+))?')
_PART = re.compile(r'"(?:[^"]|"")+"|[^."]+')
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
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
        """Do work that writes, in a transaction. While the server is away it is tried again, for some seconds."""
        psycopg = import_psycopg()
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with watch_server(str(self)) as begin_wait:
            while True:
                try:
                    with self.connect() as connection:
                        return work(connection)
                except (psycopg.DataError, psycopg.IntegrityError) as error:
                    message = f"{self} does not take a row: {_get_first_line(error)}; change the SELECT or the table"
                    raise DataError("SINK_VALUE", message) from None
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


def define_columns(schema: pa.Schema) -> Composable:
    """Column definitions of CREATE TABLE."""
    from psycopg.sql import SQL  # noqa: PLC0415

    definitions = [quote(field.name) + SQL(" " + name_type(field.type)) for field in schema]
    return SQL(", ").join(definitions)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_rows(connection: Connection, table: Composable, rows: Iterable[pa.RecordBatch]) -> int:
    """Append batches to a table, by COPY."""
    count = 0
    statement = None
    with connection.cursor() as cursor:
        for batch in rows:
            if statement is None:
                columns = list(batch.schema.names)
                statement = compose("COPY {table} ({columns}) FROM STDIN (FORMAT csv)", table=table, columns=columns)
            with cursor.copy(statement) as copy:
                copy.write(write_csv(batch))
            count += batch.num_rows
    return count


def read_rows(table: PostgresTable, schema: pa.Schema) -> pa.Table:
    """The rows of a table, with the columns and types of a schema."""
    psycopg = import_psycopg()
    file = io.BytesIO()
    for field in schema:
        check_text_type(field.type, "PostgreSQL", field.name)
    statement = compose(
        "COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT csv)", columns=_select(schema), table=table.quoted
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


def _select(schema: pa.Schema) -> Composable:
    """The columns of a query; arrays and structs are selected as JSON."""
    from psycopg.sql import SQL  # noqa: PLC0415

    forms = {True: "to_jsonb({name})::text", False: "{name}"}
    return SQL(", ").join(compose(forms[is_nested(field.type)], name=quote(field.name)) for field in schema)


def _get_first_line(error: Exception) -> str:
    return (redact(str(error)).strip().splitlines() or [type(error).__name__])[0]


def list_columns(connection: Connection, table: PostgresTable) -> Sequence[str]:
    """The columns of a table; none if there is no such table."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        [table.quoted.as_string(connection)],
    )
    return [name for (name,) in found]
