"""What tells the rows of a relation apart, as columns.

Law: at every instant no two rows of a relation agree in all identity columns. Identity columns are values: numbers of
base rows, keys of groups, columns of a set. They do not change when a query is restored.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.cql import OuterJoin, QueryBody, SetOperation, Source, Subquery
from penstock.errors import UnsupportedError
from penstock.expr import HIDDEN, INT, ROW_NUMBER, Column, Expr

Columns = tuple[tuple[str, pa.DataType], ...]
SIDE = f"{HIDDEN}side"
"""The identity column of a UNION ALL or full join that says which side a row is of."""


def list_source_identity(source: Source) -> Columns:
    """The identity columns of a FROM item."""
    if isinstance(source.relation, Subquery):
        return list_identity(source.relation.body)
    return ((ROW_NUMBER, INT),)


def list_identity(body: QueryBody) -> Columns:
    """The identity columns of the answer of a body; those of a set are its columns."""
    match body:
        case OuterJoin():
            sides = (body.left,) if body.kind in ("semi", "anti") else (body.left, body.right)
            # Of a full join, rows of either side without a partner can have the same identity: all NULL.
            return (*(((SIDE, INT),) if body.kind == "full" else ()), *name_identities(sides))
        case SetOperation():
            if body.kind == "except":
                return _list_columns(body)
            return ((SIDE, INT), *(column for side in (0, 1) for column in name_side(body, side)))
    if body.sequence is not None:
        message = "the rows of SEQ cannot be told apart; write CREATE STREAM ... AS with the sequence and join that"
        raise UnsupportedError("SEQUENCE_IN_OUTER_JOIN", message)
    if body.distinct:
        return _list_columns(body)
    if body.group_by is not None:
        # A row that replaces another one of its group has other values.
        keys = ((f"{HIDDEN}key {place}", key.type) for place, key in enumerate(body.group_by))
        return (*keys, *_list_columns(body))
    return name_identities(body.sources)


def _list_columns(body: QueryBody) -> Columns:
    return tuple((item.name, item.expr.type) for item in body.items)


def name_identities(sources: tuple[Source, ...]) -> Columns:
    """The identity columns of several FROM items, with names that are unique."""
    return tuple(
        (_place(number, name), type_)
        for number, source in enumerate(sources)
        for name, type_ in list_source_identity(source)
    )


def read_identities(sources: tuple[Source, ...]) -> tuple[tuple[str, Expr], ...]:
    """As `name_identities`, with the expressions that read them."""
    return tuple(
        (_place(number, name), Column(source.alias, name, type_))
        for number, source in enumerate(sources)
        for name, type_ in list_source_identity(source)
    )


def name_side(body: SetOperation, side: int) -> Columns:
    """The identity columns of one side of a UNION ALL, as the union names them."""
    below = list_identity(body.right if side else body.left)
    return tuple((_place(side, name), type_) for name, type_ in below)


def _place(number: int, name: str) -> str:
    return f"{HIDDEN}{number}{name}"
