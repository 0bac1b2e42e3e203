"""The components of an engine, created once and handed to the parts that work on them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.budgets import Budgets
from penstock.engine.guard import Guard
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.options import EngineOptions
from penstock.engine.registry import QueryRegistry
from penstock.engine.relations import Relations
from penstock.graph import Graph


@dataclass(frozen=True)
class EngineComponents:
    """What an engine consists of: its declarations, its graph, and what runs in it."""

    options: EngineOptions
    guard: Guard
    graph: Graph
    relations: Relations
    joins: JoinRegistry
    queries: QueryRegistry
    budgets: Budgets
