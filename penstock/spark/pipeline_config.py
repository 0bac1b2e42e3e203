"""The config of a pipeline: its queries and the orders to engines, which may change while it runs. Pure values.

A config is valid from a micro-batch on. At the end of a micro-batch the driver applies commands to get the config of
the next one, writes it to the checkpoint and passes it to Spark's tasks as a local property. A repeated micro-batch
finds the config it had by its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.adapt import (
    AddQuery,
    DeriveStream,
    DropQuery,
    EngineOrder,
    Migrate,
    QueryCommand,
    SetBudget,
    SetPolicy,
    ShedLoad,
    decode_order,
    encode_command,
)
from penstock.cql import Connector
from penstock.errors import QueryError

CONFIG_PROPERTY = "penstock.plans"


@dataclass(frozen=True)
class QuerySpec:
    """A continuous query. `since`: the number of the change of the pipeline that added it.

    `inlets`: for each FROM item the number of the inlet that it reads, 0 for a table or a derived stream. Empty until a
    `Layout` numbers them. The state of cells refers to these numbers, so they stay the same within a checkpoint.
    """

    name: str
    text: str
    plan: str | None = None
    since: int = 0
    inlets: tuple[int, ...] = ()
    state: str | None = None
    """Its state policy; None for that of the pipeline."""
    bound: SetBudget | None = None
    """A budget of its own."""
    shed: str | None = None
    """The time per micro-batch that the pipeline set while it was overloaded; it ends with the run."""
    derived: bool = False
    """Whether its results are a stream of its name."""
    added: bool = False
    """Whether it was added while running: a later start continues it, although the pipeline does not declare it."""
    sink: Connector | None = None
    """The sink of a query that was added while running, if it can be made again from a description."""
    copy_of: str | None = None
    """The derived stream that it derives again, for queries that began later; see `derived_copies`."""

    @property
    def budget(self) -> SetBudget | None:
        """The budget it has alone, if any."""
        if self.bound is None and self.shed is not None:
            return SetBudget(self.shed, query=self.name)
        return self.bound

    def list_start_commands(self) -> list[QueryCommand]:
        """The commands that start it in an engine."""
        start = (DeriveStream if self.derived else AddQuery)(self.name, self.text, self.plan, self.state)
        return [start] if self.budget is None else [start, self.budget]

    def list_changes(self, old: QuerySpec) -> list[QueryCommand]:
        """The commands that turn the same query as it was into this."""
        found: list[QueryCommand] = []
        if self.plan is not None and self.plan != old.plan:
            found.append(Migrate(self.name, self.plan))
        if self.state is not None and self.state != old.state:
            found.append(SetPolicy(self.name, self.state))
        if self.budget != old.budget:
            found += [ShedLoad(self.name, None), *([] if self.budget is None else [self.budget])]
        return found

    def as_json(self) -> dict[str, Any]:
        """Without `copy_of` if it is no copy: so most checkpoints are readable by versions that have no copies."""
        entry = asdict(self)
        return entry if self.copy_of is not None else {key: entry[key] for key in entry if key != "copy_of"}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> QuerySpec:
        bound = dict(entry.get("bound") or {})
        budget = SetBudget(**{**bound, "query": entry["name"]}) if bound else None
        sink = entry["sink"] and Connector(entry["sink"]["format"], tuple(map(tuple, entry["sink"]["options"])))
        return cls(**{**entry, "inlets": tuple(entry["inlets"]), "bound": budget, "sink": sink})


@dataclass(frozen=True)
class PipelineConfig:
    """The queries and orders of a micro-batch."""

    queries: tuple[QuerySpec, ...]
    orders: tuple[EngineOrder, ...] = ()
    next_inlet: int = 1
    """The number of the next new inlet: numbers are not used twice, because state may hold rows of ended queries."""

    def find_query(self, name: str) -> QuerySpec:
        found = next((query for query in self.queries if query.name.casefold() == str(name).casefold()), None)
        if found is None:
            known = ", ".join(query.name for query in self.queries) or "none"
            raise QueryError("UNKNOWN_QUERY", f"there is no query {name}; declared: {known}", query=name)
        return found

    def resolve_names(self, command: QueryCommand) -> QueryCommand:
        """The command with its query spelled as declared: names are case-insensitive."""
        return command.resolve_names({query.name.casefold(): query.name for query in self.queries})

    # ── changes by commands, see `penstock.adapt.commands` ───────────────────────────────────────────────────────

    def add_query(
        self, name: str, text: str, plan: str | None, state: str | None, *, since: int, derived: bool
    ) -> PipelineConfig:
        if any(name.casefold() == other.name.casefold() for other in self.queries):
            raise QueryError("DUPLICATE_NAME", f"there is a query {name} already", query=name)
        new = QuerySpec(name, text, plan, since, state=state, derived=derived)
        return replace(self, queries=(*self.queries, new))

    def alter_query(self, name: str, text: str, plan: str | None, *, since: int) -> PipelineConfig:
        """With another text for a query. It is a new query for the cells: its windows begin empty.

        The driver keeps its windows where it can; see `driver.query_comparison.alter_query`.
        """
        old = self.find_query(name)
        if old.derived:
            message = f"{old.name} is a stream that other queries may read; stop the run and declare it again"
            raise QueryError("DERIVED_STREAM", message, stream=old.name)
        return self.change_query(old.name, text=text, plan=plan, since=since, inlets=())

    def drop_query(self, name: str) -> PipelineConfig:
        gone = self.find_query(name)
        if gone.derived:
            message = f"{gone.name} is a stream; it stays while the run lasts"
            raise QueryError("DERIVED_STREAM", message, stream=gone.name)
        if sum(not query.derived for query in self.queries) == 1:
            message = f"{gone.name} is the only query; stop the run instead"
            raise QueryError("LAST_QUERY", message, query=gone.name)
        orders = tuple(order for order in self.orders if order.query != gone.name)
        return replace(self, queries=tuple(query for query in self.queries if query is not gone), orders=orders)

    def change_query(self, name: str, **changes: Any) -> PipelineConfig:
        old = self.find_query(name)
        return replace(self, queries=tuple(replace(old, **changes) if each is old else each for each in self.queries))

    def mark_added(self, name: str, sink: Connector | None) -> PipelineConfig:
        """The config with a query marked as added while running. `sink`: the description of its sink, if it has one."""
        return self.change_query(name, added=True, sink=sink)

    def lift_own_budgets(self) -> PipelineConfig:
        return replace(self, queries=tuple(replace(query, bound=None, shed=None) for query in self.queries))

    def set_order(self, order: EngineOrder) -> PipelineConfig:
        """With an order in place of those that it replaces: orders of its type for its query, or for all queries."""
        kept = (other for other in self.orders if other.key != order.key or order.query not in (None, other.query))
        return replace(self, orders=(*kept, order))

    def clear_shedding(self) -> PipelineConfig:
        """The config at the start of a run, without limits from an earlier overload."""
        return replace(self, queries=tuple(replace(query, shed=None) for query in self.queries))

    def as_json(self) -> dict[str, Any]:
        return {
            "queries": [query.as_json() for query in self.queries],
            "orders": [list(encode_command(order)) for order in self.orders],
            "next_inlet": self.next_inlet,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> PipelineConfig:
        orders = (decode_order(key, arguments) for key, arguments in entry["orders"])
        return cls(tuple(map(QuerySpec.from_json, entry["queries"])), tuple(orders), entry["next_inlet"])


def list_changes(before: PipelineConfig, after: PipelineConfig) -> list[QueryCommand]:
    """The commands that turn an engine with one config into an engine with another, in their order.

    A query is the same while its name and `since` are. The budget of all queries comes before those of single queries;
    a derived stream before its readers; a query with a budget of its own before queries that could share its join.
    """
    old = {(query.name, query.since): query for query in before.queries}
    new = {(query.name, query.since): query for query in after.queries}
    orders = [order for order in after.orders if order not in before.orders]
    added = sorted((query for key, query in new.items() if key not in old), key=_rank_query)
    return [
        *(DropQuery(name) for name, _ in old.keys() - new.keys()),
        *(order for order in orders if isinstance(order, SetBudget)),
        *(command for query in added for command in query.list_start_commands()),
        *(order for order in orders if not isinstance(order, SetBudget)),
        *(command for key in old.keys() & new.keys() for command in new[key].list_changes(old[key])),
    ]


def _rank_query(query: QuerySpec) -> tuple[bool, bool]:
    return not query.derived, query.budget is None


@dataclass(frozen=True)
class ConfigSchedule:
    """The two newest configs with their first micro-batches: a repeated micro-batch may need the older one."""

    configs: tuple[tuple[int, PipelineConfig], ...]

    @property
    def last(self) -> PipelineConfig:
        return self.configs[-1][1]

    def find_config(self, batch: int) -> PipelineConfig:
        return next((config for first, config in reversed(self.configs) if first <= batch), self.configs[0][1])

    def with_config(self, first: int, config: PipelineConfig) -> ConfigSchedule:
        before = tuple(item for item in self.configs if item[0] < first)
        return ConfigSchedule((*before[-1:], (first, config)))

    def as_json(self) -> list[Any]:
        return [[first, config.as_json()] for first, config in self.configs]

    @classmethod
    def from_json(cls, entries: list[Any]) -> ConfigSchedule:
        return cls(tuple((first, PipelineConfig.from_json(entry)) for first, entry in entries))

    def encode(self) -> str:
        return json.dumps(self.as_json())

    @classmethod
    def decode(cls, text: str) -> ConfigSchedule:
        return cls.from_json(json.loads(text))
