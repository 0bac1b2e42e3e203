"""The join operator: k inputs merged by time, one output of changes for every query that shares it.

Law: for every combination of its inputs' tuples that satisfies the plan and lives in [born, dies) the operator gives
each member that wants it the member's outputs of that combination at `born` with sign +1 and, if the member asks for
ends, at the end of its own windows with sign -1; in temporal order, each once, whatever the sizes of the batches.
Under a budget some combinations are missing, none is added.

It works up to the smallest frontier of its inputs. `strict` holds an instant back until all of its tuples are there:
needed where a tuple may end another one of the same instant (ROWS), or where an instant is reported as a whole.
State: a `JoinTree`, and the members' living rows if they ask for ends. Cost: that of the tree with the widest windows,
whatever the number of members, and for each member what it is asked to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.errors import QueryError, UnsupportedError
from penstock.join.completion.parallel_track import ParallelTrack, refuse_endless
from penstock.join.demand.gate import Kept
from penstock.join.early_reader import Tap
from penstock.join.join_metrics import figures
from penstock.join.join_rows import Rows
from penstock.join.leaf_node import LeafNode
from penstock.join.match_batch import Harvest
from penstock.join.sharing.interest import NOBODY, Interest, ends
from penstock.join.sharing.member import Member
from penstock.join.sharing.shared_join import Group, Slicing
from penstock.join.sharing.shared_needs import Sharers, Since
from penstock.join.shedding.load_shedding import Shedding
from penstock.join.state_policy import policy_named
from penstock.join.tree import JoinTree
from penstock.ops.protocol import Batch, Inlet, concat
from penstock.ops.time_merge import bound_of, cut, ready
from penstock.plan.physical import EddyPlan, JoinPlan
from penstock.plan.query import JoinPart
from penstock.plan.tree import Outline, Tree, renamed
from penstock.state.kernels import ALWAYS
from penstock.state.maintenance import Maintenance

Migration = Literal["jisc", "moving-state", "parallel-track"]


@dataclass(frozen=True)
class Arrivals:
    """An input of the join: the arc it reads, and the alias whose leaf it feeds."""

    alias: str
    inlet: Inlet


@dataclass(frozen=True)
class Dump:
    """A join at rest: the time up to which all is known, unread tuples by alias, who shares it, and its windows.

    `sets` says what the codes of interest in the windows mean; `kept_after` which columns older tuples lack.
    """

    done: int
    unread: Mapping[str, int]
    parties: Sequence[Sharers]
    sets: Sequence[int] | None
    kept_after: Mapping[str, Mapping[str, int]]
    tables: Mapping[str, pa.Table]


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
        demand: Kept,
        maintenance: Maintenance,
    ) -> None:
        self.id = id_
        self.state = state
        """The name of its policy."""
        self.demand = demand
        self.group = Group(part, first, since, policy_named(state, demand), maintenance)
        self._arrivals = tuple(arrivals)
        self._inlets = [arrival.inlet for arrival in arrivals]
        self._strict = strict or bool(self.group.mortal)
        self._track: ParallelTrack | None = None
        self._tap: Tap | None = None
        self.unprobed: Counter[Tree] = Counter()
        self.purse: object = None
        """Who may share it: queries with the same one. None is that of the engine, which most have."""
        self._done = int(ALWAYS)
        self._runs = 0
        self._revived: tuple[Harvest, int] | None = None
        self._harvests: list[Harvest] = []
        for alias, table in tables.items():
            columns = {name: table.column(name).combine_chunks() for name in table.column_names}
            self.tree.stores[alias].load(columns, table.num_rows)
        if tables:
            self.tree.rebuild(self.tree.plan)

    @property
    def tree(self) -> JoinTree:
        return self.group.tree

    # ── who shares it ────────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, member: Member, since: Since, *, history: bool) -> None:
        """Take in one more query, between two batches."""
        scope = member.need.scope
        with self._in_step():
            if scope is not None and self._tap is None:
                inlets = {arrival.alias: arrival.inlet for arrival in self._arrivals if arrival.alias in scope}
                self._tap, self.tree.tap = Tap(inlets, self.tree.stores, self._done), scope
            done = self._done if scope is None or self._tap is None else self._tap.done
            self.group.enter(member, since, done, self._shape(), history=history)

    def leave(self, member: Member) -> None:
        """Let a query go."""
        with self._in_step():
            nested = [each for each in self.group.members if each.need.scope is not None and each is not member]
            if self._tap is not None and not nested:
                self._tap.close()
                self._tap = self.tree.tap = None
            self.group.leave(member, self._shape())

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """All parts of the join stand at the same time while it is changed; then one that was ahead is so again."""
        if self._tap is None:
            yield
            return
        tap, ahead = self._tap, self._tap.retreat()
        self.tree.retreat({alias: tap.mark(alias) for alias in tap.inlets})
        yield
        if self._tap is tap and self._take_in(tap.again(ahead)):
            self.tree.step_ahead()

    @property
    def tapped(self) -> list[Member]:
        """The members that read a node of its tree, not the root."""
        return [member for member in self.group.members if member.need.scope is not None]

    def reslice(self, slicing: Slicing) -> None:
        """Keep tuples by other slices."""
        with self._in_step():
            self.group.reslice(slicing, self._shape())

    def _shape(self) -> Outline:
        """The tree to go on with where queries come or go: a parallel track ends there, the old tree has all it has."""
        shape = self.shape
        self._track = None
        return shape

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def more(self) -> bool:
        bound, inlets = self._reach()
        if bound > self._done or ready(inlets, bound):
            return True
        if self._tap is None:
            return False
        ahead = list(self._tap.inlets.values())
        bound = bound_of(ahead, whole=False)
        return bound > self._tap.done or ready(ahead, bound)

    def _reach(self) -> tuple[int, Sequence[Inlet]]:
        """How far the whole join may go, and the inlets that it reads then: a part that is ahead has read its own."""
        bound = bound_of(self._inlets, whole=self._strict)
        if self._tap is None:
            return bound, self._inlets
        ahead = self._tap.inlets
        return min(bound, self._tap.done), [a.inlet for a in self._arrivals if a.alias not in ahead]

    def awaits(self) -> int | None:
        ending = (member for member in self.group.writing if member.ends)
        dues = [due for member in ending if (due := member.lives.next_due()) is not None]
        return min(dues) + self._strict if dues else None

    def run(self, budget: int) -> int:
        self._revived = None
        ahead = 0 if self._tap is None else self._run_ahead(self._tap, budget)
        bound, inlets = self._reach()
        until = cut(inlets, bound, budget)
        taken = self._ingest(until)
        self._emit(self._step(until) if taken or self.tree.awaited(until) else None, until)
        if until == bound:
            self._advance(None, bound + 1 if self._strict else bound)
        return taken + ahead

    def _run_ahead(self, tap: Tap, budget: int) -> int:
        """Let the tapped node go as far as its own streams allow, for those who read it."""
        group, inlets = self.group, list(tap.inlets.values())
        bound = bound_of(inlets, whole=False)
        until = cut(inlets, bound, budget)
        taken = self._take_in({alias: inlet.read(until) for alias, inlet in tap.inlets.items()})
        rows = self.tree.step_ahead() if taken else None
        harvest = group.harvest_ahead(rows) if rows is not None and len(rows) else None
        for member in self.tapped if harvest is not None else ():
            if member.outlet is not None:
                member.write(harvest, until, ())
        if harvest is not None and len(harvest) and group.asking(self.tree.tap):
            self._harvests.append(harvest)
            group.count(harvest)
        tap.done = max(tap.done, until)
        if until == bound:
            self._advance(self.tree.tap, bound)
        return taken

    def _advance(self, scope: frozenset[str] | None, frontier: int) -> None:
        for member in self.group.writing:
            if member.need.scope == scope:
                member.advance(frontier)

    def metrics(self, names: Mapping[str, str] | None = None) -> dict[str, object]:
        """What the join has read, holds and has built, as far as it is about the aliases `names`, told in those."""
        names = names or {alias: alias for alias in self.tree.stores}
        whole = len(names) == len(self.tree.stores)
        shedding = self.tree.shedding
        exact = shedding is None or not (shedding.lost_at or self.tree.completion)
        return {
            **figures(self.tree, names, self._done),
            "unprobed": {str(renamed(tree, names)): rows for tree, rows in self.unprobed.items()} if whole else {},
            "completeness": 1.0 if exact or shedding is None else shedding.completeness(),
            "waiting": {names[alias]: rows for alias, rows in self.unread().items() if alias in names},
            "members": len(self.group.members),
        }

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ingest(self, until: int) -> int:
        ahead = () if self._tap is None else self._tap.inlets
        return self._take_in({a.alias: a.inlet.read(until) for a in self._arrivals if a.alias not in ahead})

    def _take_in(self, arrived: Mapping[str, list[Batch]]) -> int:
        taken = sum(len(batch) for batches in arrived.values() for batch in batches)
        if taken and self.tree.shedding is not None:
            times = [batch.times for batches in arrived.values() for batch in batches if len(batch)]
            self.tree.shedding.begin(min(int(part[0]) for part in times), max(int(part[-1]) for part in times))
        for tree in self._trees:
            tree.pace(int(taken * tree.policy.pace))  # before the batch: it will ask for less
        for alias, batches in arrived.items():
            store = self.tree.stores[alias]
            store.settle()
            if batches:
                batch, wanted = self.group.admission.admitted(alias, concat(batches), self.tree.interest)
                store.ingest(batch.times, batch.columns, wanted)
        return taken

    def _step(self, until: int) -> Rows:
        rows = self.tree.step(until)
        if self.tree.shedding is not None:
            self.unprobed += self.tree.shedding.taken_unprobed()
        return rows if self._track is None else self._track.step(rows, until)

    def _emit(self, rows: Rows | None, until: int) -> None:
        group = self.group
        harvest = group.harvest(rows) if rows is not None and len(rows) else None
        for member in group.writing:
            if member.need.scope is None:
                member.write(harvest, until, group.mortal_places())
        if harvest is not None and group.asking():
            self._harvests.append(harvest)
            group.count(harvest)
        renumbered = self.tree.settle(until, self._trees[1:])
        if self._tap is not None:
            self._tap.follow(until)
        if isinstance(self.tree.root, LeafNode) and not any(m.ends for m in group.members) and not group.mortal:
            self.tree.root.store.clear()
        for member in group.writing:
            member.renumber(renumbered, group.mortal)
        if self._track is not None and self._track.ends:
            group.tree, self._track = self._track.tree, None
        self._done = max(self._done, until)
        self._runs += 1
        if not self._runs % self.tree.maintenance.unite_every and self._track is None and group.may_unite:
            with self._in_step():
                group.unite(self._done, self.tree.plan.tree)

    def failure(self, member: Member) -> QueryError | None:
        """Why a member stopped, None if it did not."""
        return member.failure or member.party.failure

    @property
    def failing(self) -> bool:
        """Whether a filter could not be evaluated; members that show their rows when asked fail when asked."""
        return any(party.failure for party in self.group.sharing.parties)

    def harvested(self) -> list[Harvest]:
        """What was found since the last call, for the members that show theirs when asked."""
        harvests, self._harvests = self._harvests, []
        return harvests

    # ── change and rest ──────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, state: str, demand: Kept, node: frozenset[str] | None = None) -> None:
        """Change what is kept, in the whole tree or in the node over some aliases."""
        with self._in_step():
            for tree in self._trees:
                tree.adopt(policy_named(state, demand), node)
        if node is None:
            self.state, self.demand = state, demand

    def check_migration(self, plan: JoinPlan, how: Migration) -> None:
        """Refuse a plan that `migrate` cannot go on with."""
        if self.tree.shedding is not None and isinstance(plan.root, EddyPlan):
            raise no_paths(self.id)
        if how == "parallel-track" and self._tap is None and self.tree.shedding is None:
            refuse_endless(plan)

    def migrate(self, plan: JoinPlan, how: Migration) -> None:
        """Go on with another tree: what it lacks is completed when needed, or at once, or comes with time.

        A parallel track that was still running is left behind: the old tree has all it has. Under a budget there is
        none, because it would do all work twice: the new tree takes over at once. So it does, complete, where queries
        read one of its nodes, which the new tree must have.
        """
        if self._tap is not None:
            with self._in_step():
                self.tree.rearrange(plan)
            return
        if how == "parallel-track" and self.tree.shedding is None:
            self._track = ParallelTrack(self.tree, plan)
            return
        self._track = None
        if how != "moving-state":
            self.tree.rearrange(plan)
        else:
            self.tree.rebuild(plan)

    @property
    def plans(self) -> list[JoinPlan]:
        """The plan it runs by, and the one it changes to on a parallel track."""
        return [tree.plan for tree in self._trees]

    @property
    def shape(self) -> Outline:
        """The tree it runs by, or changes to: the one it has when a query comes or goes."""
        return self.plans[-1].tree

    @property
    def _trees(self) -> list[JoinTree]:
        """The tree, and the one that runs beside it on a parallel track."""
        return [self.tree] if self._track is None else [self.tree, self._track.tree]

    def shed(self, shedding: Shedding | None) -> None:
        """Keep to a budget from now on, or no longer. A parallel track ends as a change of the plan in place."""
        track, self._track = self._track, None
        self.tree.shed(shedding)
        if track is not None:
            self.tree.rearrange(track.tree.plan)

    def unread(self) -> dict[str, int]:
        """How many tuples of each input wait."""
        return {arrival.alias: arrival.inlet.waiting() for arrival in self._arrivals}

    @property
    def done(self) -> int:
        """The time up to which all is known."""
        return self._done

    def dump(self, scope: frozenset[str] | None) -> Dump:
        """The base windows of the streams, for those who read all of them, or for those who read only some."""
        parties = [party for party in self.group.sharing.parties if party.scope == scope]
        if self._tap is None:
            interest = self.tree.interest
            tables = {a.alias: self.tree.stores[a.alias].dump(self._done) for a in self._arrivals}
            sets = None if interest is None else interest.sets
            return Dump(self._done, self.unread(), parties, sets, self._kept_after(tables), tables)
        return self._dump_apart(self._tap, scope, parties)

    def _dump_apart(self, tap: Tap, scope: frozenset[str] | None, parties: list[Sharers]) -> Dump:
        """What only the others want, or have seen already, is left out."""
        assert self.tree.interest is not None
        places = [self.group.sharing.parties.index(party) for party in parties]
        own = Interest([self.tree.interest.parties[place] for place in places], self.tree.maintenance)
        done, unread, tables = self._done if scope is None else tap.done, {}, {}
        for arrival in self._arrivals:
            alias, store = arrival.alias, self.tree.stores[arrival.alias]
            if scope is not None and alias not in scope:
                continue
            behind = scope is None and alias in tap.inlets
            unread[alias] = tap.unread(alias) if behind else arrival.inlet.waiting()
            table = store.dump(done, tap.mark(alias) if behind else None)
            born, wanted = (table.column(name).to_numpy() for name in ("_born", "_wanted"))
            codes = own.survivors(wanted, self.tree.interest, places)
            dies = np.where(codes == NOBODY, ALWAYS, ends(born, own.reach(alias, codes)))
            table = table.set_column(1, "_dies", pa.array(dies)).set_column(2, "_wanted", pa.array(codes))
            tables[alias] = table.filter(pa.array(dies > done))
        sets = own.sets if len(parties) > 1 else None
        return Dump(done, unread, parties, sets, self._kept_after(tables), tables)

    def _kept_after(self, aliases: Iterable[str]) -> dict[str, dict[str, int]]:
        return {alias: self.tree.stores[alias].kept_after for alias in aliases}

    def revive(
        self,
        windows: Mapping[str, pa.Table],
        kept_after: Mapping[str, Mapping[str, int]],
        unread: Mapping[str, int],
        done: int,
        sets: Sequence[int] | None,
    ) -> None:
        """Start from windows dumped at the time `done`: what lived then lives again.

        Nothing is written: members ask for the living. `sets` says what the codes of interest in the windows mean.
        """
        interest = self.tree.interest
        self._done = done
        for arrival in self._arrivals:
            arrival.inlet.rewind(unread[arrival.alias])
        for alias, table in windows.items():
            rows = table
            if interest is not None and sets is not None:
                place = table.schema.get_field_index("_wanted")
                codes = interest.recoded(table.column(place).to_numpy(), sets)
                rows = table.set_column(place, "_wanted", pa.array(codes))
            self.tree.stores[alias].revive(rows, kept_after[alias])
        if self.tree.policy.lazy and not any(member.ends for member in self.group.members):
            for store in self.tree.stores.values():
                store.settle()
            self.tree.restart()
        else:
            self._revived = self.group.harvest(self.tree.rebuild(self.tree.plan)), done

    def living(self, member: Member) -> Batch | None:
        """The rows of a member that lived in a snapshot, None if it does not ask for ends."""
        if not member.ends or self._revived is None:
            return None
        return member.living(*self._revived, self.group.mortal_places())


def no_paths(name: str) -> UnsupportedError:
    """An eddy cannot keep to a budget."""
    message = f"{name} is an eddy: it has no fixed paths over which a budget could be split; give it a tree as its plan"
    return UnsupportedError("EDDY_WITHOUT_PATHS", message)
