"""The state table: the graph as a finite automaton, computed from its topology, its strategies and its break nodes.

A state is an operator. Its row holds its successors, its predecessors and its strategy. Where several operators read
one arc there is a Fork between. A virtual break node cuts the arcs behind an operator for the selection, never for the
data: the part before it ends there as at a sink, the part behind it begins there as at a source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

TableLine = tuple[str, str, str, str]

HEADINGS = ("state", "pred", "succ", "transition")


@dataclass(frozen=True)
class StateRow:
    """A state with its neighbours and its strategy."""

    state: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    strategy: str
    is_fork: bool = False
    has_fork: bool = False
    """Whether a Fork follows."""

    @property
    def transition(self) -> str:
        """The rule that selects the next state, with the paper's name for it."""
        ends = [name for name, there in (("Source", self.predecessors), ("Sink", self.successors)) if not there]
        role = "Fork" if self.is_fork else "-".join(ends) or "NOS"
        return f"{self.strategy.upper()}-{role}"

    def format_lines(self) -> Iterator[TableLine]:
        """The row as the paper prints it: a Fork has a line for each of its readers."""
        before = ", ".join(self.predecessors) or "-"
        for after in self.successors if self.is_fork else (", ".join(self.successors) or "-",):
            yield self.state, before, after, self.transition


@dataclass(frozen=True)
class StateTable:
    """The rows by their states, producers before consumers."""

    rows: tuple[StateRow, ...]

    @cached_property
    def by_state(self) -> Mapping[str, StateRow]:
        return {row.state: row for row in self.rows}

    @cached_property
    def reachable(self) -> Mapping[str, frozenset[str]]:
        """The states one selection can reach from each: itself, its successors, and what its predecessors reach."""
        found: dict[str, frozenset[str]] = {}
        for row in self.rows:
            after = self.by_state[row.successors[0]].successors if row.has_fork else row.successors
            found[row.state] = frozenset({row.state, *after}).union(*(found[state] for state in row.predecessors))
        return found

    def format_lines(self) -> list[TableLine]:
        return [line for row in self.rows for line in row.format_lines()]

    def restrict_to(self, states: AbstractSet[str]) -> StateTable:
        """The rows of some states, and of the Forks between them."""
        return StateTable(tuple(r for r in self.rows if r.state in states or (r.is_fork and states & {*r.successors})))

    def as_text(self) -> str:
        lines = [HEADINGS, *self.format_lines()]
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        return "\n".join("  ".join([*map(str.ljust, line[:3], widths), line[3]]) for line in lines)


def fork_name(state: str) -> str:
    return f"fork {state}"


def build_state_table(
    successors: Mapping[str, tuple[str, ...]], strategies: Mapping[str, str], breaks: Collection[str] = ()
) -> StateTable:
    """The table of a graph, given the successors of every state, producers first, its strategy, and the break nodes.

    Round-robin runs paths: it also breaks arcs into a merge and out of a fork.
    """
    feeding: dict[str, int] = dict.fromkeys(successors, 0)
    for fed in successors.values():
        for state in fed:
            feeding[state] += 1
    onward = {
        state: tuple(after for after in fed if not (feeding[after] > 1 and strategies[after] == "rr"))
        if state not in breaks and not (len(fed) > 1 and strategies[state] == "rr")
        else ()
        for state, fed in successors.items()
    }
    backward: dict[str, tuple[str, ...]] = dict.fromkeys(successors, ())
    rows = []
    for state, fed in onward.items():
        via = (fork_name(state),) if len(fed) > 1 else fed
        for after in fed:
            backward[after] += via if len(fed) > 1 else (state,)
        rows.append(StateRow(state, backward[state], via, strategies[state], has_fork=len(fed) > 1))
        if len(fed) > 1:
            rows.append(StateRow(via[0], (state,), fed, strategies[state], is_fork=True))
    return StateTable(tuple(rows))
