"""What changes a running engine between two pushes: its controller, or the replay of another engine's decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from typing import Any

from penstock.adapt import CommandedEngine, Controller, Decision, DecisionReplay, Rules, Timer
from penstock.engine.components import EngineComponents
from penstock.errors import QueryError


class Adaptation:
    """The controller of an engine that adapts, and the replay of one that does not."""

    def __init__(self, rules: Rules | None, timer: Timer) -> None:
        self.controller = None if rules is None else Controller(rules, timer)
        self._replay: DecisionReplay | None = None

    @property
    def decisions(self) -> list[Decision]:
        """The decisions that were made or repeated so far, the newest last."""
        logs = [each.log for each in (self._replay, self.controller) if each is not None]
        return [decision for log in logs for decision in log]

    @property
    def budgeted_queries(self) -> Collection[str]:
        """The queries whose budgets the controller has set: a snapshot leaves these budgets out."""
        return () if self.controller is None else self.controller.budgeted_queries

    def dump_rules(self) -> dict[str, Any] | None:
        """The rules of the controller as plain values; None if the engine does not adapt."""
        return None if self.controller is None else asdict(self.controller.rules)

    def replay(self, decisions: Iterable[Decision]) -> None:
        """Repeat decisions, each after as many pushes as before."""
        if self.controller is not None:
            raise QueryError("ADAPTS_ITSELF", "an engine that adapts makes its own decisions; replay in Engine()")
        self._replay = DecisionReplay(decisions)

    def iter_steps(self) -> Iterable[Callable[[CommandedEngine, int], None]]:
        """What runs before a push, in this order; each is given the engine and the number of pushes so far."""
        return [each.before_push for each in (self._replay, self.controller) if each is not None]

    def after_push(self, components: EngineComponents) -> None:
        """Let the controller take samples of the joins."""
        if self.controller is not None:
            self.controller.after_push(components.joins, components.queries.__getitem__, components.budgets)

    def close(self) -> None:
        """Stop adapting."""
        if self.controller is not None:
            self.controller.close()
