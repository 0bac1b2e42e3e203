"""The states that a new plan takes over from the old one: JISC's Definition 1, with the overlap rule of section 4.5.

Law: a state of the new plan is complete exactly if the old plan has a complete state over the same leaves. A state that
is incomplete in the old plan therefore stays incomplete, however often the plan changes. The root has all leaves of the
query in every plan, so a complete root stays complete.

Its leaves identify a state. For joins they suffice because joins commute and associate. For set differences they
suffice because all plans of one query have the same outer stream: over A and B there is only A − B, never B − A. Leaf
windows are complete in every plan and not part of this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.plan.tree import Eddy, Leaf, PlanShape, list_leaves

LeafSet = frozenset[str]
"""The leaves of a state, which identify it."""


@dataclass(frozen=True)
class StateReuse:
    """The complete and the incomplete states of a new plan, children first."""

    complete: tuple[LeafSet, ...]
    incomplete: tuple[LeafSet, ...]

    def __contains__(self, state: object) -> bool:
        """Whether a state is complete when the new plan starts."""
        return state in self.complete


def list_states(tree: PlanShape) -> tuple[LeafSet, ...]:
    """The states of a plan's operators, children first; the last one is the root. An eddy has none."""
    if isinstance(tree, Leaf | Eddy):
        return ()
    return (*list_states(tree.left), *list_states(tree.right), frozenset(list_leaves(tree)))


def classify_states(new: PlanShape, complete: Collection[LeafSet]) -> StateReuse:
    """Classify the states of a new plan, given the states of the old plan that are complete now."""
    return StateReuse(
        tuple(state for state in list_states(new) if state in complete),
        tuple(state for state in list_states(new) if state not in complete),
    )
