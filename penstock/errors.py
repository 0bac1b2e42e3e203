"""The error classes. The class of an error says where the cause is: query, data, limits, or Penstock itself.

Every error has a `condition` (UPPER_SNAKE, stable, for programs), `parameters`, and a message that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, isfunction, signature
from typing import Any, TypeVar


class PenstockError(Exception):
    """The base class of all errors that Penstock raises."""

    def __init__(self, condition: str, message: str, **parameters: object) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message
        self.parameters = parameters


class QueryError(PenstockError):
    """The query text, the plan string or an argument is wrong. Fix: change the call."""


class ArgumentError(QueryError, TypeError):
    """A call has an argument that the function does not take."""


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


T = TypeVar("T")


def name_arguments(cls: type[T]) -> type[T]:
    """A class decorator: an unknown keyword of a public method is refused with the names of those that exist."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and (name == "__init__" or not name.startswith("_")):
            kinds = {parameter.kind for parameter in signature(method).parameters.values()}
            if Parameter.VAR_KEYWORD not in kinds:
                setattr(cls, name, _check_keywords(method))
    return cls


def _check_keywords(method: Callable[..., Any]) -> Callable[..., Any]:
    known = tuple(signature(method).parameters)[1:]

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                raise _make_argument_error(method.__name__, name, known)
        return method(self, *args, **kwargs)

    return call


def _make_argument_error(method: str, name: str, known: Sequence[str]) -> ArgumentError:
    """Names are compared without case and underscores: checkpoint_location is checkpointLocation."""
    spelling = {each.casefold().replace("_", ""): each for each in known}
    near = get_close_matches(name.casefold().replace("_", ""), spelling, n=1)
    hint = f"; did you mean {spelling[near[0]]}?" if near else ""
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    shown = "the constructor" if method == "__init__" else method
    return ArgumentError("UNKNOWN_ARGUMENT", f"{shown} has no argument {name}{hint} ({takes})", argument=name)


def require_known(value: object, options: Sequence[str], what: str) -> None:
    """Raise a `QueryError` that lists the options if the value is not one of them."""
    if value not in options:
        raise QueryError("UNKNOWN_OPTION", f"unknown {what} {value!r}; known: {', '.join(options)}")
