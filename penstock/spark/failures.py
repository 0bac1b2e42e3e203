"""Why a run failed, in Penstock's words: Spark wraps what its workers raise in long texts."""

from __future__ import annotations

import re

from penstock import errors

_OURS = re.compile(r"(?:penstock\.errors|penstock\.cql\.errors)\.(\w+): \[([A-Z_]+)\] (.+)")
_LAST = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_SPARK = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+)")


def translated(error: Exception) -> errors.PenstockError:
    """The error of the taxonomy for a failed streaming query."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, condition, message = ours[-1]
        kind = getattr(errors, name, errors.PenstockError)
        found: errors.PenstockError = kind(condition, message)
    else:
        found = errors.PenstockError("RUN_FAILED", f"{_said(text)}; mend the cause and start again: nothing is lost")
    found.__cause__ = error
    return found


def _said(text: str) -> str:
    """The innermost thing that was said: a Python error if there is one, else Spark's condition."""
    raised = _LAST.findall(text)
    if raised:
        name, message = raised[-1]
        return f"{name}: {message.strip()}"
    conditions = [(name, said) for name, said in _SPARK.findall(text) if name != "STREAM_FAILED"]
    if conditions:
        name, said = conditions[-1]
        return f"{name}: {said.strip()}"
    return text.strip().splitlines()[0]
