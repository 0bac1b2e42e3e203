"""The inputs of a join: its arcs, how far it has read them, and the streams that an early node reads ahead.

Law: the join works up to the smallest frontier of its inputs. `strict` defers an instant until all of its tuples are
there; it is needed where a tuple may end another one of the same instant (ROWS), and saves turns where all results are
reported per instant. An early node works up to the smallest frontier of its own streams only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.join.early_reader import EarlyReader
from penstock.join.leaf_store import LeafStore
from penstock.ops import LAST_INSTANT, Batch, Inlet, SourceOperator, compute_bound, find_cut, has_ready
from penstock.state import ALWAYS, FOREVER


@dataclass(frozen=True)
class JoinInput:
    """An input of the join: the arc it reads, and the alias whose leaf it feeds."""

    alias: str
    inlet: Inlet


class JoinSource(NamedTuple):
    """A source, and the arc from it to the join."""

    source: SourceOperator
    inlet: Inlet


class JoinInputs:
    """The arcs of one join, merged by time."""

    def __init__(self, inputs: Sequence[JoinInput], *, strict: bool) -> None:
        self.strict = strict
        self.done = int(ALWAYS)
        """The time up to which all results are known."""
        self.complete = int(ALWAYS)
        """The time up to which queries that wait for whole instants have all results."""
        self.early: EarlyReader | None = None
        """The position of an early node, while queries read one."""
        self.limit = int(FOREVER)
        """The join works up to here, until the rows of a table have been replaced."""
        self._inputs = tuple(inputs)
        self._inlets = [each.inlet for each in inputs]
        self._by_alias = [(each.alias, each.inlet) for each in inputs]

    def has_work(self) -> bool:
        bound, inlets = self._find_bound()
        if bound > self.done or has_ready(inlets, bound):
            return True
        if self.limit < LAST_INSTANT and self.has_reached_limit():
            return True
        if self.complete < self.done and self.find_complete(self.done) > self.complete:
            return True
        if self.early is None:
            return False
        ahead = list(self.early.inlets.values())
        bound = self.find_early_bound()
        return bound > self.early.done or has_ready(ahead, bound)

    def has_reached_limit(self) -> bool:
        """Whether everything up to the limit has been read, and nothing up to it can come any more."""
        if self.limit >= LAST_INSTANT:
            return False
        frontier = compute_bound(self._inlets, whole=False)
        ahead = frontier if self.early is None else self.early.done
        return min(self.done, ahead) >= self.limit < frontier and not has_ready(self._inlets, self.limit)

    def find_early_bound(self) -> int:
        """How far an early node may go."""
        assert self.early is not None
        return min(compute_bound(list(self.early.inlets.values()), whole=False), self.limit)

    def has_rows(self) -> bool:
        """Whether a tuple waits that may be read."""
        bound, inlets = self._find_bound()
        return has_ready(inlets, bound)

    def _find_bound(self) -> tuple[int, Sequence[Inlet]]:
        """How far the whole join may go, and the inlets it reads then: an early node has read its own."""
        bound = min(max(compute_bound(self._inlets, whole=self.strict), self.done), self.limit)
        if self.early is None:
            return bound, self._inlets
        ahead = self.early.inlets
        return min(bound, self.early.done), [each.inlet for each in self._inputs if each.alias not in ahead]

    def find_complete(self, until: int) -> int:
        """The last instant up to a time of which all tuples are there."""
        return min(until, compute_bound(self._inlets, whole=True))

    def find_cut(self, budget: int) -> int:
        """The time up to which a turn reads that takes about `budget` tuples."""
        bound, inlets = self._find_bound()
        return find_cut(inlets, bound, budget)

    def read(self, until: int) -> dict[str, list[Batch]]:
        """The tuples up to a time, by alias, without the streams of an early node."""
        if self.early is None:
            return {alias: inlet.read(until) for alias, inlet in self._by_alias}
        ahead = self.early.inlets
        return {alias: inlet.read(until) for alias, inlet in self._by_alias if alias not in ahead}

    def find_sources(self, sources: Iterable[SourceOperator]) -> dict[str, JoinSource] | None:
        """By alias the source that its arc comes from; None if one comes from none of these."""
        found = {}
        for each in self._inputs:
            source = next((source for source in sources if each.inlet.reads(source.outlet)), None)
            if source is None:
                return None
            found[each.alias] = JoinSource(source, each.inlet)
        return found

    @property
    def aliases(self) -> list[str]:
        return [each.alias for each in self._inputs]

    def unread(self) -> dict[str, int]:
        """How many tuples of each input wait."""
        return {each.alias: each.inlet.waiting() for each in self._inputs}

    def rewind(self, unread: Mapping[str, int]) -> None:
        """Read the last tuples of inputs again, so that so many wait."""
        for each in self._inputs:
            if each.alias in unread:
                each.inlet.rewind(unread[each.alias])

    def open_early(self, aliases: frozenset[str], stores: Mapping[str, LeafStore]) -> EarlyReader:
        """Let a node over some aliases read ahead, from where the join is."""
        if self.early is None:
            inlets = {each.alias: each.inlet for each in self._inputs if each.alias in aliases}
            self.early = EarlyReader(inlets, stores, self.done)
        return self.early

    def close_early(self) -> None:
        """No node reads ahead any more."""
        if self.early is not None:
            self.early.close()
            self.early = None
