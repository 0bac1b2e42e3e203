"""What a query is started with: its text, plan and options."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cql import Query, Stream
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
    plan_given: bool = False
    """Whether the user gave the plan."""
    history: bool = False
    """Whether it also uses the rows that the windows of a join it shares hold already."""
    budget_scope: object = None
    """It shares joins of this budget scope only; see `Budgets.budget_scope`."""
