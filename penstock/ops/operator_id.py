"""Names of operators: what metrics, `explain` and errors call them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorId:
    """An operator of a query: its kind, and its number if the query has several of that kind."""

    query: str
    kind: str
    number: int = 1

    def __str__(self) -> str:
        name = f"{self.query}: {self.kind}"
        return name if self.number == 1 else f"{name} {self.number}"


def make_stream_id(stream: str) -> str:
    """The name of the operator that writes a stream."""
    return f"source {stream}"


def make_view_id(view: str) -> str:
    """The name of the operator that writes a view."""
    return f"view {view}"
