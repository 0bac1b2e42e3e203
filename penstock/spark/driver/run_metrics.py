"""Metrics of a run: what the cells reported last, added up by stream and query. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.adapt.commands import SetBudget
from penstock.spark.layout import Layout
from penstock.spark.worker.cell import SUMMED_METRICS
from penstock.spark.worker.cell_state import DEAD, LATE, RESULT

OutputKey = tuple[str, str]
"""A kind of output (result, late, dead) and the query or stream it belongs to."""


def list_budgets(layout: Layout) -> dict[str, str]:
    """The budgets that the user or the pipeline set, as text, by query."""
    config = layout.spec.config
    general = next((order for order in config.orders if isinstance(order, SetBudget)), SetBudget(None))
    limits = {query.name: (query.budget or general).probes for query in config.queries}
    return {
        name: probes if isinstance(probes, str) else f"{probes:g} probes per second and cell"
        for name, probes in limits.items()
        if probes is not None
    }


def collect_query_metrics(
    name: str, layout: Layout, cells: Mapping[int, Any], counts: Mapping[OutputKey, int]
) -> dict[str, Any]:
    """The figures of a query over all cells, and its placement and budget."""
    placement = layout.placements[name]
    together = _sum_cells([cell["cell"][name] for cell in cells.values() if name in cell["cell"]])
    return {
        **together,
        "emitted": together["emitted"] if name in layout.spec.derived_streams else counts.get((RESULT, name), 0),
        "placement": str(placement),
        "replication": placement.compute_replication(),
        "budget": list_budgets(layout).get(name),
    }


def collect_stream_metrics(name: str, cells: Mapping[int, Any], counts: Mapping[OutputKey, int]) -> dict[str, Any]:
    """The rejected rows of a stream and its frontier."""
    frontiers = [cell["frontiers"][name] for cell in cells.values() if name in cell["frontiers"]]
    return {
        "late": counts.get((LATE, name), 0),
        "dead": counts.get((DEAD, name), 0),
        "frontier": max(frontiers, default=None),
    }


def _sum_cells(cells: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The figures of a query in all cells. Completeness: of the results to be expected where results came."""
    total: dict[str, Any] = {key: sum(cell[key] for cell in cells) for key in SUMMED_METRICS}
    expected = sum(cell["emitted"] / cell["completeness"] for cell in cells if cell["completeness"])
    least = min((cell["completeness"] for cell in cells), default=1.0)
    return {**total, "completeness": total["emitted"] / expected if expected else least}
