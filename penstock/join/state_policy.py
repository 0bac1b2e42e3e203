"""State policies: what the nodes of a join tree keep, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from penstock.join.demand.gate import Kept


@dataclass(frozen=True)
class Policy:
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
    demand: Kept = "exact"


POLICIES = {
    "eager": Policy(),
    "lazy": Policy(lazy=True),
    "jit": Policy(lazy=True, gated="always"),
    "auto": Policy(lazy=True, gated="measured"),
    "none": Policy(states=False),
}


def policy_named(state: str, demand: Kept) -> Policy:
    return replace(POLICIES[state], demand=demand)
