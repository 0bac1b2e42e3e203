"""Minimal non-demanded sub-tuples (MNS) over the lattice of candidates (CNS): what the JIT paper detects, and which
producers receive it (sections III-C and IV; Figures 5, 7 and 8).

Law: a sub-tuple is demanded if one row of the opposite state matches all of its components; the MNSs are the minimal
ones that are not. So a tuple has an MNS exactly if it has no partner, and every super-tuple of an MNS has none either.

This is the paper's algorithm, with 2^n nodes for n components. The engine does not run it: its gates
(`penstock.join.demand.gate`) compute only whether a row has an MNS, for whole arrays. tests/law/test_law_demand.py
compares them with this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

SubTuple = frozenset[str]
"""Components of a tuple, by alias. The empty sub-tuple is part of every tuple."""

EMPTY: SubTuple = frozenset()

MnsType = Literal["empty", "type I", "type II"]
FeedbackCommand = Literal["suspend", "resume", "mark", "unmark"]

_MARK_COMMANDS: dict[FeedbackCommand, FeedbackCommand] = {
    "suspend": "mark",
    "resume": "unmark",
    "mark": "mark",
    "unmark": "unmark",
}


@dataclass(frozen=True)
class Lattice:
    """The candidates of a tuple: every combination of the components that the consumer's predicate reads."""

    components: SubTuple

    def level(self, size: int) -> tuple[SubTuple, ...]:
        """The candidates with this number of components."""
        return tuple(frozenset(chosen) for chosen in combinations(sorted(self.components), size))

    def nodes(self) -> tuple[SubTuple, ...]:
        """All candidates, smallest first."""
        return tuple(node for size in range(len(self.components) + 1) for node in self.level(size))


def list_subsets(node: SubTuple) -> tuple[SubTuple, ...]:
    """The candidates with one component fewer."""
    return tuple(node - {component} for component in sorted(node))


def identify_mns(lattice: Lattice, opposite: Iterable[SubTuple]) -> frozenset[SubTuple]:
    """Figure 8. Every row of the opposite state is given as the components that match it.

    A node matches a row if all of its children do. A node that has matched a row is dead; the minimal nodes that are
    alive at the end are the MNSs. Without rows the empty tuple is the only MNS.
    """
    rows = list(opposite)
    if not rows:
        return frozenset({EMPTY})
    levels = [lattice.level(size) for size in range(1, len(lattice.components) + 1)]
    dead = {EMPTY}
    for row in rows:
        matched = {EMPTY}
        for level in levels:
            if level is levels[0]:
                matched |= {node for node in level if node <= row}
            else:
                matched |= {node for node in level if all(child in matched for child in list_subsets(node))}
        dead |= matched
    found: set[SubTuple] = set()
    above: set[SubTuple] = set()
    for level in levels:
        for node in level:
            if any(child in found or child in above for child in list_subsets(node)):
                above.add(node)
            elif node not in dead:
                found.add(node)
    return frozenset(found)


def classify_mns(mns: SubTuple, left: SubTuple, right: SubTuple) -> MnsType:
    """Type I lies within the rows of one input of the producer, Type II needs both."""
    if not mns:
        return "empty"
    return "type I" if mns <= left or mns <= right else "type II"


@dataclass(frozen=True)
class Feedback:
    """The feedback of a consumer to its producer. Marked rows are still built, but two marked halves are not joined."""

    command: FeedbackCommand
    mns: frozenset[SubTuple]


def propagate(feedback: Feedback, left: SubTuple, right: SubTuple) -> tuple[tuple[Feedback, ...], tuple[Feedback, ...]]:
    """The feedback that a producer passes to its left and right inputs: Type I unchanged, Type II in halves to mark.

    The empty MNS goes to both: if no row of a producer is demanded, no row of its inputs is.
    """
    return _propagate_side(feedback, left, right), _propagate_side(feedback, right, left)


def _propagate_side(feedback: Feedback, side: SubTuple, other: SubTuple) -> tuple[Feedback, ...]:
    whole = frozenset(mns for mns in feedback.mns if mns <= side)
    halves = frozenset(mns & side for mns in feedback.mns if not (mns <= side or mns <= other))
    parts = ((feedback.command, whole), (_MARK_COMMANDS[feedback.command], halves))
    return tuple(Feedback(command, mns) for command, mns in parts if mns)
