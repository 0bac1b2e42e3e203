"""The error classes. The class of an error says where the cause is: query, data, limits, or Penstock itself.

Every error has a `condition` (UPPER_SNAKE, stable, for programs), `parameters`, and a message that says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class PenstockError(Exception):
    """The base class of all errors that Penstock raises."""

    def __init__(self, condition: str, message: str, **parameters: object) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.parameters = parameters


class QueryError(PenstockError):
    """The query text, the plan string or an argument is wrong. Fix: change the call."""


class DataError(PenstockError):
    """The data do not match their declaration. Fix: change the data or the declaration."""


class UnsupportedError(PenstockError):
    """The request is valid, but this version does not support it."""


class ResourceError(PenstockError):
    """A configured limit is reached, or a resource is not available."""


class InternalError(PenstockError):
    """An invariant is broken. Please report it with the seed or the input."""


class PenstockWarning(UserWarning):
    """A query, or the state of an engine, is valid but seldom intended. The message has a condition and a remedy.

    Filter it with Python's `warnings` module, for example `warnings.simplefilter("ignore", PenstockWarning)`.
    """


def require_known(value: object, options: Sequence[str], what: str) -> None:
    """Raise a `QueryError` that lists the options if the value is not one of them."""
    if value not in options:
        raise QueryError("UNKNOWN_OPTION", f"unknown {what} {value!r}; known: {', '.join(options)}")
