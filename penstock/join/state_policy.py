"""State policies, by name: which rows the nodes of a join tree keep, and when they are built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from penstock.join.demand.gate import DemandFilter


@dataclass(frozen=True)
class StatePolicy:
    """Which rows the nodes of a tree keep.

    `states`: whether joins keep rows at all. `lazy`: whether rows missing after a change of plan are completed when
    they are needed, not at once. `gated`: whether rows that no result can use yet are suppressed. Both may be decided
    node by node, by what is measured. `demand`: how demand is tested.
    """

    states: Literal["always", "never", "measured"] = "always"
    lazy: bool = False
    gated: Literal["never", "always", "measured"] = "never"
    pace: float = 16.0
    """How many older rows are pushed up incomplete states for each tuple that arrives."""
    demand: DemandFilter = "exact"


POLICIES = {
    "eager": StatePolicy(),
    "lazy": StatePolicy(lazy=True),
    "jit": StatePolicy(lazy=True, gated="always"),
    "auto": StatePolicy(states="measured", lazy=True, gated="measured"),
    "none": StatePolicy(states="never", gated="measured"),
}


def get_policy(state: str, demand: DemandFilter) -> StatePolicy:
    return replace(POLICIES[state], demand=demand)
