"""The query graph and its run: arcs with frontiers, selection of the next operator, the execution cycle."""

from penstock.graph.buffers import Buffer, Reader
from penstock.graph.graph import Graph, Node, RunSettings
from penstock.graph.rules import STRATEGIES
from penstock.graph.scheduler import GraphScheduler
from penstock.graph.timestamps import find_awaited_time, find_holding_source

__all__ = [
    "STRATEGIES",
    "Buffer",
    "Graph",
    "GraphScheduler",
    "Node",
    "Reader",
    "RunSettings",
    "find_awaited_time",
    "find_holding_source",
]
