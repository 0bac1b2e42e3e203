"""A query's part in a join that it may share: which combinations are its own, and what it shows of them.

Law: of a batch's combinations, which come in temporal order, a member takes those whose parts all pass its filters
(its party's interest), lie within its windows and satisfy its own predicates; in the same order. With `ends` each is
written again, with sign -1, when the first of its parts leaves the member's window.

State: living rows, where ends are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.errors import QueryError
from penstock.expr.evaluate import evaluate, mask
from penstock.expr.nodes import Column
from penstock.join.leaf_store import Renumbering
from penstock.join.match_batch import Harvest, among
from penstock.join.sharing.interest import ages, ends
from penstock.join.sharing.shared_needs import Sharers
from penstock.ops.expirations import Lives
from penstock.ops.protocol import Batch, Outlet, in_order
from penstock.plan.join_sharing import Need
from penstock.state.alloc import taken
from penstock.state.code_set import Mask
from penstock.state.kernels import ALWAYS, I64

EVALUATION_ERRORS = (pa.ArrowException, ArithmeticError, ValueError, TypeError, RuntimeError)
"""What evaluating an expression may raise. Some of Arrow's are also a MemoryError: that is not the query's fault."""


def failed(what: str, error: Exception) -> QueryError:
    """A query that stops because something of it cannot be evaluated."""
    message = f"{what} could not be evaluated: {error}; drop the query and start it again with another text"
    stopped = QueryError("EVALUATION_FAILED", message)
    stopped.__cause__ = error
    return stopped


class Member:
    """One query's join. Without an outlet its rows are shown when somebody asks for them."""

    def __init__(
        self, name: str, need: Need, outlet: Outlet | None, renaming: Mapping[str, str], *, ends: bool
    ) -> None:
        self.name = name
        self.query = name.rpartition(": ")[0]
        self.need = need
        self.outlet = outlet
        self.renaming = renaming
        """The join's alias for each of the query's."""
        self.ends = ends
        self.party: Sharers
        self.lives: Lives
        self.failure: QueryError | None = None
        self.emitted = self.stale = 0
        self.complete_since = int(ALWAYS)
        """From this time on it lacks no result for having come late."""
        self.before = 0
        """How many results of its slices there were when it came."""
        self._number = 0
        self._formerly: list[tuple[int, Sharers]] = []

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def chosen(self, harvest: Harvest) -> I64 | None:
        """The positions of its combinations; None for all."""
        party = self._party_in(harvest)
        if self._covers(harvest):
            places = harvest.of(party, None)
        elif self.need.life is not None:
            places = harvest.of(party, self.need.life)
        else:
            places = harvest.wanted_of(party, among(None, harvest.rows.born < self._dies(harvest)))
        own = self._own(harvest, places)
        return places if own is None else among(places, own, narrowed=True)

    def _fresh(self, harvest: Harvest, places: I64 | None) -> I64 | None:
        """The combinations without a stale part; they leave at the instant they are born."""
        if not harvest.sheds or not self.need.ageing:
            return places
        young = [ages(harvest.rows.born, harvest.born[alias]) <= bound for alias, bound in self.need.ageing]
        fresh = among(places, np.logical_and.reduce(young))
        before = len(harvest) if places is None else places.size
        self.stale += before - (len(harvest) if fresh is None else fresh.size)
        return fresh

    def move(self, party: Sharers, times: int) -> None:
        """Its party has become one with another, as the so-many-th."""
        self._formerly.append((times, self.party))
        self.party = party

    def _party_in(self, harvest: Harvest) -> Sharers:
        """Its party when a harvest was brought in: it may be shown long after."""
        return next((party for times, party in self._formerly if harvest.parties < times), self.party)

    def _covers(self, harvest: Harvest) -> bool:
        """Whether the join has no wider windows than this query."""
        return self.need.lives == harvest.widest

    def _own(self, harvest: Harvest, places: I64 | None) -> Mask | None:
        """Which of its rows satisfy the predicates that others do not have."""
        own = self.need.residuals - harvest.tested
        if not own:
            return None
        return mask(tuple(own), harvest.reading(places), len(harvest) if places is None else places.size)

    def _dies(self, harvest: Harvest) -> I64:
        """When combinations leave the member's windows."""
        life = self.need.life
        if self._covers(harvest):
            return harvest.rows.dies
        if life is not None:
            dies = ends(harvest.oldest, np.full(len(harvest), life))
        else:
            full = [ends(harvest.born[alias], np.full(len(harvest), life)) for alias, life in self.need.lives]
            dies = reduce(np.minimum, full)
        return dies if harvest.counted is None else np.minimum(dies, harvest.counted)

    # ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def shown(self, harvest: Harvest) -> Batch | None:
        """The rows it shows, without ends; None if it has stopped, or stops at them."""
        return self._unless_failing(harvest, ())

    def _unless_failing(self, harvest: Harvest, mortal: Sequence[int]) -> Batch | None:
        if self.failure is not None:
            return None
        try:
            return self.births(harvest, mortal)
        except MemoryError:
            raise
        except EVALUATION_ERRORS as error:
            self.failure = failed(self.name, error)
            return None

    def births(self, harvest: Harvest, mortal: Sequence[int]) -> Batch:
        """The rows it shows; `mortal` are the places of ids whose rows die by a count."""
        places = self._fresh(harvest, self.chosen(harvest))
        count = len(harvest) if places is None else places.size
        read = harvest.reading(places)
        columns = {
            name: read(expr) if isinstance(expr, Column) else evaluate(expr, read, count)
            for name, expr in self.need.outputs
        }
        born = harvest.rows.born if places is None else taken(harvest.rows.born, places)
        if not self.ends:
            return Batch(born, columns)
        numbers = np.arange(self._number, self._number + count)
        self._number += count
        at = slice(None) if places is None else places
        self.lives.add(self._dies(harvest)[at], numbers, harvest.rows.ids[list(mortal)][:, at], columns)
        return Batch(born, columns, np.ones(count, np.int8), numbers)

    def living(self, harvest: Harvest, bound: int, mortal: Sequence[int]) -> Batch:
        """As `births`, of those that die after `bound` in the member's windows."""
        return self.births(harvest.take(np.flatnonzero(self._dies(harvest) > bound)), mortal)

    def write(self, harvest: Harvest | None, until: int, mortal: Sequence[int]) -> None:
        """Write what is born in this batch and what dies by `until`."""
        assert self.outlet is not None
        born = None if harvest is None else self._unless_failing(harvest, mortal)
        dead = self.lives.due(until) if self.ends else None  # after the births: some die at once
        batch = in_order(dead, born)
        if batch is not None:
            self.emitted += len(batch)
            self.outlet.write(batch)

    def advance(self, frontier: int) -> None:
        """Nothing before `frontier` will be written any more."""
        assert self.outlet is not None
        self.outlet.advance(frontier)

    def renumber(self, renumbered: Mapping[str, Renumbering], mortal: Sequence[str]) -> None:
        for place, alias in enumerate(mortal):
            if alias in renumbered:
                self.lives.renumber(place, renumbered[alias])
