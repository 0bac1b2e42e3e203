"""The error taxonomy: who can mend it decides the class.

Every error has a `condition` (UPPER_SNAKE, stable, meant for programs), `parameters` and a message
that says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class PenstockError(Exception):
    """Base of every error Penstock raises on purpose."""

    def __init__(self, condition: str, message: str, **parameters: object) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.parameters = parameters


class QueryError(PenstockError):
    """The query text, the plan string or an argument is wrong: the user mends it."""


class DataError(PenstockError):
    """The data pushed do not fit their declaration: the producer of the data mends it."""


class UnsupportedError(PenstockError):
    """Well-formed, but this version cannot do it: named, never ignored."""


class ResourceError(PenstockError):
    """A configured limit was reached."""


class InternalError(PenstockError):
    """A broken invariant: please report it with the seed or the input."""


def require_known(value: object, options: Sequence[str], what: str) -> None:
    """Refuse what is none of the options, and name them."""
    if value not in options:
        raise QueryError("UNKNOWN_OPTION", f"unknown {what} {value!r}; known: {', '.join(options)}")
