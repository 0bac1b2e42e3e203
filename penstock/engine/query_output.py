"""Where the results of a query are read: in its join, in a buffer, or in the stream that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.parts import JoinQueryPart
from penstock.engine.streams import StreamNode, ViewNode
from penstock.graph import Reader
from penstock.join import JoinOperator, MatchBatch
from penstock.ops import Batch
from penstock.state import FOREVER

Matches = Mapping[JoinOperator, Sequence[MatchBatch]]
"""What each join found in a push, for the queries that read their results in it."""


@dataclass(frozen=True)
class PulledOutput:
    """The results are built from the matches of the join when the user reads them."""

    part: JoinQueryPart

    def read(self, matches: Matches) -> list[Batch]:
        member = self.part.member
        found = (each for each in matches.get(self.part.join, ()) if each.origin.scope == member.need.scope)
        return [batch for each in found if (batch := member.build_output(each)) is not None]

    def close(self) -> None:
        """Nothing to close: the matches belong to the push."""


@dataclass(frozen=True)
class BufferedOutput:
    """The results wait in a buffer."""

    reader: Reader

    def read(self, matches: Matches) -> list[Batch]:  # noqa: ARG002
        return self.reader.read(int(FOREVER))

    def close(self) -> None:
        self.reader.close()


@dataclass(frozen=True)
class DerivedOutput:
    """The results are a stream that other queries read; the user reads none."""

    stream: StreamNode

    def read(self, matches: Matches) -> list[Batch]:  # noqa: ARG002
        return []

    def close(self) -> None:
        """Nothing to close: the readers belong to other queries."""


@dataclass(frozen=True)
class ViewOutput:
    """The answer is a view that other queries read; the user reads none."""

    view: ViewNode

    def read(self, matches: Matches) -> list[Batch]:  # noqa: ARG002
        return []

    def close(self) -> None:
        """Nothing to close: the readers belong to other queries."""


QueryOutput = PulledOutput | BufferedOutput | DerivedOutput | ViewOutput
