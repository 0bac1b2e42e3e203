"""What a query is started with: its text, plan and options."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cql import Query, Stream, View
from penstock.join import DemandFilter
from penstock.plan import PlanPart


@dataclass(frozen=True)
class CheckedQuery:
    """A bound query, its plan and how it is run."""

    name: str
    query: Query
    plan: PlanPart
    state: str
    demand: DemandFilter
    derived_stream: Stream | None = None
    """The stream that the results are, for other queries to read; None for a query whose results the user reads."""
    view: View | None = None
    """The view whose rows are the answer, for other queries to read."""
    plan_given: bool = False
    """Whether the user gave the plan."""
    history: bool = False
    """Whether it also uses the rows that the windows of a join it shares hold already."""
    budget_scope: object = None
    """It shares joins of this budget scope only; see `Budgets.budget_scope`."""

    @property
    def is_relation(self) -> bool:
        """Whether other queries read its results, as a stream or a view, and the user does not."""
        return self.derived_stream is not None or self.view is not None
