"""The scheduling rules on hand-made tables and states: no stream runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.graph.rules import select_next
from penstock.graph.state_table import StateRow, StateTable, build_state_table


class Seen:
    """The state of operators that a rule reads, set by the test."""

    def __init__(self, table: StateTable, more: str = "", helpers: dict[str, str] | None = None, low: str = "") -> None:
        self._table = table
        self._more = more
        self._helpers = helpers or {}
        self._low = low

    def row(self, state: str) -> StateRow:
        return self._table.by_state[state]

    def has_work(self, state: str) -> bool:
        return state in self._more

    def find_enabler(self, state: str) -> str | None:
        return self._helpers.get(state)

    def find_runnable(self, state: str) -> str | None:
        return state if self.has_work(state) else self.find_enabler(state)

    def list_lagging_readers(self, fork: StateRow) -> Sequence[str]:
        return fork.successors[::-1]

    def find_lowest_input(self, row: StateRow) -> str:
        return self._low if self._low in row.predecessors else row.predecessors[0]


def table(strategy: str, arcs: str, breaks: str = "") -> StateTable:
    """A table from arcs such as "ab bc"; each letter is an operator."""
    states = sorted(set(arcs) - {" "})
    successors = {state: tuple(arc[1] for arc in arcs.split() if arc[0] == state) for state in states}
    return build_state_table(successors, dict.fromkeys(states, strategy), set(breaks))


@pytest.mark.parametrize(
    ("strategy", "more", "chosen"),
    [
        ("dfs", "bc", "c"),  # forward before encore
        ("dfs", "ab", "b"),
        ("dfs", "a", "a"),  # backtrack
        ("dfs", "", None),
        ("bfs", "bc", "b"),  # encore before forward
        ("bfs", "ac", "c"),
        ("bfs", "a", "a"),
        ("rr", "bc", "b"),
        ("rr", "c", "c"),
        ("rr", "a", None),  # exit instead of going back
    ],
)
def test_select_from_middle_of_path(strategy: str, more: str, chosen: str | None) -> None:
    path = table(strategy, "ab bc")
    assert select_next(path.by_state["b"], Seen(path, more)) == chosen


def test_select_repeated_on_predecessor() -> None:
    """Backtracking from d to b finds b's other reader c before b itself."""
    forked = table("dfs", "ab bc bd")
    assert select_next(forked.by_state["d"], Seen(forked, "bc")) == "c"
    assert select_next(forked.by_state["d"], Seen(forked, "a")) == "a"


def test_fork_selects_slowest_reader() -> None:
    forked = table("dfs", "ab ac")
    assert select_next(forked.by_state["a"], Seen(forked, "bc")) == "c"


def test_merge_selects_input_with_lowest_frontier() -> None:
    merge = table("dfs", "ac bc")
    assert select_next(merge.by_state["c"], Seen(merge, "ab", low="b")) == "b"
    assert select_next(merge.by_state["c"], Seen(merge, "ab", low="a")) == "a"


@pytest.mark.parametrize("strategy", ["dfs", "bfs"])
def test_idle_merge_selects_blocking_source(strategy: str) -> None:
    merge = table(strategy, "ac bc")
    assert select_next(merge.by_state["a"], Seen(merge, helpers={"c": "b"})) == "b"
    assert select_next(merge.by_state["c"], Seen(merge, helpers={"c": "b"})) == "b"


def test_select_stops_at_break_node() -> None:
    broken = table("dfs", "ab bc", breaks="b")
    assert select_next(broken.by_state["b"], Seen(broken, "c")) is None
    assert select_next(broken.by_state["c"], Seen(broken, "b")) is None


def test_round_robin_selects_paths() -> None:
    rows = table("rr", "ac bc cd de df").by_state
    assert rows["c"].transition == "RR-Source"
    assert rows["a"].transition == "RR-Source-Sink"
    assert rows["d"].transition == "RR-Sink"
    assert rows["e"].transition == "RR-Source-Sink"


def test_strategies_per_part_of_graph() -> None:
    rows = build_state_table({"a": ("b",), "b": ("c",), "c": ()}, {"a": "dfs", "b": "bfs", "c": "dfs"})
    assert [row.transition for row in rows.rows] == ["DFS-Source", "BFS-NOS", "DFS-Sink"]
    assert select_next(rows.by_state["b"], Seen(rows, "bc")) == "b"
    assert select_next(rows.by_state["a"], Seen(rows, "ab")) == "b"


def test_state_table_as_text() -> None:
    assert table("dfs", "ac bc").as_text().splitlines() == [
        "state  pred  succ  transition",
        "a      -     c     DFS-Source",
        "b      -     c     DFS-Source",
        "c      a, b  -     DFS-Sink",
    ]
