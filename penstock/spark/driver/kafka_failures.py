"""Errors of Kafka's connector and client as errors of this package."""

from __future__ import annotations

import re
from collections.abc import Collection

from penstock.cql import redact
from penstock.errors import DataError, PenstockError, QueryError, ResourceError

_LOST = re.compile(r"KAFKA_DATA_LOSS|[Ss]ome data may have been (?:lost|missed)")
_WHERE = re.compile(r"(?:Reason: )?([^\n]*(?:topic[ -]partition|offset was changed|are gone)[^\n]*)")
_BUILD = re.compile(r"Failed to (?:create new|construct) [Kk]afka ?\w+")
_MISSING = "UnknownTopicOrPartitionException"
_CLIENT = r"org\.apache\.kafka\.common\.(?:errors|config)\."
_SAID = r"Exception: ((?:(?! SQLSTATE)[^\n])+)"
_REFUSED = re.compile(rf"{_CLIENT}(?:Sasl\w*|Ssl\w*|\w*Authentication|\w*Authorization){_SAID}")
_AWAY = re.compile(rf"{_CLIENT}(?:Timeout|Disconnect|Config){_SAID}")


def explain_kafka_failure(text: str, topics: Collection[str]) -> PenstockError | None:
    """The error for a run that failed because of a source of Kafka; None for other failures."""
    if "kafka" not in text.casefold():
        return None
    if found := _BUILD.search(text):
        message = f"{found[0]}: check the kafka.… options of streams, such as the host of kafka.bootstrap.servers"
        return QueryError("KAFKA_OPTIONS", message)
    named = ", ".join(sorted(topics)) or "the streams"
    if _LOST.search(text):
        where = _WHERE.search(text)
        message = (
            f"records were removed from their topic before they were read{': ' + where[1].strip() if where else ''}. "
            "Keep records for longer than a run stands still (retention.ms). To go on without them, add "
            "failOnDataLoss false to the OPTIONS of the stream and start again"
        )
        return DataError("OFFSETS_LOST", message)
    if _MISSING in text:
        message = f"the broker does not have all topics of {named}; correct subscribe or create the topic; start again"
        return DataError("TOPIC_MISSING", message)
    for pattern, what, remedy in (
        (_REFUSED, "refuses the connection", "check user, password and kafka.security options"),
        (_AWAY, "does not answer", "check kafka.bootstrap.servers; when it answers, start again: no data is lost"),
    ):
        if found := pattern.search(text):
            return ResourceError("KAFKA_UNREACHABLE", f"the broker of {named} {what}: {redact(found[1])}; {remedy}")
    return None
