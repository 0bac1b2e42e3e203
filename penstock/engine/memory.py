"""The memory of an engine: what it holds, by kind, and what happens when a limit is near.

Law: under a limit, a push that finds too little memory gives back states first, then moves the oldest rows of windows
to disk, if there is a folder for them. If that is not enough the push is refused before anything has changed. Results
depend on none of this.

What is counted: windows (rows, lifetimes, key codes), indexes with the tables of key values, states of joins, pending
rows (in arcs, in sources, and results that no call has returned yet), the state of other operators such as aggregates,
static tables, and rejected rows (late and dead). Window rows on disk are reported as `spilled` and do not count.

Cost: counting visits all objects that hold state, so it is done after a part of the limit has arrived, not at every
push. As often, memory that allocators keep is returned to the system, before a push is read and after it. Without a
limit nothing is counted before `Engine.metrics` asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import numpy as np

from penstock.engine.components import EngineComponents
from penstock.engine.spill_folder import SpillFolder, make_spill_error
from penstock.engine.streams import ArrivedRows
from penstock.errors import ResourceError
from penstock.join import (
    JoinOperator,
    MatchForecast,
    count_state_rows,
    drop_states,
    free_rows,
    list_spillable,
    measure_join,
    spill_windows,
)
from penstock.ops import Batch, SourceOperator, mark_late
from penstock.state import HeldBytes, format_size, release_unused

KINDS = ("windows", "indexes", "states", "pending", "operators", "tables", "rejected")
_STEPS = 64
"""Memory is counted again when this part of the limit may have been added, ..."""
_PUSHES = 256
"""... or after so many pushes."""
_STATE_ROW = 64
"""About the bytes of a row in a state."""
_RELIEF = 0.75
"""Memory is given back down to this part of the threshold, so that the next pushes have room."""
_NO_ROWS = Batch(np.empty(0, np.int64), {})
_TUPLE_OVERHEAD = 64
"""About the bytes of lifetimes, key codes and index entries of a tuple."""


class MemoryControl:
    """Counts the memory of one engine and keeps it below the limit."""

    def __init__(self, components: EngineComponents) -> None:
        self._components = components
        options = components.options
        self.limit = options.memory
        self._threshold = 0 if self.limit is None else self.limit * options.maintenance.relief_share
        self._folder = None if options.spill is None else SpillFolder(options.spill)
        self._forecast = MatchForecast()
        self._held = self._reserve = self._added = self._pushes = self._state_rows = 0

    # ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def measure(self) -> dict[str, int]:
        """The bytes that the engine holds, by kind."""
        components, held = self._components, HeldBytes()
        sizes: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        sources = list(components.relations.streams)
        sizes["rejected"] = held.add(*(each for source in sources for each in (source.late, source.dead_letters)))
        sizes["pending"] = held.add(*(node.outlet.held_batches for node in components.graph if node.outlet))
        sizes["pending"] += held.add(*(source.held_batches for source in sources))
        for join in components.joins:
            sizes.update(measure_join(join, held))
        sizes["tables"] = held.add(vars(components.relations.tables))
        sizes["operators"] += held.add(*(node.operator for node in components.graph))
        return dict(sizes)

    def describe(self) -> dict[str, int | None]:
        """The limit, what is held in total and by kind, and what is on disk."""
        sizes = self.measure()
        return {"limit": self.limit, "held": sum(sizes.values()), **sizes, "spilled": self._count_spilled()}

    def _count_spilled(self) -> int:
        stores = (store for join in self._components.joins for store in join.tree.stores.values())
        return sum(column.spilled_bytes for store in stores for column in store.rows.spilled_columns)

    def _count_held(self, incoming: int, *, exactly: bool = False) -> int:
        """What is held, as counted when a part of the limit less had been added, or now."""
        assert self.limit is not None
        self._pushes += 1
        state_rows = sum(map(count_state_rows, self._components.joins))
        grown = self._added + incoming + _STATE_ROW * max(0, state_rows - self._state_rows)
        if exactly or not self._held or grown * _STEPS > self.limit or self._pushes > _PUSHES:
            self._held, self._added, self._pushes = sum(self.measure().values()), 0, 0
            self._state_rows, self._reserve = state_rows, self._sum_largest_columns()
            release_unused()  # so that the process has about what is counted
        return self._held + self._added

    def _sum_largest_columns(self) -> int:
        """The bytes of the largest column in memory of each window.

        It is copied when it grows, or when a part of it moves to disk. All windows may grow in one push, and the
        process gives the old copies back only afterwards.
        """
        stores = (store for join in self._components.joins for store in list_spillable(join))
        return sum(max((column.nbytes for column in store.rows.columns.values()), default=0) for store in stores)

    # ── a push ───────────────────────────────────────────────────────────────────────────────────────────────────

    def make_room(
        self, arrived: Collection[ArrivedRows], list_delivering: Callable[[], Collection[JoinOperator]] = tuple
    ) -> None:
        """Give memory back if a push would come near the limit. ResourceError if it would pass it.

        `list_delivering` lists the joins whose results leave during the push.
        """
        if self.limit is None:
            return
        incoming = sum(_estimate_bytes(rows) for rows in arrived)
        used = self._count_held(incoming) + self._reserve + incoming
        delivering = list_delivering()
        joins = [join for join in self._components.joins if join not in delivering]
        results = self._forecast.estimate_bytes(joins, self._list_arrivals(arrived), self._threshold - used)
        if not self._added:  # it was counted now
            release_unused()  # what the forecast has freed
        if used + results > self._threshold:
            self._give_back(incoming + results)
            if self._held + incoming + results > self.limit:
                spills = self._folder is not None
                raise _make_limit_error(self.limit, self._held, incoming, results, spills=spills)
        self._added += incoming

    def _list_arrivals(self, arrived: Collection[ArrivedRows]) -> dict[SourceOperator, Batch]:
        """The rows of a push by source, without late ones; of sources without a clock and of plain streams only."""
        found = {each: _NO_ROWS for each in self._components.relations.streams if type(each) is SourceOperator}
        for source, rows in ((each.source, each.rows) for each in arrived):
            if source in found:
                batch = Batch(rows.times, rows.columns)
                late = mark_late(rows.times, source.frontier)
                found[source] = batch.take(np.flatnonzero(~late)) if late.any() else batch
        return found

    def _give_back(self, incoming: int) -> None:
        goal = self._threshold * _RELIEF - incoming
        if self._count_held(0, exactly=True) + self._reserve + incoming <= self._threshold:
            return
        with self._components.guard.change():
            dropped = sum([drop_states(join) for join in self._components.joins])
        self._components.guard.complete_change()
        if dropped:
            self._count_held(0, exactly=True)
        if self._folder is not None and self._held + self._reserve > goal:
            self._spill(self._held + self._reserve - goal)
            self._count_held(0, exactly=True)

    def _spill(self, need: float) -> None:
        """Move about `need` bytes of window rows to disk, the oldest of every window."""
        assert self._folder is not None
        stores = [store for join in self._components.joins for store in list_spillable(join)]
        in_memory = sum(column.nbytes for store in stores for column in store.rows.columns.values())
        share = min(1.0, need / max(1, in_memory))
        try:
            spill_windows(dict.fromkeys(stores, share), self._folder.new_file)
        except OSError as error:
            raise make_spill_error(self._folder.parent, error) from error

    def end_push(self) -> None:
        """Delete the files of rows that have expired, and return what a large push has freed."""
        if self.limit is not None and self._added * _STEPS > self.limit:
            release_unused()
        if self._folder is not None:
            for join in self._components.joins:
                for store in join.tree.stores.values():
                    store.rows.drop_expired_files()

    def free_windows(self) -> None:
        """Free the rows of all windows without waiting for garbage collection. Nothing reads the engine any more.

        Results that were returned and not read yet copy what they need before, unless the engine is broken: then they
        are refused.
        """
        for join in self._components.joins:
            free_rows(join, copy_results=not self._components.guard.broken)

    def close(self) -> None:
        """Delete the files of the engine; rows in them can still be read."""
        if self._folder is not None:
            self._folder.remove()


def _estimate_bytes(arrived: ArrivedRows) -> int:
    """About the bytes that rows of a push take in the engine."""
    rows = arrived.rows
    return int(sum(column.nbytes for column in rows.columns.values())) + rows.times.size * _TUPLE_OVERHEAD


def _make_limit_error(limit: int, held: int, incoming: int, results: int, *, spills: bool) -> ResourceError:
    remedy = "shorter windows or fewer queries" if spills else "shorter windows, or Engine(spill=...), a folder on disk"
    needs, subscribe = f"about {format_size(incoming + results)}", ""
    if results > incoming:
        needs = f"{needs}, most of it for results"
        subscribe = "subscribe to the queries, which returns results in parts, "
    message = (
        f"the engine holds {format_size(held)} and the push needs {needs}, but the limit is {format_size(limit)}; "
        f"nothing was changed. Use {remedy}, {subscribe}push fewer tuples at a time, or raise the limit"
    )
    return ResourceError("MEMORY_LIMIT", message, limit=limit, held=held, needed=incoming + results)
