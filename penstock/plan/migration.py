"""What a new plan can take over from the old one: JISC's Definition 1, with the overlap rule of its section 4.5.

Law: a state of the new plan is complete exactly if the old plan has a state over the same leaves and that one is
complete. So a state that was incomplete in the old plan stays incomplete, however often the plan changes meanwhile;
and the root, whose leaves are all of the query's, is complete as long as it ever was.

A state is known by its leaves. For joins that is enough because they commute and associate; for set differences
because all plans of one query have the same outer stream: over A and B there is only A − B, never B − A. Leaf windows
are no part of this: they are complete in every plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.plan.tree import Eddy, Leaf, PlanShape, list_leaves

LeafSet = frozenset[str]
"""A state by the leaves it is over."""


@dataclass(frozen=True)
class StateReuse:
    """The states of a new plan, children first, sorted into those that lack nothing and those that may."""

    complete: tuple[LeafSet, ...]
    incomplete: tuple[LeafSet, ...]

    def __contains__(self, state: object) -> bool:
        """Whether a state is complete from the start."""
        return state in self.complete


def list_states(tree: PlanShape) -> tuple[LeafSet, ...]:
    """The states of a plan's operators, children first; the last one is the root's. An eddy has none."""
    if isinstance(tree, Leaf | Eddy):
        return ()
    return (*list_states(tree.left), *list_states(tree.right), frozenset(list_leaves(tree)))


def classify_states(new: PlanShape, complete: Collection[LeafSet]) -> StateReuse:
    """Classify the states of a new plan, given those states of the old one that are complete now."""
    return StateReuse(
        tuple(state for state in list_states(new) if state in complete),
        tuple(state for state in list_states(new) if state not in complete),
    )
