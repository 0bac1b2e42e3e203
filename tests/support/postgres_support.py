"""PostgreSQL for tests: a schema of its own for each test."""

from __future__ import annotations

import random
import uuid
from typing import Any

import psycopg
import pyarrow as pa
from services import require_service

import penstock as ps


class Database:
    """A schema of the test server. Its tables are removed with it."""

    def __init__(self) -> None:
        entry = require_service("postgres")
        self.password = entry["password"]
        self.certificate = entry.get("certificate")
        self.options = {"host": "127.0.0.1", "port": str(entry["port"]), "user": entry["user"], "dbname": "postgres"}
        self.schema = f"t_{uuid.uuid4().hex[:12]}"
        self.execute(f'CREATE SCHEMA "{self.schema}"')

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(**self.options, password=self.password) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def vacuum(self, *tables: str) -> None:
        with psycopg.connect(**self.options, password=self.password, autocommit=True) as connection:
            for table in tables:
                connection.execute(f'VACUUM FULL "{self.schema}"."{table}"')

    def read(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.execute(f'SELECT {columns} FROM "{self.schema}"."{table}"'), key=repr)

    def sink(self, table: str, **options: Any) -> Any:
        given = {"password": self.password, **self.options, **options}
        return ps.sinks.postgres(f'{self.schema}."{table}"', **given)

    def describe_options(self, variable: str) -> str:
        """The options of the connection for a script, with the password of an environment variable."""
        given = ", ".join(f"{name} '{value}'" for name, value in self.options.items())
        return f"{given}, password secret('{variable}')"

    def drop(self) -> None:
        self.execute(f'DROP SCHEMA "{self.schema}" CASCADE')


def draw_changes(rng: random.Random, relation: dict[int, str | None], time: int) -> list[tuple[Any, ...]]:
    """Change a relation of unique keys at random; the changes as rows of (k, v, _op, _ts), in order."""
    changes: list[tuple[Any, ...]] = []
    for _ in range(rng.randrange(8)):
        key = rng.choice([None, 1, 2, 3, 4])
        if key in relation:
            changes.append((key, relation.pop(key), "-", time))
        if rng.random() < 0.7:
            relation[key] = rng.choice(["x", "y", "", None, 'quote " and, comma\n'])
            changes.append((key, relation[key], "+", time))
        time += 1
    return changes


def as_batches(rows: list[tuple[Any, ...]], schema: pa.Schema) -> list[pa.RecordBatch]:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]
