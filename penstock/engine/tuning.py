"""How an engine runs: plans, state policies, slices, strategies and budgets. Results depend only on budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from penstock.adapt import Decision, JoinSample, Sampler, as_budget
from penstock.engine.adaptation import Adaptation
from penstock.engine.budgets import Budgets
from penstock.engine.build import require_plan
from penstock.engine.guard import Guard, guard_calls
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.query_changes import QueryChanges
from penstock.engine.registry import QueryRegistry
from penstock.errors import name_arguments, require_known
from penstock.graph import STRATEGIES, Graph
from penstock.join import DemandFilter, Migration, Slicing


@guard_calls(nests=(), always=())
@name_arguments
class TunableEngine:
    """The methods of an engine that change how it runs. `reading` describes the engine of the examples."""

    _guard: Guard
    _graph: Graph
    _registry: QueryRegistry
    _join_registry: JoinRegistry
    _budgets: Budgets
    _changes: QueryChanges
    _adaptation: Adaptation

    def migrate(self, name: str, plan: str, how: str = "jisc") -> None:
        """Change the plan of a query, without losing or repeating a result.

        `how` is "jisc", "moving-state" or "parallel-track". A chain of EXCEPT tests its inputs in the order of the
        plan: with "A; D; B" it tests D before B.

        >>> eng.migrate("pairs", "(B A)")
        >>> eng.queries["pairs"].plan
        '(B A)'
        """
        require_known(how, get_args(Migration), "way to migrate")
        require_plan(plan)
        self._changes.migrate(name, plan, how)  # type: ignore[arg-type]

    def policy(self, name: str, state: str, node: str | None = None, demand: DemandFilter | None = None) -> None:
        """Change the state policy of a running query, or of one node of its plan such as "(A B)".

        >>> eng.policy("pairs", "eager")
        """
        self._changes.set_policy(name, state, node, demand)

    def reslice(self, slicing: Slicing, query: str | None = None) -> None:
        """Change how shared joins keep tuples: all joins, or those of one query.

        "mem-opt" frees a tuple as soon as no query needs it; "cpu-opt" frees it at the ends of slices, which are merged
        for the least work.

        >>> eng.reslice("cpu-opt")
        """
        require_known(slicing, get_args(Slicing), "slicing")
        self._changes.reslice(slicing, query)

    def schedule(self, strategy: str, part: str | None = None) -> None:
        """Set the strategy that selects the next operator: "dfs", "bfs" or "rr".

        `part` is a query, or an operator by its name in `explain(..., format="table")`; without it, the whole graph.

        >>> eng.schedule("bfs")
        >>> eng.schedule("rr", "pairs")
        """
        require_known(strategy, tuple(STRATEGIES), "schedule")
        ids = [] if part is None else [node.id for node in self._registry.find_nodes(part, self._graph)]
        with self._guard.change():
            self._graph.schedule(strategy, *ids)

    def break_after(self, operator: str) -> None:
        """Set a virtual break node behind an operator, or a query's last: operators behind it are scheduled apart.

        >>> eng.break_after("pairs")
        """
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id)

    def clear_break(self, operator: str) -> None:
        """Remove a virtual break node.

        >>> eng.break_after("pairs")
        >>> eng.clear_break("pairs")
        """
        self._graph.break_after(self._registry.find_nodes(operator, self._graph)[-1].id, broken=False)

    def budget(
        self, probes: float | str | None, policy: str = "steady", query: str | None = None, sample: int | None = None
    ) -> None:
        """Limit the probes of joins, per second of event time (a number) or per push ("500 ms").

        None lifts the limit. `policy` is how it is allocated. `query`: it binds that query and those that share its
        joins, which must all have FRESHNESS; without it, every query, also later ones. The newest tuples probe first;
        with `sample` (a seed) a random sample of them. See docs/overload.md.

        >>> eng.budget(300, policy="jaqpot")
        >>> eng.budget(None)
        """
        budget = None if probes is None else as_budget(probes, policy, sample)
        self._changes.set_budget(budget, query)

    def unbind(self, name: str) -> None:
        """Remove a query's own budget: the budget of the engine, if there is one, binds it. See `budget`.

        >>> eng.budget("500 ms", query="pairs")
        >>> eng.unbind("pairs")
        """
        self._changes.remove_budget(name)

    def replay(self, decisions: Iterable[Decision]) -> None:
        """Repeat the decisions of another engine, each after the same number of pushes.

        >>> eng.replay([])
        """
        self._adaptation.replay(decisions)

    def take_samples(self, sampler: Sampler) -> list[JoinSample]:
        """Samples of the joins, for a controller outside of the engine; see `adapt.sampler`.

        >>> from penstock.adapt import Sampler
        >>> eng.take_samples(Sampler(0.1))
        []
        """
        return sampler.take_samples(self._join_registry, self._registry.__getitem__, self._budgets)
