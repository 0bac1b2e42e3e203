"""The options of an engine that a snapshot keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from penstock.errors import QueryError, require_known
from penstock.join import POLICIES, DemandFilter, Slicing
from penstock.state import Maintenance, parse_size

DEMAND_FILTERS = get_args(DemandFilter)


@dataclass(frozen=True)
class EngineOptions:
    """See `Engine` for what they mean. A wrong value is refused with a QueryError."""

    state: str
    demand: DemandFilter
    batch: int
    share: bool
    slicing: Slicing
    max_queries: int
    maintenance: Maintenance
    memory: int | None = None
    """In bytes."""
    spill: str | None = None

    @classmethod
    def limit_memory(cls, memory: int | str | None, spill: str | Path | None) -> tuple[int | None, str | None]:
        """The limit in bytes and the folder as text."""
        if spill is not None and not isinstance(spill, (str, Path)):
            raise QueryError("BAD_FOLDER", f"spill is the path of a folder, not {spill!r}")
        return None if memory is None else parse_size(memory), None if spill is None else str(spill)

    def __post_init__(self) -> None:
        if self.spill is not None and self.memory is None:
            message = 'spill is used when memory is scarce: give a limit too, as Engine(memory="2 GB", spill="dir")'
            raise QueryError("NO_MEMORY_LIMIT", message)
        if not _is_positive(self.batch):
            message = f"batch is the number of tuples per turn, at least 1, not {self.batch!r}"
            raise QueryError("BAD_BATCH", message)
        if not _is_positive(self.max_queries):
            message = f"max_queries is a number of queries, at least 1, not {self.max_queries!r}"
            raise QueryError("BAD_LIMIT", message)
        require_known(self.slicing, get_args(Slicing), "slicing")
        require_known(self.state, tuple(POLICIES), "state policy")
        require_known(self.demand, DEMAND_FILTERS, "way to keep demand")

    def choose_policy(self, state: str | None, demand: DemandFilter | None) -> tuple[str, DemandFilter]:
        """The state policy of a query: the one it was given, else the engine's."""
        state = self.state if state is None else state
        require_known(state, tuple(POLICIES), "state policy")
        if demand is None:
            return state, self.demand
        require_known(demand, DEMAND_FILTERS, "way to keep demand")
        if POLICIES[state].gated == "never":
            message = f"the state policy {state} keeps no demand, so {demand} has no effect; jit and auto keep it"
            raise QueryError("NO_DEMAND", message, state=state)
        return state, demand


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
