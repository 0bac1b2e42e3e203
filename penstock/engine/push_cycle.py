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
from penstock.join import JoinOperator


class PushCycle:
    """Runs the graph of one engine, after rows or frontiers have arrived at its sources."""

    def __init__(
        self, components: EngineComponents, scheduler: GraphScheduler, adaptation: Adaptation, notices: Notices
    ) -> None:
        self._components = components
        self._notices = notices
        self._scheduler = scheduler
        self._adaptation = adaptation
        self._seen_changes = 0
        """How many changes of the engine had begun in the last run: the run itself is in one."""
        self.pushes = 0
        self.busy_seconds = 0.0
        """The time that the graph took in all pushes."""

    def run(self, engine: CommandedEngine) -> Results:
        """Run until nothing moves. `engine` is what adaptation changes, through its public methods."""
        components, begun = self._components, perf_counter()
        for step in self._adaptation.iter_steps():
            self._steer(step, engine)
        components.budgets.begin()
        whole = self._scheduler.run(refresh=components.guard.changes != self._seen_changes + 1)
        self._seen_changes = components.guard.changes
        components.budgets.end()
        self.pushes += 1
        self._adaptation.after_push(components)
        self._notices.after_push()
        operators = [node.operator for node in (components.graph if whole else self._scheduler.ran.values())]
        components.queries.warn_failures(operators)
        self.busy_seconds += perf_counter() - begun
        return components.queries.collect_results(each for each in operators if isinstance(each, JoinOperator))

    def _steer(self, step: Callable[[CommandedEngine, int], None], engine: CommandedEngine) -> None:
        guard = self._components.guard
        with guard.allow_nesting():
            step(engine, self.pushes)
        guard.require_intact()
