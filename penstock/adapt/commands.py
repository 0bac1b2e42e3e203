"""Run-time commands: one frozen type each. They are used by the controller, a run, the control stream and the cells.

A `QueryCommand` changes queries or settings of engines. `check` refuses wrong arguments, as far as the command alone
shows them. `apply` makes the change in an engine. `configure` returns the config of a pipeline after the change.
A `TimeCommand` advances the frontiers of streams.

A new command is a new type in one of the two unions, with a test. Field names are the names of arguments in JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, cast, get_args

from penstock.adapt.budget import as_budget
from penstock.cql import Query
from penstock.errors import QueryError, require_known
from penstock.join import POLICIES, Slicing

Action = Literal["migrate", "policy", "reslice", "budget"]
"""What a controller can decide on."""
ACTIONS: tuple[Action, ...] = get_args(Action)


class CommandedEngine(Protocol):
    """An engine, as far as commands call it."""

    def query(self, name: str, text: str | Query, plan: str | None, state: str | None) -> None: ...
    def derive(self, name: str, text: str | Query, plan: str | None, state: str | None) -> None: ...
    def alter(self, name: str, text: str, plan: str | None) -> None: ...
    def drop(self, name: str) -> None: ...
    def migrate(self, name: str, plan: str) -> None: ...
    def policy(self, name: str, state: str) -> None: ...
    def budget(
        self, probes: float | str | None, policy: str = ..., query: str | None = ..., sample: int | None = ...
    ) -> None: ...
    def unbind(self, name: str) -> None: ...
    def schedule(self, strategy: str, part: str | None) -> None: ...
    def reslice(self, slicing: Slicing, query: str | None) -> None: ...


class CommandedConfig(Protocol):
    """The config of a pipeline, as far as commands change it. Each method returns the changed config."""

    def add_query(
        self, name: str, text: str, plan: str | None, state: str | None, *, since: int, derived: bool
    ) -> Self: ...
    def alter_query(self, name: str, text: str, plan: str | None, *, since: int) -> Self: ...
    def drop_query(self, name: str) -> Self: ...
    def change_query(self, name: str, **changes: Any) -> Self: ...
    def lift_own_budgets(self) -> Self: ...
    def set_order(self, order: EngineOrder) -> Self: ...


C = TypeVar("C", bound=CommandedConfig)


# ── queries and engines ──────────────────────────────────────────────────────────────────────────────────────────


class _QueryCommand(ABC):
    """A change of queries or of engine settings."""

    key: ClassVar[str]
    """The name of the command in JSON."""
    name_field: ClassVar[str | None] = "name"
    """The field that names a declared query, if there is one."""

    def check(self) -> None:  # noqa: B027 - most commands are checked by the engine alone
        """Refuse wrong arguments."""

    @abstractmethod
    def apply(self, engine: CommandedEngine) -> None:
        """Make the change in an engine."""

    @abstractmethod
    def configure(self, config: C, generation: int) -> C:
        """Return the config after the change, which is change number `generation` of the pipeline."""

    def resolve_names(self, declared: Mapping[str, str]) -> Self:
        """Return the command with its query spelled as declared. `declared`: names by their case-folded form."""
        field = self.name_field
        if field is None or not isinstance(getattr(self, field), str):
            return self
        name = getattr(self, field)
        return cast(Self, replace(cast(Any, self), **{field: declared.get(name.casefold(), name)}))


@dataclass(frozen=True)
class _StartCommand(_QueryCommand):
    """A query that begins."""

    name_field: ClassVar[str | None] = None
    name: str
    text: str
    plan: str | None = None
    state: str | None = None
    """Its state policy; None for that of the engine."""

    def check(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise QueryError("BAD_NAME", f"a name is a text that is not empty, not {self.name!r}")

    def apply(self, engine: CommandedEngine) -> None:
        self.start(engine, self.text)

    @abstractmethod
    def start(self, engine: CommandedEngine, text: str | Query) -> None:
        """Start the query in an engine that reads it as `text`: its own text, or a query bound to other streams."""


class AddQuery(_StartCommand):
    """Start a query."""

    key = "add"

    def start(self, engine: CommandedEngine, text: str | Query) -> None:
        engine.query(self.name, text, self.plan, self.state)

    def configure(self, config: C, generation: int) -> C:
        return config.add_query(self.name, self.text, self.plan, self.state, since=generation, derived=False)


class DeriveStream(_StartCommand):
    """Start a query whose results are a stream of its name."""

    key = "derive"

    def start(self, engine: CommandedEngine, text: str | Query) -> None:
        engine.derive(self.name, text, self.plan, self.state)

    def configure(self, config: C, generation: int) -> C:
        return config.add_query(self.name, self.text, self.plan, self.state, since=generation, derived=True)


@dataclass(frozen=True)
class AlterQuery(_QueryCommand):
    """Replace the text of a query; its state policy and its budget stay."""

    key = "alter"
    name: str
    text: str
    plan: str | None = None

    def apply(self, engine: CommandedEngine) -> None:
        engine.alter(self.name, self.text, self.plan)

    def configure(self, config: C, generation: int) -> C:
        return config.alter_query(self.name, self.text, self.plan, since=generation)


@dataclass(frozen=True)
class DropQuery(_QueryCommand):
    """Stop a query."""

    key = "drop"
    name: str

    def apply(self, engine: CommandedEngine) -> None:
        engine.drop(self.name)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.drop_query(self.name)


@dataclass(frozen=True)
class Migrate(_QueryCommand):
    """Continue a query with another plan."""

    key = "migrate"
    do: ClassVar[Action] = "migrate"
    name: str
    plan: str

    @property
    def query(self) -> str:
        return self.name

    @property
    def value(self) -> str:
        return self.plan

    def apply(self, engine: CommandedEngine) -> None:
        engine.migrate(self.name, self.plan)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.change_query(self.name, plan=self.plan)


@dataclass(frozen=True)
class SetPolicy(_QueryCommand):
    """Continue a query with another state policy."""

    key = "policy"
    do: ClassVar[Action] = "policy"
    name: str
    state: str

    @property
    def query(self) -> str:
        return self.name

    @property
    def value(self) -> str:
        return self.state

    def check(self) -> None:
        require_known(self.state, tuple(POLICIES), "state policy")

    def apply(self, engine: CommandedEngine) -> None:
        engine.policy(self.name, self.state)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.change_query(self.name, state=self.state)


@dataclass(frozen=True)
class ShedLoad(_QueryCommand):
    """Limit the time per push of an overloaded query; None lifts the limit. A controller decides this, not a user.

    In a pipeline the limit ends with the run, and a budget set by the user replaces it.
    """

    key = "shed"
    do: ClassVar[Action] = "budget"
    name: str
    limit: str | None

    @property
    def query(self) -> str:
        return self.name

    @property
    def value(self) -> str | None:
        return self.limit

    def apply(self, engine: CommandedEngine) -> None:
        if self.limit is None:
            engine.unbind(self.name)
        else:
            engine.budget(self.limit, query=self.name)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.change_query(self.name, shed=self.limit)


@dataclass(frozen=True)
class SetBudget(_QueryCommand):
    """Limit the probes of all queries or of one; without `probes` there is no limit. See `Engine.budget`."""

    key = "budget"
    name_field = "query"
    probes: float | str | None
    policy: str = "steady"
    query: str | None = None
    sample: int | None = None

    def check(self) -> None:
        if self.probes is not None:
            as_budget(self.probes, self.policy, self.sample)

    def apply(self, engine: CommandedEngine) -> None:
        engine.budget(self.probes, self.policy, self.query, self.sample)

    def configure(self, config: C, generation: int) -> C:
        del generation
        if self.query is not None:
            return config.change_query(self.query, bound=self, shed=None)
        return config.lift_own_budgets().set_order(self)


@dataclass(frozen=True)
class SetSchedule(_QueryCommand):
    """Set the scheduling strategy of all operators, or of a part of the graph. See `Engine.schedule`."""

    key = "schedule"
    name_field = None
    query: ClassVar[str | None] = None
    strategy: str
    part: str | None = None

    def apply(self, engine: CommandedEngine) -> None:
        engine.schedule(self.strategy, self.part)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.set_order(self)


@dataclass(frozen=True)
class Reslice(_QueryCommand):
    """Set how shared joins keep tuples: all joins, or those of one query. See `Engine.reslice`."""

    key = "reslice"
    name_field = "query"
    do: ClassVar[Action] = "reslice"
    slicing: Slicing
    query: str | None = None

    @property
    def value(self) -> str:
        return self.slicing

    def check(self) -> None:
        require_known(self.slicing, get_args(Slicing), "slicing")

    def apply(self, engine: CommandedEngine) -> None:
        engine.reslice(self.slicing, self.query)

    def configure(self, config: C, generation: int) -> C:
        del generation
        return config.set_order(self)


# ── event time ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Begin:
    """The first command of a control stream. It has no effect: it causes the first micro-batch."""

    key = "begin"

    def list_frontiers(self, streams: Iterable[str], end: int) -> list[tuple[str, int]]:
        """The streams that advance, each with its frontier. `streams`: all streams; `end`: the frontier of an end."""
        del streams, end
        return []


@dataclass(frozen=True)
class AdvanceStream:
    """No row of a stream before a time will come."""

    key = "advance"
    stream: str
    time: int

    def list_frontiers(self, streams: Iterable[str], end: int) -> list[tuple[str, int]]:
        del streams, end
        return [(self.stream, self.time)]


@dataclass(frozen=True)
class EndStreams:
    """No more rows of any stream will come."""

    key = "end"

    def list_frontiers(self, streams: Iterable[str], end: int) -> list[tuple[str, int]]:
        return [(stream, end) for stream in streams]


# ── the union and its codec ──────────────────────────────────────────────────────────────────────────────────────

StartCommand = AddQuery | DeriveStream
QueryCommand = (
    StartCommand | AlterQuery | DropQuery | Migrate | SetPolicy | ShedLoad | SetBudget | SetSchedule | Reslice
)
EngineCommand = Migrate | SetPolicy | ShedLoad | SetBudget | SetSchedule | Reslice
"""The commands that change engines alone: neither which rows a query reads nor where they go."""
TimeCommand = Begin | AdvanceStream | EndStreams
Command = QueryCommand | TimeCommand
AdaptCommand = Migrate | SetPolicy | Reslice | ShedLoad
"""The commands of a controller. `do` is the action, `query` the query, `value` the new setting."""
EngineOrder = SetSchedule | SetBudget | Reslice
"""The commands that set something of a whole engine; a later one of the same type and query replaces it."""

_BY_KEY: dict[str, type[Command]] = {kind.key: kind for kind in get_args(Command)}
ORDER_KEYS: tuple[str, ...] = tuple(kind.key for kind in get_args(EngineOrder))


def encode_command(command: Command) -> tuple[str, dict[str, Any]]:
    """The key of a command and its arguments, as values of JSON."""
    return command.key, {each.name: getattr(command, each.name) for each in fields(command)}


def decode_command(key: str, arguments: Mapping[str, Any]) -> Command:
    """The command of a key and arguments; BAD_COMMAND if there is none."""
    if key not in _BY_KEY:
        raise QueryError("BAD_COMMAND", f"a command is one of {', '.join(_BY_KEY)}, not {key!r}")
    try:
        return _BY_KEY[key](**arguments)
    except TypeError as error:
        raise QueryError("BAD_COMMAND", f"{key} does not take these arguments: {error}") from error


def decode_order(key: str, arguments: Mapping[str, Any]) -> EngineOrder:
    """The order of a key and arguments; UNKNOWN_ORDER or BAD_ORDER if there is none."""
    if key not in ORDER_KEYS:
        raise QueryError("UNKNOWN_ORDER", f"the orders are {', '.join(ORDER_KEYS)}, not {key!r}")
    try:
        return cast(EngineOrder, _BY_KEY[key](**arguments))
    except TypeError as error:
        raise QueryError("BAD_ORDER", f"{key} does not take these arguments: {error}") from error
