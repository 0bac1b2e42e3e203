"""SELECT of one stream: a join with one input, which is a filter and a projection.

Law: each row of the stream that passes the conditions is written once, with the outputs, as soon as it can be read. As
the rows neither wait for others nor end, the operator neither needs nor changes time: frontiers bypass it, and it has
no step that only carries time. State: none between two turns. Cost: O(1) a row.
"""

from __future__ import annotations

from penstock.cql import Stream
from penstock.join.operator import JoinOperator
from penstock.ops import FrontierBypass, OutputMode
from penstock.plan import JoinPart


class SelectionOperator(JoinOperator, FrontierBypass):
    """A filter and a projection of one stream, for one query."""

    def has_work(self) -> bool:
        return self.inputs.has_rows()

    def run(self, budget: int) -> int:
        taken = super().run(budget)
        if not self.has_work():  # a turn ends with an instant: the time that rows held up passes now
            self._advance_to(self.inputs.find_cut(budget))
        return taken


def is_selection(part: JoinPart, mode: OutputMode) -> bool:
    """Whether a part writes rows of one stream as they come: nothing ends them at the instant at which they come."""
    if len(part.sources) != 1 or mode.ends or mode.whole or mode.end_times:
        return False
    (source,) = part.sources
    return isinstance(source.relation, Stream) and not source.window.ends_late
