"""State policies: what the nodes of a join tree keep, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from penstock.join.demand.gate import DemandFilter


@dataclass(frozen=True)
class StatePolicy:
    """What the nodes of a tree keep.

    `states`: whether joins keep their rows at all. `lazy`: whether rows that follow from the base windows alone are
    completed when they are needed, not at once. `gated`: whether rows nobody can use yet are put off: never, always,
    or node by node where that is measured to pay. `demand`: how the test for what somebody can use is kept.
    """

    states: bool = True
    lazy: bool = False
    gated: Literal["never", "always", "measured"] = "never"
    pace: float = 16.0
    """How many older rows are pushed up an incomplete state for each tuple that arrives."""
    demand: DemandFilter = "exact"


POLICIES = {
    "eager": StatePolicy(),
    "lazy": StatePolicy(lazy=True),
    "jit": StatePolicy(lazy=True, gated="always"),
    "auto": StatePolicy(lazy=True, gated="measured"),
    "none": StatePolicy(states=False),
}


def get_policy(state: str, demand: DemandFilter) -> StatePolicy:
    return replace(POLICIES[state], demand=demand)
