"""A table of PostgreSQL. Tasks copy rows into a staging table; the driver moves them, one transaction per micro-batch.

Law: after the commit of a micro-batch the table has its rows once, whatever attempts, retries and restarts there were.
- A task copies its rows under the token of its attempt. The staging table is not logged: if a crash of the server
  empties it, the number of rows is wrong, the commit fails, and the micro-batch is repeated.
- One transaction writes the number of the micro-batch to the ledger `penstock_batches`, moves the rows of the attempts
  that count, and empties the staging table. A micro-batch that the ledger has is not written again.
- Append: rows are inserted as they are. With a `key`, the changes of EMIT CHANGES are applied: rows and their negations
  of one micro-batch cancel out, a row that left is deleted if the table still has exactly it, and a row that entered
  replaces the row of its key. So the order of cells does not matter.
While the server is away, tasks and driver try again for `retry` seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.cql import Connector, has_open_password
from penstock.errors import DataError, QueryError
from penstock.spark.postgres import (
    PostgresTable,
    compose,
    copy_rows,
    define_columns,
    import_psycopg,
    list_columns,
    quote,
)
from penstock.spark.sinks.protocol import Attempt, TaskSink

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

RETRY_SECONDS = 120.0
_LEDGER = "penstock_batches"
_OP, _TIME = "_op", "_ts"
_OWN_COLUMNS = pa.schema([("_penstock_batch", pa.int64()), ("_penstock_cell", pa.int32()),
                          ("_penstock_token", pa.string()), ("_penstock_row", pa.int64())])  # fmt: skip


class PostgresSink(TaskSink):
    """A table that tasks write through a staging table."""

    def __init__(
        self, table: PostgresTable, key: Sequence[str] = (), *, create: bool = False, retry: float = RETRY_SECONDS
    ) -> None:
        self._table = table
        self._key = tuple(key)
        self._create = create
        self._retry = retry
        self._output = ""
        self._staging = ""
        self._schema = pa.schema([])
        import_psycopg()

    def __str__(self) -> str:
        return f"{self._table}, {'upserted by ' + ', '.join(self._key) if self._key else 'appended'}"

    @property
    def connector(self) -> Connector | None:
        """None if the password is written out: a checkpoint must not have it."""
        options = dict(self._table.options)
        if has_open_password(options):
            return None
        own = {"table": self._table.name, "key": ", ".join(self._key), "create": str(self._create).lower(),
               "retry": str(self._retry)}  # fmt: skip
        return Connector("postgres", tuple((options | own).items()))

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
        batches = list(rows)

        def copy(connection: Connection) -> int:
            return copy_rows(connection, self._table.name_neighbour(self._staging), _mark_rows(batches, attempt))

        return {"token": attempt.token, "rows": self._table.retry(self._retry, copy)}

    # ── the driver ───────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, run: str, name: str, schema: pa.Schema) -> None:
        self._output = f"{run}/{name}"
        self._staging = f"penstock_staging_{hashlib.sha256(self._output.encode()).hexdigest()[:16]}"
        self._schema = schema
        self._check_key(name)
        psycopg = import_psycopg()
        with self._table.connect() as connection:
            self._create_tables(connection)
            self._check_columns(connection)
            try:
                connection.execute(compose("EXPLAIN {insert}", insert=self._build_insert()), [0, []])
            except psycopg.Error as error:
                said = str(error).strip().splitlines()[0]
                message = f"{self._table} does not fit the results of {name}: {said}; {self._describe_remedy()}"
                raise DataError("SINK_SCHEMA", message) from None

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        self._table.retry(self._retry, lambda connection: self._move_rows(connection, batch, messages))

    def _move_rows(self, connection: Connection, batch: int, messages: Sequence[Any]) -> None:
        ledger, staging = self._table.name_neighbour(_LEDGER), self._table.name_neighbour(self._staging)
        claimed = connection.execute(
            compose(
                "INSERT INTO {ledger} AS known (output, batch) VALUES (%s, %s) ON CONFLICT (output) DO UPDATE "
                "SET batch = EXCLUDED.batch, committed = now() WHERE known.batch < EXCLUDED.batch RETURNING batch",
                ledger=ledger,
            ),
            [self._output, batch],
        ).fetchone()
        if claimed is not None and messages:
            tokens = [message["token"] for message in messages]
            self._check_staged(connection, batch, tokens, sum(message["rows"] for message in messages))
            if self._key:
                self._apply_changes(connection, batch, tokens)
            else:
                connection.execute(self._build_insert(), [batch, tokens])
        connection.execute(compose("DELETE FROM {staging} WHERE _penstock_batch <= %s", staging=staging), [batch])

    def _check_staged(self, connection: Connection, batch: int, tokens: list[str], rows: int) -> None:
        text = "SELECT count(*) FROM {staging} WHERE _penstock_batch = %s AND _penstock_token = ANY(%s::text[])"
        staging = self._table.name_neighbour(self._staging)
        found = connection.execute(compose(text, staging=staging), [batch, tokens]).fetchone()
        if found is None or found[0] != rows:
            message = (
                f"{self._table}: the staging table has {found and found[0]} of {rows} rows of micro-batch {batch}; "
                "the server has probably crashed. Start again: the micro-batch is repeated, and nothing is lost"
            )
            raise DataError("SINK_STAGING_LOST", message)

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _columns(self) -> list[str]:
        """The columns of the table that this sink writes."""
        return [name for name in self._schema.names if not (self._key and name == _OP)]

    @property
    def _values(self) -> list[str]:
        """The columns by which rows of a relation are told apart: the time of a change is not one."""
        return [name for name in self._schema.names if name not in (_OP, _TIME)]

    def _build_insert(self) -> Composable:
        return compose(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} "
            "WHERE _penstock_batch = %s AND _penstock_token = ANY(%s::text[]) ORDER BY _penstock_cell, _penstock_row",
            table=self._table.quoted,
            columns=self._columns,
            staging=self._table.name_neighbour(self._staging),
        )

    def _apply_changes(self, connection: Connection, batch: int, tokens: list[str]) -> None:
        """Apply the net changes of a micro-batch."""
        connection.execute("DROP TABLE IF EXISTS pg_temp.penstock_net")
        connection.execute(
            compose(
                "CREATE TEMP TABLE penstock_net ON COMMIT DROP AS SELECT {values}, max(_ts) AS _ts, "
                "sum(CASE _op WHEN '+' THEN 1 ELSE -1 END) AS _net FROM {staging} "
                "WHERE _penstock_batch = %s AND _penstock_token = ANY(%s::text[]) GROUP BY {values}",
                values=self._values,
                staging=self._table.name_neighbour(self._staging),
            ),
            [batch, tokens],
        )
        for keys_match in (_join_by("=", self._key), _join_by("IS NOT DISTINCT FROM", self._key, nulls=True)):
            statement = compose(
                "DELETE FROM {table} AS t USING penstock_net AS n WHERE n._net < 0 AND {keys} AND {same}",
                table=self._table.quoted, keys=keys_match, same=_join_by("IS NOT DISTINCT FROM", self._values),
            )  # fmt: skip
            connection.execute(statement)
        self._check_unique(connection)
        changed = [name for name in self._columns if name not in self._key]
        connection.execute(
            compose(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM penstock_net WHERE _net > 0 "
                "ON CONFLICT ({key}) DO UPDATE SET {sets}",
                table=self._table.quoted,
                columns=self._columns,
                key=list(self._key),
                sets=_set_columns(changed),
            )
        )

    def _check_unique(self, connection: Connection) -> None:
        text = "SELECT {key} FROM penstock_net WHERE _net > 0 GROUP BY {key} HAVING sum(_net) > 1 LIMIT 1"
        double = connection.execute(compose(text, key=list(self._key))).fetchone()
        if double is not None:
            message = (
                f"{self._table}: the answer has several rows with the key {', '.join(map(str, double))}; give `key` "
                "the columns that tell its rows apart, such as those of GROUP BY"
            )
            raise DataError("SINK_KEY_NOT_UNIQUE", message)

    # ── checks and definitions ───────────────────────────────────────────────────────────────────────────────────

    def _check_key(self, query: str) -> None:
        unknown = [name for name in self._key if name not in self._values]
        if unknown:
            message = f"{query} has no column {', '.join(unknown)} for the key; it has {', '.join(self._values)}"
            raise QueryError("SINK_KEY", message)
        if self._key and _OP not in self._schema.names:
            message = f"a sink with a key applies changes; write EMIT CHANGES at the end of {query}, or remove the key"
            raise QueryError("SINK_KEY", message)

    def _create_tables(self, connection: Connection) -> None:
        ledger, staging = self._table.name_neighbour(_LEDGER), self._table.name_neighbour(self._staging)
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('penstock'))")  # two runs create one table once
        connection.execute("SET LOCAL client_min_messages TO warning")
        connection.execute(
            compose(
                "CREATE TABLE IF NOT EXISTS {ledger} (output text PRIMARY KEY, batch bigint NOT NULL, "
                "committed timestamptz NOT NULL DEFAULT now())",
                ledger=ledger,
            )
        )
        connection.execute(compose("DROP TABLE IF EXISTS {staging}", staging=staging))
        columns = define_columns(pa.schema([*_OWN_COLUMNS, *self._schema]))
        connection.execute(compose("CREATE UNLOGGED TABLE {staging} ({columns})", staging=staging, columns=columns))
        if self._create and not list_columns(connection, self._table):
            shown = pa.schema([field for field in self._schema if field.name in self._columns])
            text = "CREATE TABLE {table} ({columns})"
            connection.execute(compose(text, table=self._table.quoted, columns=define_columns(shown)))
            if self._key:
                nulls = " NULLS NOT DISTINCT" if connection.info.server_version >= 150000 else ""
                text = f"CREATE UNIQUE INDEX ON {{table}} ({{key}}){nulls}"
                connection.execute(compose(text, table=self._table.quoted, key=list(self._key)))

    def _check_columns(self, connection: Connection) -> None:
        found = list_columns(connection, self._table)
        missing = [name for name in self._columns if name not in found]
        if not found:
            raise DataError("SINK_TABLE_MISSING", f"there is no {self._table}; {self._describe_remedy()}")
        if missing:
            message = f"{self._table} has no column {', '.join(missing)}; it has {', '.join(found)}"
            raise DataError("SINK_SCHEMA", f"{message}; {self._describe_remedy()}")

    def _describe_remedy(self) -> str:
        if self._create:
            return "name another table, which is then created"
        return "change the SELECT or the table, or let it be created (create=True; OPTIONS (create true))"


def _mark_rows(batches: Sequence[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    """The rows with the micro-batch, the cell, the attempt and their order."""
    first = 0
    for batch in batches:
        size = batch.num_rows
        own = [
            pa.repeat(pa.scalar(attempt.batch, pa.int64()), size), pa.repeat(pa.scalar(attempt.cell, pa.int32()), size),
            pa.repeat(pa.scalar(attempt.token), size), pa.array(range(first, first + size), pa.int64()),
        ]  # fmt: skip
        yield pa.RecordBatch.from_arrays([*own, *batch.columns], schema=pa.schema([*_OWN_COLUMNS, *batch.schema]))
        first += size


def _join_by(operator: str, names: Sequence[str], *, nulls: bool = False) -> Composable:
    """t and n agree on columns. With `nulls`: and one of them is NULL."""
    from psycopg.sql import SQL  # noqa: PLC0415

    each = SQL(" AND ").join(compose("t.{name} " + operator + " n.{name}", name=quote(name)) for name in names)
    if not nulls:
        return each
    return each + SQL(" AND (") + SQL(" OR ").join(compose("n.{n} IS NULL", n=quote(name)) for name in names) + SQL(")")


def _set_columns(names: Sequence[str]) -> Composable:
    from psycopg.sql import SQL  # noqa: PLC0415

    return SQL(", ").join(compose("{name} = EXCLUDED.{name}", name=quote(name)) for name in names)
