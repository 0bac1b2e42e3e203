"""What may change while a pipeline runs: its queries, and orders to the engines of its cells. Pure values.

A plan counts from a micro-batch on. The driver decides at the end of a micro-batch what counts from the next one,
writes it to the checkpoint and gives it to Spark's tasks as a local property; a micro-batch that is repeated finds the
plan it had, by its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.errors import QueryError

CONFIG_PROPERTY = "penstock.plans"
ENGINE_ORDERS = ("schedule", "budget", "reslice")
"""The orders: methods of the engine, called in every cell with the arguments that were given."""


@dataclass(frozen=True)
class QuerySpec:
    """A continuous query as it was written. `since`: the change of the pipeline that brought it.

    `labels`: for each FROM item, a number that keeps apart what would else share an inlet; none if it is empty.
    """

    name: str
    text: str
    plan: str | None = None
    since: int = 0
    labels: tuple[int, ...] = ()
    state: str | None = None
    """Its state policy, if it is not that of the pipeline."""
    bound: tuple[tuple[str, Any], ...] = ()
    """A budget of its own, as arguments of the engine's `budget`."""
    shed: str | None = None
    """The time per micro-batch that the pipeline gave it while it was overloaded; it ends with the run."""
    derived: bool = False
    """Whether it makes a stream of its name, for others to read."""

    @property
    def budget(self) -> tuple[tuple[str, Any], ...]:
        """The budget it has alone, if any."""
        return self.bound or ((("probes", self.shed),) if self.shed else ())


@dataclass(frozen=True)
class EngineOrder:
    """A call of the engine's method `do`; a later one of the same method, for the same query or all, replaces it."""

    do: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def query(self) -> str | None:
        """Whom it is for, None for all."""
        return dict(self.arguments).get("query")


@dataclass(frozen=True)
class PipelineConfig:
    """The queries and orders that count together."""

    queries: tuple[QuerySpec, ...]
    orders: tuple[EngineOrder, ...] = ()

    def find_query(self, name: str) -> QuerySpec:
        found = next((query for query in self.queries if query.name.casefold() == str(name).casefold()), None)
        if found is None:
            known = ", ".join(query.name for query in self.queries) or "none"
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}; declared: {known}", query=name)
        return found

    def resolve_names(self, do: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a command with queries as they were declared: names are the same in any case."""
        known = {query.name.casefold(): query.name for query in self.queries if do not in ("add", "derive")}
        named = {key: arguments[key] for key in ("name", "query") if isinstance(arguments.get(key), str)}
        return {**arguments, **{key: known.get(name.casefold(), name) for key, name in named.items()}}

    def apply_command(self, do: str, arguments: Mapping[str, Any], generation: int) -> PipelineConfig:
        """The plan after a command: add, derive, drop, migrate, policy, shed (by the pipeline itself), or an order."""
        if do in ("add", "derive"):
            new = QuerySpec(**arguments, since=generation, derived=do == "derive")
            return replace(self, queries=(*self.queries, self._check_new_query(new)))
        if do == "drop":
            gone = self.find_query(arguments["name"])
            if gone.derived:
                message = f"{gone.name} is a stream; it stays while the run lasts"
                raise QueryError("DERIVED_STREAM", message, stream=gone.name)
            if sum(not query.derived for query in self.queries) == 1:
                message = f"{gone.name} is the only query; stop the run instead"
                raise QueryError("LAST_QUERY", message, query=gone.name)
            orders = tuple(order for order in self.orders if order.query != gone.name)
            return replace(self, queries=tuple(query for query in self.queries if query is not gone), orders=orders)
        if do == "migrate":
            old = self.find_query(arguments["name"])
            return self._replace_query(replace(old, plan=arguments["plan"]))
        if do == "policy":
            return self._replace_query(replace(self.find_query(arguments["name"]), state=arguments["state"]))
        if do == "shed":
            return self._replace_query(replace(self.find_query(arguments["name"]), shed=arguments["limit"]))
        if do == "budget":
            own = tuple((key, value) for key, value in arguments.items() if key != "query")
            if arguments.get("query") is not None:
                return self._replace_query(replace(self.find_query(arguments["query"]), bound=own, shed=None))
            freed = tuple(replace(query, bound=(), shed=None) for query in self.queries)
            return replace(self, queries=freed)._add_order(EngineOrder(do, own))
        return self._add_order(EngineOrder(do, tuple(arguments.items())))

    def clear_shedding(self) -> PipelineConfig:
        """The plan of a run that begins: overload is still to be seen."""
        return replace(self, queries=tuple(replace(query, shed=None) for query in self.queries))

    def _replace_query(self, changed: QuerySpec) -> PipelineConfig:
        queries = tuple(changed if query.name == changed.name else query for query in self.queries)
        return replace(self, queries=queries)

    def _add_order(self, order: EngineOrder) -> PipelineConfig:
        """With an order in the place of those that it makes void: for one query, or for all."""
        others = tuple(other for other in self.orders if other.do != order.do or order.query not in (None, other.query))
        return replace(self, orders=(*others, order))

    def _check_new_query(self, query: QuerySpec) -> QuerySpec:
        if not isinstance(query.name, str) or not query.name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {query.name!r}")
        if any(query.name.casefold() == other.name.casefold() for other in self.queries):
            raise QueryError("DUPLICATE_NAME", f"there is a query {query.name} already", query=query.name)
        return query

    def as_json(self) -> dict[str, Any]:
        return {
            "queries": [asdict(query) for query in self.queries],
            "orders": [[order.do, dict(order.arguments)] for order in self.orders],
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> PipelineConfig:
        orders = (EngineOrder(do, tuple(arguments.items())) for do, arguments in entry["orders"])
        queries = (
            QuerySpec(**{
                **query,
                "labels": tuple(query["labels"]),
                "bound": tuple((key, value) for key, value in query.get("bound", ())),
            })
            for query in entry["queries"]
        )  # fmt: skip
        return cls(tuple(queries), tuple(orders))


@dataclass(frozen=True)
class ConfigSchedule:
    """The newest plans with the micro-batches from which on they count; two, for a repeated one may need the older."""

    configs: tuple[tuple[int, PipelineConfig], ...]

    @property
    def last(self) -> PipelineConfig:
        return self.configs[-1][1]

    def find_config(self, batch: int) -> PipelineConfig:
        return next((plan for first, plan in reversed(self.configs) if first <= batch), self.configs[0][1])

    def with_config(self, first: int, plan: PipelineConfig) -> ConfigSchedule:
        before = tuple(item for item in self.configs if item[0] < first)
        return ConfigSchedule((*before[-1:], (first, plan)))

    def as_json(self) -> list[Any]:
        return [[first, plan.as_json()] for first, plan in self.configs]

    @classmethod
    def from_json(cls, entries: list[Any]) -> ConfigSchedule:
        return cls(tuple((first, PipelineConfig.from_json(entry)) for first, entry in entries))

    def encode(self) -> str:
        return json.dumps(self.as_json())

    @classmethod
    def decode(cls, text: str) -> ConfigSchedule:
        return cls.from_json(json.loads(text))
