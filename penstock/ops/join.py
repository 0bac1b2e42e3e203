"""The join operator: k inputs merged by time, one output of changes for every query that shares it.

Law: for every combination of its inputs' tuples that satisfies the plan and lives in [born, dies) the operator gives
each member that wants it the member's outputs of that combination at `born` with sign +1 and, if the member asks for
ends, at the end of its own windows with sign -1; in temporal order, each once, whatever the sizes of the batches.

It works up to the smallest frontier of its inputs. `strict` holds an instant back until all of its tuples are there:
needed where a tuple may end another one of the same instant (ROWS), or where an instant is reported as a whole.
State: a `JoinTree`, and the members' living rows if they ask for ends. Cost: that of the tree with the widest windows,
whatever the number of members, and for each member what it is asked to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.expr.evaluate import mask
from penstock.ops.join_node import JoinNode
from penstock.ops.join_tree import POLICIES, JoinTree
from penstock.ops.leaf_node import LeafNode
from penstock.ops.lives import Lives
from penstock.ops.member import Harvest, Member
from penstock.ops.merge import bound_of, cut, ready
from penstock.ops.operator import Batch, Inlet, concat
from penstock.ops.parallel_track import ParallelTrack
from penstock.ops.sharing import Sharers, Sharing, Since
from penstock.ops.slices import SliceCounts
from penstock.plan.physical import JoinPlan
from penstock.plan.query import JoinPart
from penstock.plan.tree import renamed
from penstock.state.codeset import Mask
from penstock.state.interest import Interest
from penstock.state.kernels import ALWAYS, I32, I64
from penstock.state.leaf import SCATTERED
from penstock.state.rows import Rows

_TIGHT = 1 / 20
_UNITES_EVERY = 16

Migration = Literal["jisc", "moving-state", "parallel-track"]


@dataclass(frozen=True)
class Arrivals:
    """An input of the join: the arc it reads, and the alias whose leaf it feeds."""

    alias: str
    inlet: Inlet


class JoinOperator:
    """Any number of streams and static tables, joined over their windows, for one query or for many."""

    def __init__(
        self,
        id_: str,
        part: JoinPart,
        first: Member,
        since: Since,
        arrivals: Sequence[Arrivals],
        tables: Mapping[str, pa.Table],
        *,
        strict: bool,
        state: str,
    ) -> None:
        self.id = id_
        self.state = state
        """The name of its policy."""
        self.members: list[Member] = []
        self._arrivals = tuple(arrivals)
        self._inlets = [arrival.inlet for arrival in arrivals]
        self._strict = strict or any(source.window and source.window.kind == "rows" for source in part.sources)
        self.sharing = Sharing(part)
        self._mortal = [s.alias for s in part.sources if s.window is not None and s.window.kind == "rows"]
        self._admit(first, since)
        self.tree = JoinTree(self.sharing.plan(part.plan.tree), POLICIES[state])
        self._track: ParallelTrack | None = None
        self._done = int(ALWAYS)
        self._runs = 0
        self._united = 0
        self._revived: tuple[Harvest, int] | None = None
        self._counts: dict[Sharers, SliceCounts] = {}
        self._harvests: list[Harvest] = []
        self._overlook()
        for alias, table in tables.items():
            columns = {name: table.column(name).combine_chunks() for name in table.column_names}
            self.tree.stores[alias].load(columns, table.num_rows)
        if tables:
            self.tree.rebuild(self.tree.plan)

    # ── who shares it ────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, member: Member, since: Since) -> None:
        member.party = self.sharing.enter(member.need, since)
        member.lives = Lives([partial(self._dies_now, alias) for alias in self._mortal])
        self.members.append(member)
        self._sliced = False

    @property
    def _writing(self) -> list[Member]:
        """The members that write what they show at once."""
        return [member for member in self.members if member.outlet is not None]

    def enter(self, member: Member, since: Since) -> None:
        """Take in one more query, between two batches. It takes tuples from the arrivals `since` on."""
        before = list(self.sharing.parties)
        self._admit(member, since)
        member.before = self._slices(member.party).within(member.need.life or 0)
        self._share(before)

    def leave(self, member: Member) -> None:
        """Let a query go; what only it wanted is freed."""
        before = list(self.sharing.parties)
        self.members.remove(member)
        self.sharing.leave(member.need, member.party)
        self._sliced = False
        if self.members:
            self._share(before)

    def _share(self, before: Sequence[Sharers]) -> None:
        """Make the tree fit those who share it now. Interest is told apart while there are two parties."""
        parties = self.sharing.parties
        plan, interest = self.sharing.plan(self.tree.plan.tree), self.sharing.interest()
        self._overlook()
        same_reach = len(parties) == 1 or (self.tree.interest and self.tree.interest.parties == interest.parties)
        if plan == self.tree.plan and parties == before and same_reach:
            return
        if self._track is not None:  # the old tree has everything; the new shape is reached from there
            plan, self._track = self.sharing.plan(self._track.tree.plan.tree), None
        self.tree.share(plan, interest if len(parties) > 1 else None, self._recoded(interest, before))
        for store in self.tree.stores.values():
            store.slack = _TIGHT if len(parties) > 1 and len(self.tree.stores) == 2 else SCATTERED

    def _overlook(self) -> None:
        """Sum up what is asked of results."""
        self._gathers = self.sharing.shown()
        self._widest = tuple(sorted(self.sharing.longest().items()))
        self._sliced = False

    def _recoded(self, interest: Interest, before: Sequence[Sharers]) -> dict[str, I32]:
        """Who wants the tuples there are: those of the parties from before that wanted them already."""
        kept = [before.index(party) if party in before else None for party in self.sharing.parties]
        old = interest.code(place for place, party in enumerate(kept) if party is not None)
        everybody = interest.code(range(len(kept)))
        wanted = {}
        for alias, store in self.tree.stores.items():
            ids = store.stored()
            if store.plan.source.is_table:
                wanted[alias] = np.full(ids.size, everybody, np.int32)
            elif self.tree.interest is None:
                wanted[alias] = np.full(ids.size, old, np.int32)
            else:
                wanted[alias] = interest.survivors(store.wanted(ids), self.tree.interest, kept)
        return wanted

    def _unite(self) -> None:
        """Make one of two parties with the same filters, once tuples that only one of them wants are gone."""
        interest, before = self.tree.interest, list(self.sharing.parties)
        if interest is None or len({party.filters for party in before}) == len(before):
            return
        held = [store.wanted(store.stored()) for store in self.tree.stores.values() if not store.plan.source.is_table]
        for later, earlier in combinations(reversed(before), 2):
            drained = max(later.since.drained, earlier.since.drained) < self._done
            if later.filters == earlier.filters and drained and later in self.sharing.parties:
                places = before.index(later), before.index(earlier)
                if all(interest.agree(*places, codes) for codes in held):
                    self._merge(later, earlier)
        if before != self.sharing.parties:
            self._share(before)

    def _merge(self, party: Sharers, into: Sharers) -> None:
        moving = [member for member in self.members if member.party is party]
        for member in moving:
            member.emitted = self.emitted(member)
        self.sharing.merge(party, into)
        self._sliced = False
        self._united += 1
        for member in moving:
            member.move(into, self._united)
            member.before = self._slices(into).within(member.need.life or 0)

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def more(self) -> bool:
        bound = bound_of(self._inlets, whole=self._strict)
        return bound > self._done or ready(self._inlets, bound)

    def awaits(self) -> int | None:
        dues = [due for member in self._writing if member.ends and (due := member.lives.next_due()) is not None]
        return min(dues) + self._strict if dues else None

    def run(self, budget: int) -> int:
        self._revived = None
        bound = bound_of(self._inlets, whole=self._strict)
        until = cut(self._inlets, bound, budget)
        taken = self._ingest(until)
        self._emit(self._step() if taken else None, until)
        if until == bound:
            for member in self._writing:
                member.advance(bound + 1 if self._strict else bound)
        return taken

    def metrics(self, names: Mapping[str, str] | None = None) -> dict[str, object]:
        """What the join has read, holds and has built; `names` are other aliases to tell it in."""
        names = names or {alias: alias for alias in self.tree.stores}
        stores = {names[alias]: store for alias, store in self.tree.stores.items()}
        parts = {str(renamed(part.plan.tree, names)): part for part in self.tree.parts()}
        nodes = {name: part for name, part in parts.items() if isinstance(part, JoinNode)}
        states = {name: node.state for name, node in nodes.items() if node.state is not None}
        gates = {name: node.gate for name, node in nodes.items() if node.gate is not None}
        return {
            "rows_in": {alias: store.seen for alias, store in stores.items()},
            "window_rows": {alias: len(store) for alias, store in stores.items()},
            "state_rows": {name: len(state) for name, state in states.items()},
            "built": {name: node.built for name, node in nodes.items()},
            "completed": {name: node.completed for name, node in nodes.items() if node.completed},
            "live_rows": {name: nodes[name].alive(self._done) for name in states},
            "resumed": {name: node.resumed for name, node in nodes.items()},
            "suppressed": {name: dict(part.held) for name, part in parts.items()},
            "probes": {name: part.probes for name, part in parts.items()},
            "sought": {name: part.sought for name, part in parts.items() if isinstance(part, LeafNode)},
            "tested": {name: gate.tested for name, gate in gates.items()},
            "demanded_keys": {name: len(gate) for name, gate in gates.items() if gate.shut},
            "incomplete": [name for name, node in nodes.items() if node.complete_keys is not None],
            "bytes": sum(store.nbytes for store in stores.values())
            + sum(state.nbytes for state in states.values())
            + sum(gate.nbytes for gate in gates.values()),
            "waiting": {names[alias]: rows for alias, rows in self.unread().items()},
            "members": len(self.members),
        }

    def emitted(self, member: Member) -> int:
        """How many changes a member was given."""
        if member.outlet is not None:
            return member.emitted
        return member.emitted + self._slices(member.party).within(member.need.life or 0) - member.before

    def _slices(self, party: Sharers) -> SliceCounts:
        """The results of a party by slice."""
        if not self._sliced:
            known = self._counts
            self._counts = {
                each: known[each].resliced(each.windows()) if each in known else SliceCounts(each.windows())
                for each in self.sharing.parties
            }
            self._sliced = True
        return self._counts[party]

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ingest(self, until: int) -> int:
        arrived = {arrival.alias: arrival.inlet.read(until) for arrival in self._arrivals}
        taken = sum(len(batch) for batches in arrived.values() for batch in batches)
        self.tree.pace(int(taken * self.tree.policy.pace))  # before the batch: it will ask for less
        for alias, batches in arrived.items():
            store = self.tree.stores[alias]
            store.settle()
            if batches:
                batch, wanted = self._admitted(alias, concat(batches))
                store.ingest(batch.times, batch.columns, wanted)
                if self._track is not None:
                    self._track.ingest(alias, batch.times, batch.columns, wanted)
        return taken

    def _admitted(self, alias: str, batch: Batch) -> tuple[Batch, I32 | None]:
        """The tuples that count for somebody and, if there are several parties, for whom."""
        interest = self.tree.interest
        parties = self.sharing.parties
        first = min(party.first(alias) for party in parties)
        batch = _since(batch, first)
        if interest is None:
            return batch, None
        return batch, interest.codes([self._passing(party, alias, batch) for party in parties], len(batch))

    def _passing(self, party: Sharers, alias: str, batch: Batch) -> Mask | None:
        """Which tuples a party wants; None for all."""
        filters, since = party.filters_of(alias), party.first(alias)
        passing = None if not filters else mask(filters, lambda column: batch.columns[column.name], len(batch))
        if batch.numbers is None or batch.numbers.min(initial=since) >= since:
            return passing
        came = batch.numbers >= since
        return came if passing is None else passing & came

    def _step(self) -> Rows:
        rows = self.tree.step()
        return rows if self._track is None else self._track.step(rows)

    def _emit(self, rows: Rows | None, until: int) -> None:
        harvest = self._harvest(rows) if rows is not None and len(rows) else None
        mortal = self._mortal_places()
        for member in self._writing:
            member.write(harvest, until, mortal)
        if harvest is not None and len(self._writing) < len(self.members):
            self._keep(harvest)
        renumbered = self.tree.settle(until)
        if not isinstance(self.tree.root, JoinNode) and not self._mortal and not any(m.ends for m in self.members):
            self.tree.root.store.clear()
        for member in self._writing:
            member.renumber(renumbered, self._mortal)
        if self._track is not None and self._track.settle(until):
            self.tree, self._track = self._track.tree, None
        self._done = max(self._done, until)
        self._runs += 1
        if not self._runs % _UNITES_EVERY:
            self._unite()

    def _harvest(self, rows: Rows) -> Harvest:
        """The new combinations in temporal order, with what members may ask of them."""
        rows = rows.take(np.argsort(rows.born, kind="stable"))
        plan, stores, interest = self.tree.plan, self.tree.stores, self.tree.interest
        ids = dict(zip(plan.root.aliases, rows.ids, strict=True))
        wanted = None
        if interest is not None:
            places = {party: place for place, party in enumerate(self.sharing.parties)}
            codes = self.tree.interested(plan.root, rows)
            wanted = lambda party: interest.wants(places[party], codes)  # noqa: E731
        return Harvest(
            rows,
            {alias: stores[alias].lives(ids[alias])[0] for alias, _ in self._widest},
            np.minimum.reduce([self._dies_now(a, ids[a]) for a in self._mortal]) if self._mortal else None,
            {(alias, name): stores[alias].take(name, ids[alias]) for alias, name in self._gathers},
            self._widest,
            frozenset(expr for node in plan.nodes() for expr in node.residuals),
            wanted,
            self._united,
        )

    def _keep(self, harvest: Harvest) -> None:
        """Hold results until somebody asks for them, and count them by slice."""
        self._harvests.append(harvest)
        for party in self.sharing.parties:
            ages = harvest.age if harvest.wanted is None else harvest.age[harvest.wanted(party)]
            self._slices(party).add(ages)

    def harvested(self) -> list[Harvest]:
        """What was found since the last call, for the members that show theirs when asked."""
        harvests, self._harvests = self._harvests, []
        return harvests

    def _mortal_places(self) -> list[int]:
        return [self.tree.plan.root.aliases.index(alias) for alias in self._mortal]

    def _dies_now(self, alias: str, ids: I64) -> I64:
        return self.tree.stores[alias].dies_now(ids)

    # ── change and rest ──────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, state: str, node: frozenset[str] | None = None) -> None:
        """Change what is kept, in the whole tree or in the node over some aliases."""
        self.tree.adopt(POLICIES[state], node)
        if node is None:
            self.state = state

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Go on with another tree: what it lacks is completed when needed, or at once, or comes with time.

        A parallel track that was still running is left behind: the old tree has all it has.
        """
        if how == "parallel-track":
            self._track = ParallelTrack(self.tree, plan)
            return
        self._track = None
        if how == "jisc":
            self.tree.rearrange(plan)
        else:
            self.tree.rebuild(plan)

    def unread(self) -> dict[str, int]:
        """How many tuples of each input wait."""
        return {arrival.alias: arrival.inlet.waiting() for arrival in self._arrivals}

    @property
    def done(self) -> int:
        """The time up to which all is known."""
        return self._done

    def dump(self) -> dict[str, pa.Table]:
        """The base windows of the streams, by alias."""
        return {arrival.alias: self.tree.stores[arrival.alias].dump(self._done) for arrival in self._arrivals}

    def arrange(self, sinces: Sequence[Since], places: Mapping[str, int]) -> None:
        """Divide the members into parties as they were once, before anything has come."""
        needs = [member.need for member in self.members]
        parties = self.sharing.arrange(needs, [places[member.name] for member in self.members], sinces)
        for member, party in zip(self.members, parties, strict=True):
            member.party, member.before = party, 0
        self._counts = {}
        self._share([])

    def revive(
        self, windows: Mapping[str, pa.Table], unread: Mapping[str, int], done: int, sets: Sequence[int] | None
    ) -> None:
        """Start from windows dumped at the time `done`: what lived then lives again.

        Nothing is written: members ask for the living. `sets` says what the codes of interest in the windows mean.
        """
        interest = self.tree.interest
        for arrival in self._arrivals:
            arrival.inlet.rewind(unread[arrival.alias])
        for alias, table in windows.items():
            rows = table
            if interest is not None and sets is not None:
                place = table.schema.get_field_index("_wanted")
                codes = interest.recoded(table.column(place).to_numpy(), sets)
                rows = table.set_column(place, "_wanted", pa.array(codes))
            self.tree.stores[alias].revive(rows)
        if self.tree.policy.lazy and not any(member.ends for member in self.members):
            for store in self.tree.stores.values():
                store.settle()
            self.tree.restart()
        else:
            self._revived = self._harvest(self.tree.rebuild(self.tree.plan)), done

    def living(self, member: Member) -> Batch | None:
        """The rows of a member that lived in a snapshot, None if it does not ask for ends."""
        if not member.ends or self._revived is None:
            return None
        return member.living(*self._revived, self._mortal_places())


def _since(batch: Batch, number: int) -> Batch:
    if batch.numbers is None or batch.numbers.min(initial=number) >= number:
        return batch
    return batch.take(np.flatnonzero(batch.numbers >= number))
