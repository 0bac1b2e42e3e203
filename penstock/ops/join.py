"""The join operator: k inputs merged by time, one output of changes.

Law: for every combination of its inputs' tuples that satisfies the plan and lives in [born, dies) the operator writes
the outputs of that combination at `born` with sign +1 and, if ends are asked for, at `dies` with sign -1; in temporal
order, each once, whatever the sizes of the batches. Under a budget some combinations are missing, none is added.

It works up to the smallest frontier of its inputs. `strict` holds an instant back until all of its tuples are there:
needed where a tuple may end another one of the same instant (ROWS), or where an instant is reported as a whole.
State: a `JoinTree`, and the living rows if ends are asked for. Cost: see the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import Expr
from penstock.ops.join_node import JoinNode
from penstock.ops.join_tree import JoinTree, Policy
from penstock.ops.leaf_node import LeafNode
from penstock.ops.lives import Lives
from penstock.ops.merge import bound_of, cut, ready
from penstock.ops.operator import Batch, Inlet, Outlet, concat
from penstock.ops.parallel_track import ParallelTrack
from penstock.ops.shedding import Shedding
from penstock.plan.physical import JoinPlan
from penstock.state.kernels import ALWAYS, I64
from penstock.state.rows import Rows

Migration = Literal["jisc", "moving-state", "parallel-track"]


@dataclass(frozen=True)
class Arrivals:
    """An input of the join: the arc it reads, and the alias whose leaf it feeds.

    A query added under way takes tuples that arrived from number `since` on, not those still held back then.
    """

    alias: str
    inlet: Inlet
    since: int = 0


class JoinOperator:
    """Any number of streams and static tables, joined over their windows."""

    def __init__(
        self,
        id_: str,
        plan: JoinPlan,
        outputs: Mapping[str, Expr],
        arrivals: Sequence[Arrivals],
        tables: Mapping[str, pa.Table],
        outlet: Outlet,
        *,
        ends: bool,
        strict: bool,
        policy: Policy,
    ) -> None:
        self.id = id_
        self._arrivals = tuple(arrivals)
        self._inlets = [arrival.inlet for arrival in arrivals]
        self._outputs = dict(outputs)
        self._outlet = outlet
        self._ends = ends
        self._strict = strict or any(leaf.source.window and leaf.source.window.kind == "rows" for leaf in plan.leaves)
        self.tree = JoinTree(plan, policy)
        self._track: ParallelTrack | None = None
        self._fresh_for = {leaf.alias: leaf.source.freshness for leaf in plan.leaves if leaf.source.freshness}
        self.unprobed: Counter[str] = Counter()
        self._stale = 0
        self._mortal = [alias for alias, store in self.tree.stores.items() if store.rows_window]
        self._lives = Lives([partial(self._dies_now, alias) for alias in self._mortal])
        self._done = int(ALWAYS)
        self._number = 0
        self._emitted = 0
        for alias, table in tables.items():
            columns = {name: table.column(name).combine_chunks() for name in table.column_names}
            self.tree.stores[alias].load(columns, table.num_rows)
        if tables:
            self.tree.rebuild(plan)

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def more(self) -> bool:
        bound = bound_of(self._inlets, whole=self._strict)
        return bound > self._done or ready(self._inlets, bound)

    def awaits(self) -> int | None:
        due = self._lives.next_due() if self._ends else None
        return due if due is None or not self._strict else due + 1

    def run(self, budget: int) -> int:
        bound = bound_of(self._inlets, whole=self._strict)
        until = cut(self._inlets, bound, budget)
        taken = self._ingest(until)
        self._emit(self._step() if taken else None, until)
        if until == bound:
            self._outlet.advance(bound + 1 if self._strict else bound)
        return taken

    def metrics(self) -> dict[str, object]:
        stores, nodes = self.tree.stores, list(self.tree.nodes())
        shedding = self.tree.shedding
        exact = shedding is None or not (shedding.lost_at or self.tree.incomplete)
        return {
            "rows_in": {alias: store.seen for alias, store in stores.items()},
            "window_rows": {alias: len(store) for alias, store in stores.items()},
            "state_rows": {str(node.plan.tree): len(node.state) for node in nodes if node.state is not None},
            "built": {str(node.plan.tree): node.built for node in nodes},
            "completed": {str(node.plan.tree): node.completed for node in nodes if node.completed},
            "live_rows": {str(node.plan.tree): node.alive(self._done) for node in nodes if node.state is not None},
            "resumed": {str(node.plan.tree): node.resumed for node in nodes},
            "suppressed": {str(part.plan.tree): dict(part.held) for part in self.tree.parts()},
            "probes": {str(part.plan.tree): part.probes for part in self.tree.parts()},
            "sought": {leaf.plan.alias: leaf.sought for leaf in self.tree.parts() if isinstance(leaf, LeafNode)},
            "tested": {str(node.plan.tree): node.gate.tested for node in nodes if node.gate is not None},
            "demanded_keys": {str(n.plan.tree): len(n.gate) for n in nodes if n.gate is not None and n.gate.shut},
            "incomplete": [str(node.plan.tree) for node in nodes if node.complete_keys is not None],
            "bytes": sum(store.nbytes for store in stores.values())
            + sum(node.state.nbytes for node in nodes if node.state is not None)
            + sum(node.gate.nbytes for node in nodes if node.gate is not None),
            "unprobed": dict(self.unprobed),
            "stale": self._stale,
            "completeness": 1.0 if exact or shedding is None else shedding.completeness(),
            "waiting": self.unread(),
            "living": len(self._lives),
            "emitted": self._emitted,
        }

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ingest(self, until: int) -> int:
        arrived = {
            arrival.alias: [_since(batch, arrival.since) for batch in arrival.inlet.read(until)]
            for arrival in self._arrivals
        }
        taken = sum(len(batch) for batches in arrived.values() for batch in batches)
        if taken and self.tree.shedding is not None:
            times = [batch.times for batches in arrived.values() for batch in batches if len(batch)]
            self.tree.shedding.begin(min(int(part[0]) for part in times), max(int(part[-1]) for part in times))
        self.tree.pace(int(taken * self.tree.policy.pace))  # before the batch: it will ask for less
        for alias, batches in arrived.items():
            store = self.tree.stores[alias]
            store.settle()
            if batches:
                batch = concat(batches)
                store.ingest(batch.times, batch.columns)
                if self._track is not None:
                    self._track.ingest(alias, batch.times, batch.columns)
        return taken

    def _step(self) -> Rows:
        rows = self.tree.step()
        if self.tree.shedding is not None:
            self.unprobed += self.tree.shedding.taken_unprobed()
            return self._without_stale(rows)
        return rows if self._track is None else self._track.step(rows)

    def _without_stale(self, rows: Rows) -> Rows:
        """Rows without a part older than the freshness of its stream; a row leaves at the instant it is born."""
        fresh = np.ones(len(rows), np.bool_)
        for place, alias in enumerate(self.tree.plan.root.aliases):
            if alias in self._fresh_for:
                fresh &= rows.born - self.tree.stores[alias].lives(rows.ids[place])[0] <= self._fresh_for[alias]
        stale = len(rows) - int(np.count_nonzero(fresh))
        self._stale += stale
        return rows.take(fresh) if stale else rows

    def _emit(self, rows: Rows | None, until: int) -> None:
        born = None if rows is None or not len(rows) else self._births(rows)
        dead = self._lives.due(until) if self._ends else None
        renumbered = self.tree.settle(until)
        if not self._ends and not isinstance(self.tree.root, JoinNode) and not self._mortal:
            self.tree.root.store.clear()
        for place, alias in enumerate(self._mortal):
            if alias in renumbered:
                self._lives.renumber(place, renumbered[alias])
        if self._track is not None and self._track.settle(until):
            self.tree, self._track = self._track.tree, None
        self._done = max(self._done, until)
        changes = [batch for batch in (dead, born) if batch is not None]
        if changes:
            batch = concat(changes)
            if len(changes) > 1:  # within an instant, rows leave before others enter
                batch = batch.take(np.argsort(batch.times, kind="stable"))
            self._emitted += len(batch)
            self._outlet.write(batch)

    def _births(self, rows: Rows) -> Batch:
        order = np.argsort(rows.born, kind="stable")
        rows = rows.take(order)
        read = self.tree.reader(self.tree.plan.root, rows)
        columns = {name: evaluate(expr, read, len(rows)) for name, expr in self._outputs.items()}
        if not self._ends:
            return Batch(rows.born, columns)
        numbers = np.arange(self._number, self._number + len(rows))
        self._number += len(rows)
        self._remember(rows, numbers, columns)
        return Batch(rows.born, columns, np.ones(len(rows), np.int8), numbers)

    def _dies_now(self, alias: str, ids: I64) -> I64:
        return self.tree.stores[alias].dies_now(ids)

    def _remember(self, rows: Rows, numbers: I64, columns: Mapping[str, pa.Array]) -> None:
        aliases = self.tree.plan.root.aliases
        self._lives.add(rows.dies, numbers, rows.ids[[aliases.index(alias) for alias in self._mortal]], columns)

    # ── change and rest ──────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, policy: Policy, node: frozenset[str] | None = None) -> None:
        """Change what is kept, in the whole tree or in the node over some aliases."""
        self.tree.adopt(policy, node)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Go on with another tree: what it lacks is completed when needed, or at once, or comes with time.

        A parallel track that was still running is left behind: the old tree has all it has. Under a budget there is
        none, because it would do all work twice: the new tree takes over at once.
        """
        if how == "parallel-track" and self.tree.shedding is None:
            self._track = ParallelTrack(self.tree, plan)
            return
        self._track = None
        if how != "moving-state":
            self.tree.rearrange(plan)
        else:
            self.tree.rebuild(plan)

    def shed(self, shedding: Shedding | None) -> None:
        """Keep to a budget from now on, or no longer. A parallel track ends as a change of the plan in place."""
        track, self._track = self._track, None
        self.tree.shed(shedding)
        if track is not None:
            self.tree.rearrange(track.tree.plan)

    @property
    def done(self) -> int:
        """The last instant that was worked on."""
        return self._done

    def unread(self) -> dict[str, int]:
        """How many tuples of each input wait."""
        return {arrival.alias: arrival.inlet.waiting() for arrival in self._arrivals}

    def since(self) -> dict[str, int]:
        """The first arrival number that counts, for each input."""
        return {arrival.alias: arrival.since for arrival in self._arrivals}

    def dump(self) -> dict[str, pa.Table]:
        """The base windows of the streams, by alias."""
        return {arrival.alias: self.tree.stores[arrival.alias].dump(self._done) for arrival in self._arrivals}

    def revive(
        self, windows: Mapping[str, pa.Table], unread: Mapping[str, int], since: Mapping[str, int]
    ) -> Batch | None:
        """Start from dumped windows: what lived then lives again. Nothing is written: the caller gets the living."""
        self._arrivals = tuple(replace(arrival, since=since[arrival.alias]) for arrival in self._arrivals)
        for arrival in self._arrivals:
            arrival.inlet.rewind(unread[arrival.alias])
        for alias, table in windows.items():
            self.tree.stores[alias].revive(table)
        if self._ends or not self.tree.policy.lazy:
            rows = self.tree.rebuild(self.tree.plan)
            return self._births(rows) if self._ends else None
        for store in self.tree.stores.values():
            store.settle()
        self.tree.restart()
        return None


def _since(batch: Batch, number: int) -> Batch:
    if batch.numbers is None or batch.numbers.min(initial=number) >= number:
        return batch
    return batch.take(np.flatnonzero(batch.numbers >= number))
