"""Errors of a failed run as errors of this package: Spark wraps the errors of its workers in long texts."""

from __future__ import annotations

import re
from collections.abc import Collection

from penstock import errors
from penstock.spark.driver.kafka_failures import explain_kafka_failure
from penstock.spark.environment import explain_worker_failure

_PENSTOCK_ERROR = re.compile(r"(?:penstock\.errors|penstock\.cql\.errors)\.(\w+): \[([A-Z_]+)\] (.+)")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_SPARK_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+)")
_READ_ERROR = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] (.+)")
_WRAPPER_CONDITIONS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")
_SQLSTATE = re.compile(r" SQLSTATE: \w+.*")
_RETRY_HINT = "fix the cause and start again: no data is lost"


def translate_error(error: Exception, topics: Collection[str] = ()) -> errors.PenstockError:
    """The error of this package for a failed streaming query, which reads these topics of Kafka."""
    text = str(error)
    worker = explain_worker_failure(text)
    ours, unread, kafka = _PENSTOCK_ERROR.findall(text), _READ_ERROR.search(text), explain_kafka_failure(text, topics)
    if worker is not None:
        found: errors.PenstockError = worker
    elif ours:
        name, condition, message = ours[-1]
        kind = getattr(errors, name, errors.PenstockError)
        found = kind(condition, message)
    elif kafka is not None:
        found = kafka
    elif unread:
        found = errors.DataError("SOURCE_UNREADABLE", f"{_SQLSTATE.sub('', unread[1]).rstrip('. ')}; {_RETRY_HINT}")
    else:
        found = errors.PenstockError("RUN_FAILED", f"{_extract_message(text)}; {_RETRY_HINT}")
    found.__cause__ = error
    return found


def _extract_message(text: str) -> str:
    """The innermost message: that of a Python error if there is one, else of a Spark condition, else the first line."""
    raised = [(name, message) for name, message in _PYTHON_ERROR.findall(text) if name != "Py4JJavaError"]
    if raised:
        name, message = raised[-1]
        return f"{name}: {message.strip()}"
    conditions = [(name, said) for name, said in _SPARK_CONDITION.findall(text) if name not in _WRAPPER_CONDITIONS]
    if conditions:
        name, said = conditions[-1]
        return f"{name}: {said.strip()}"
    first = text.strip().splitlines()[0]
    return _SQLSTATE.sub("", first.rpartition("terminated with exception: ")[2])
