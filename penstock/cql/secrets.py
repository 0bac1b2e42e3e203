"""Secrets in options: `secret('NAME')` is an environment variable, `secret_file('path')` the content of a file.

A declaration keeps the reference, which may be printed, explained and written to a checkpoint. The value is read where
a connection is made, in the driver and in tasks, and goes nowhere else. `redact` removes from a text the values that
this process has read: drivers of databases may repeat them in errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import QueryError, ResourceError

SECRET_FUNCTIONS = ("secret", "secret_file")
_REFERENCE = re.compile(r"(secret|secret_file)\('((?:[^']|'')+)'\)")
_PASSWORD_NAME = re.compile(
    r"pass(?!file)|pwd|secret|token|jaas|credential|private|signature|keystore\.key|(?:access|account|api|shared).?key",
    re.I,
)
_PASSWORD_VALUE = re.compile(r"://[^/]*@|pass(?:word|wd)?\s*=|BEGIN [A-Z ]*PRIVATE KEY", re.IGNORECASE)
_HIDDEN = "***"
_read_values: set[str] = set()
"""The values that this process has read, for `redact`."""


def secret(name: str) -> str:
    """A reference to an environment variable, for an option of a source or sink."""
    return _build_reference("secret", name)


def secret_file(path: str | Path) -> str:
    """A reference to a file, for an option of a source or sink. A line end at its end is not part of the value."""
    return _build_reference("secret_file", str(path))


def _build_reference(function: str, argument: str) -> str:
    if not isinstance(argument, str) or not argument:
        raise QueryError("BAD_SECRET", f"{function} takes the name of the place of a secret, not {argument!r}")
    escaped = argument.replace("'", "''")
    return f"{function}('{escaped}')"


def is_secret(value: object) -> bool:
    """Whether an option's value is a reference to a secret."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def has_open_password(options: Mapping[str, str]) -> bool:
    """Whether a value that is written out may be a password, by the name of its option or by its form."""
    return any(
        not is_secret(value) and (_PASSWORD_NAME.search(name) or _PASSWORD_VALUE.search(value))
        for name, value in options.items()
    )


def resolve_secret(value: str) -> str:
    """The value of an option: what a reference refers to, and any other value as it is."""
    found = _REFERENCE.fullmatch(value)
    if found is None:
        return value
    place = found[2].replace("''", "'")
    read = _read_variable(place) if found[1] == "secret" else _read_file(place)
    _read_values.add(read)
    return read


def resolve_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Options with the values of their secrets."""
    return {key: resolve_secret(value) for key, value in options.items()}


def redact(text: str) -> str:
    """A text without the values of secrets."""
    for value in sorted(_read_values, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    return text


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        message = (
            f"secret('{name}'): the environment variable {name} is not set in this process. Set it for the driver, and "
            f"for the executors of a cluster with spark.executorEnv.{name}, or use secret_file('path')"
        )
        raise ResourceError("SECRET_MISSING", message, name=name)
    return value


def _read_file(path: str) -> str:
    try:
        value = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        message = f"secret_file('{path}') cannot be read: {said}; the driver and all executors need the file"
        raise ResourceError("SECRET_MISSING", message, path=path) from None
    if not value:
        raise ResourceError("SECRET_MISSING", f"secret_file('{path}') is empty", path=path)
    return value
