"""One push: adaptation, then the cycle of the graph under the budgets, then the results."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from penstock.adapt import CommandedEngine
from penstock.engine.adaptation import Adaptation
from penstock.engine.components import EngineComponents
from penstock.engine.notices import Notices
from penstock.engine.results import Results
from penstock.graph import GraphScheduler


class PushCycle:
    """Runs the graph of one engine, after rows or frontiers have arrived at its sources."""

    def __init__(
        self, components: EngineComponents, scheduler: GraphScheduler, adaptation: Adaptation, notices: Notices
    ) -> None:
        self._components = components
        self._notices = notices
        self._scheduler = scheduler
        self._adaptation = adaptation
        self.pushes = 0
        self.busy_seconds = 0.0
        """The time that the graph took in all pushes."""

    def run(self, engine: CommandedEngine) -> Results:
        """Run until nothing moves. `engine` is what adaptation changes, through its public methods."""
        components, begun = self._components, perf_counter()
        for step in self._adaptation.iter_steps():
            self._steer(step, engine)
        components.budgets.begin()
        self._scheduler.run()
        components.budgets.end()
        self.pushes += 1
        self._adaptation.after_push(components)
        self._notices.after_push()
        joins = list(components.joins)
        components.queries.warn_failures(joins)
        self.busy_seconds += perf_counter() - begun
        return components.queries.collect_results(joins)

    def _steer(self, step: Callable[[CommandedEngine, int], None], engine: CommandedEngine) -> None:
        guard = self._components.guard
        with guard.allow_nesting():
            step(engine, self.pushes)
        guard.require_intact()
