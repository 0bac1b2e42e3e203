"""The query-graph paper's tables and its arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.graph.state_table import build_state_table
from penstock.lab.papers.query_graph.bursts import TUPLE_COST, play_burst

DFS = {"σ": "dfs", "Σ1": "dfs", "Σ2": "dfs"}
PATH = {"σ": ("Σ1",), "Σ1": ("Σ2",), "Σ2": ()}


def test_table_1_single_path() -> None:
    assert build_state_table(PATH, DFS).format_lines() == [
        ("σ", "-", "Σ1", "DFS-Source"),
        ("Σ1", "σ", "Σ2", "DFS-NOS"),
        ("Σ2", "Σ1", "-", "DFS-Sink"),
    ]


def test_table_2_path_with_break_node() -> None:
    assert build_state_table(PATH, DFS, breaks={"Σ1"}).format_lines() == [
        ("σ", "-", "Σ1", "DFS-Source"),
        ("Σ1", "σ", "-", "DFS-Sink"),
        ("Σ2", "-", "-", "DFS-Source-Sink"),
    ]


def test_table_3_fork() -> None:
    """The paper prints one line for both Σ, and names the only Fork of its graph `fork`."""
    assert build_state_table({"σ": ("Σ1", "Σ2"), "Σ1": (), "Σ2": ()}, DFS).format_lines() == [
        ("σ", "-", "fork σ", "DFS-Source"),
        ("fork σ", "σ", "Σ1", "DFS-Fork"),
        ("fork σ", "σ", "Σ2", "DFS-Fork"),
        ("Σ1", "fork σ", "-", "DFS-Sink"),
        ("Σ2", "fork σ", "-", "DFS-Sink"),
    ]


@pytest.mark.parametrize("strategy", ["dfs", "bfs"])
def test_mean_latency_of_burst_through_two_operators(strategy: str) -> None:
    """(n + 1) c depth first, (1.5 n + 0.5) c breadth first; here as the exact sum over the n tuples, doubled."""
    _bursts_are_exact(strategy, [*range(1, 31), 100, 333, 1000])


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["dfs", "bfs"])
def test_mean_latency_of_every_burst_up_to_300(strategy: str) -> None:
    _bursts_are_exact(strategy, range(1, 301))


def _bursts_are_exact(strategy: str, sizes: Iterable[int]) -> None:
    """Through a derived stream and a query of the engine, as a subscribed function gets the results."""
    for n in sizes:
        left = play_burst(n, strategy)
        assert len(left) == n
        doubled = 2 * (n + 1) if strategy == "dfs" else 3 * n + 1
        assert 2 * sum(left) == doubled * TUPLE_COST * n
