"""Declarations of user-defined scalar functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import pyarrow as pa

from penstock.cql import advice
from penstock.cql.types import KNOWN_TYPES, canonicalize_type, to_arrow_type
from penstock.errors import QueryError
from penstock.expr import AGGREGATE_SYNONYMS, NAMED_AGGREGATES, NAMED_FUNCTIONS, UserFunction

BUILT_IN = frozenset(
    {
        *NAMED_AGGREGATES,
        *AGGREGATE_SYNONYMS,
        *NAMED_FUNCTIONS,
        *advice.FUNCTIONS,
        "cast",
        "try_cast",
        "grouping",
        "grouping_id",
    }
)
"""The names that CQL has a meaning for, or an advice."""

FunctionSpec = tuple[Callable[..., Any], str | pa.DataType]
"""A function and the type that it returns."""


def describe_function(name: str, function: Any, returns: str | pa.DataType) -> UserFunction:
    """A user-defined function, if it can be one."""
    if not isinstance(name, str) or not name.isidentifier():
        raise QueryError("BAD_NAME", f"a function's name is a word, not {name!r}")
    if name.casefold() in BUILT_IN:
        raise QueryError("DUPLICATE_NAME", f"{name} is a function of CQL; choose another name", function=name)
    if not callable(function):
        message = f"the function {name} is {function!r}; give a function of Arrow arrays"
        raise QueryError("BAD_FUNCTION", message, function=name)
    return UserFunction(name.casefold(), function, _read_type(name, returns))


def _read_type(name: str, returns: object) -> pa.DataType:
    if isinstance(returns, str):
        return to_arrow_type(returns)
    known = canonicalize_type(returns) if isinstance(returns, pa.DataType) else None
    if known is None:
        message = f"the function {name} returns {returns!r}; give the name of a type, or a pyarrow type: {KNOWN_TYPES}"
        raise QueryError("UNKNOWN_TYPE", message, function=name)
    return known


def add_function(
    functions: MutableMapping[str, UserFunction], aggregates: Mapping[str, type], new: UserFunction
) -> None:
    """Declare a function. The same function may be declared again; a name has one function."""
    if new.name in aggregates or functions.get(new.name, new) != new:
        raise QueryError("DUPLICATE_NAME", f"there is another function {new.name} already", function=new.name)
    functions[new.name] = new


def describe_functions(given: Any) -> dict[str, UserFunction]:
    """The functions of `functions={"f": (f, "double")}`."""
    if not isinstance(given, Mapping):
        raise QueryError("BAD_FUNCTION", f"functions are given as {{name: (function, type)}}, not as {given!r}")
    found: dict[str, UserFunction] = {}
    for name, spec in given.items():
        if not isinstance(spec, tuple) or len(spec) != 2:
            message = f"the function {name} is {spec!r}; give it with its type, as (function, type)"
            raise QueryError("BAD_FUNCTION", message, function=name)
        add_function(found, {}, describe_function(name, *spec))
    return found
