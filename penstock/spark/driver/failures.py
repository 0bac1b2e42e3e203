"""Why a run failed, in Penstock's words: Spark wraps what its workers raise in long texts."""

from __future__ import annotations

import re

from penstock import errors

_OURS = re.compile(r"(?:penstock\.errors|penstock\.cql\.errors)\.(\w+): \[([A-Z_]+)\] (.+)")
_LAST = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_SPARK = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+)")
_READ = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] (.+)")
_OUTER = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")
_STATE = re.compile(r" SQLSTATE: \w+.*")
_AGAIN = "mend the cause and start again: nothing is lost"


def translated(error: Exception) -> errors.PenstockError:
    """The error of the taxonomy for a failed streaming query."""
    text = str(error)
    ours, unread = _OURS.findall(text), _READ.search(text)
    if ours:
        name, condition, message = ours[-1]
        kind = getattr(errors, name, errors.PenstockError)
        found: errors.PenstockError = kind(condition, message)
    elif unread:
        found = errors.DataError("SOURCE_UNREADABLE", f"{_STATE.sub('', unread[1]).rstrip('. ')}; {_AGAIN}")
    else:
        found = errors.PenstockError("RUN_FAILED", f"{_said(text)}; {_AGAIN}")
    found.__cause__ = error
    return found


def _said(text: str) -> str:
    """The innermost thing that was said: a Python error if there is one, else Spark's condition, else its words."""
    raised = [(name, message) for name, message in _LAST.findall(text) if name != "Py4JJavaError"]
    if raised:
        name, message = raised[-1]
        return f"{name}: {message.strip()}"
    conditions = [(name, said) for name, said in _SPARK.findall(text) if name not in _OUTER]
    if conditions:
        name, said = conditions[-1]
        return f"{name}: {said.strip()}"
    first = text.strip().splitlines()[0]
    return _STATE.sub("", first.rpartition("terminated with exception: ")[2])
