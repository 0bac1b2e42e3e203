"""The memory that the results of a push will take, known before the push changes anything.

Law: the forecast is at least the number of rows of each join node that the push builds, where it is made. It is made
for joins of streams and tables on one equality class, over windows in time, without predicates across streams, for
queries with one set of filters. Of the rows that wait in arcs and sources, those count that the push can read.

State: by stream, the largest number of rows with one key at the last count. Cost: O(1) per stream while a product of
these numbers says that the results fit; else one pass over windows and rows (`count_star`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.expr import compute_mask, evaluate, find_columns
from penstock.join.eddy import EddyNode
from penstock.join.join_inputs import JoinSource
from penstock.join.leaf_store import LeafStore
from penstock.join.node import JoinNode
from penstock.join.operator import JoinOperator
from penstock.join.row_kernels import count_star
from penstock.ops import Batch, SourceOperator, concat, find_frontier
from penstock.state import F64, I32, I64, NONE, compute_expirations, scan_times

_RESULT = 2
"""Results exist twice for a moment: in blocks, and put together."""
_STATE = 3
"""The table of a state is copied when it grows, to twice its size."""
_STATE_ROW = 29
"""Bytes of a row in a state, without its ids: code, lifetime, chain link, mark."""
_WORD = 8

Arrivals = Mapping[SourceOperator, Batch]
"""The rows that a push brings to every plain source, without late rows."""


@dataclass(frozen=True)
class _LeafRows:
    """The rows of one leaf: those that it stores, and those that the push brings, in temporal order."""

    store: LeafStore
    waiting: Batch | None


@dataclass
class _KeyCount:
    """The largest number of rows with one key when they were counted, and how many tuples had been read then."""

    store: LeafStore
    rows: int
    tuples_read: int


class MatchForecast:
    """Forecasts for the joins of one engine."""

    def __init__(self) -> None:
        self._known: dict[JoinOperator, dict[str, _KeyCount]] = {}

    def estimate_bytes(self, joins: Collection[JoinOperator], arrivals: Arrivals, room: float) -> int:
        """The bytes of results and states that a push will build; exact only where they may be more than `room`."""
        self._known = {join: known for join, known in self._known.items() if join in joins}
        return sum(self._estimate_join(join, arrivals, room) for join in joins if _is_covered(join))

    def _estimate_join(self, join: JoinOperator, arrivals: Arrivals, room: float) -> int:
        inputs = join.inputs.find_sources(arrivals)
        if inputs is None:
            return 0
        nodes = list(_list_nodes(join))
        sets, sizes = [aliases for aliases, _ in nodes], np.array([size for _, size in nodes])
        estimate = self._bound_counts(join, inputs, arrivals, sets) @ sizes
        if estimate > room:
            estimate = self._count(join, _list_rows(join, inputs, arrivals), sets) @ sizes
        return int(estimate)

    def _bound_counts(
        self, join: JoinOperator, inputs: Mapping[str, JoinSource], arrivals: Arrivals, nodes: list[frozenset[str]]
    ) -> F64:
        """At most how many rows each node gets, by the largest numbers of rows with one key."""
        known, stores = self._known.get(join, {}), join.tree.stores
        if any(alias not in known or known[alias].store is not store for alias, store in stores.items()):
            return np.full(len(nodes), np.inf)
        new = dict.fromkeys(stores, 0)
        for alias, (source, inlet) in inputs.items():
            new[alias] = inlet.waiting() + sum(map(len, (*source.held_batches, arrivals[source])))
        most = {
            alias: known[alias].rows + store.tuples_read - known[alias].tuples_read + new[alias]
            for alias, store in stores.items()
        }
        return np.array([
            sum(new[alias] * np.prod([float(most[other]) for other in node - {alias}]) for alias in node)
            for node in nodes
        ], np.float64)  # fmt: skip

    def _count(self, join: JoinOperator, rows: Mapping[str, _LeafRows], nodes: list[frozenset[str]]) -> F64:
        """How many rows each node gets."""
        aliases = list(rows)
        stored, waiting, limit = _encode(list(rows.values()))
        leaf = np.concatenate([np.full(codes.size, place) for place, (codes, _, _) in enumerate(waiting)])
        times = np.concatenate([times for _, times, _ in waiting])
        order = np.argsort(times, kind="stable")
        members = np.array([[alias in node for alias in aliases] for node in nodes])
        counts, most = np.zeros(len(nodes)), np.zeros(len(aliases), np.int64)
        leaves = [(*old, new) for old, new in zip(stored, waiting, strict=True)]  # of each leaf: stored, then new
        codes, dies = (np.concatenate([part[place] for parts in leaves for part in parts]) for place in (0, -1))
        firsts = np.cumsum([0, *(sum(part[0].size for part in parts) for parts in leaves)])
        living = np.array([sum(codes.size for codes, _ in old) for old in stored])
        alive = np.zeros((len(aliases), limit), np.int32)
        count_star(leaf[order], times[order], codes, dies, firsts, living, alive, members, counts, most)
        self._known[join] = {
            alias: _KeyCount(each.store, int(most[place]), each.store.tuples_read)
            for place, (alias, each) in enumerate(rows.items())
        }
        return counts


def _is_covered(join: JoinOperator) -> bool:
    """Whether a forecast is made: see the law of this module."""
    tree = join.tree
    if join.stopped or tree.context.interest is not None or tree.shedding is not None or tree.early_aliases is not None:
        return False
    leaves = tree.plan.leaves
    classes = {id_ for leaf in leaves for id_, _ in leaf.terms}
    whole = len(leaves) > 1 and len(classes) == 1 and all(len(leaf.terms) == 1 for leaf in leaves)
    return whole and not tree.plan.residuals and not any(store.late_ends for store in tree.stores.values())


def _list_rows(join: JoinOperator, inputs: Mapping[str, JoinSource], arrivals: Arrivals) -> dict[str, _LeafRows]:
    """The rows of every leaf."""
    until = min(_find_frontier(source, arrivals[source]) for source, _ in inputs.values())
    rows = {}
    for alias, store in join.tree.stores.items():
        waiting = None
        if alias in inputs:
            source, inlet = inputs[alias]
            parts = [inlet.unread(), source.held_rows(), arrivals[source]]
            waiting = _select_rows([_keep_read(store, part) for part in parts if part is not None and len(part)], until)
        rows[alias] = _LeafRows(store, waiting)
    return rows


def _find_frontier(source: SourceOperator, arrived: Batch) -> int:
    """The frontier of a source after its rows have arrived."""
    newest = scan_times(arrived.times)[1]
    return max(source.frontier, find_frontier(source.stream, newest)) if len(arrived) else source.frontier


def _keep_read(store: LeafStore, rows: Batch) -> Batch:
    """Rows with the columns of the key and of filters only: no other column is copied."""
    plan = store.plan
    read = {column.name for each in (*plan.filters, plan.terms[0][1]) for column in find_columns(each)}
    return Batch(rows.times, {name: rows.columns[name] for name in read})


def _select_rows(parts: list[Batch], until: int) -> Batch | None:
    """The rows up to a time, in temporal order."""
    if not parts:
        return None
    rows = concat(parts)
    chosen = np.flatnonzero(rows.times <= until)
    return rows.take(chosen[np.argsort(rows.times[chosen], kind="stable")]) if chosen.size else None


def _list_nodes(join: JoinOperator) -> Iterator[tuple[frozenset[str], int]]:
    """The nodes that keep or return rows, by their aliases, with the bytes of a row."""
    root = join.tree.root
    if isinstance(root, EddyNode):  # it keeps no rows between its steps
        yield frozenset(root.plan.aliases), _RESULT * _WORD * (len(root.plan.aliases) + 2)
    for node in join.tree.walk_joins():
        width = len(node.plan.aliases)
        if node is root:
            yield frozenset(node.plan.aliases), _RESULT * _WORD * (width + 2)
        elif isinstance(node, JoinNode) and node.state is not None and node.ungated:
            yield frozenset(node.plan.aliases), _STATE * (_WORD * width + _STATE_ROW)


Encoded = tuple[list[list[tuple[I32, I64]]], list[tuple[I32, I64, I64]], int]
"""Stored rows by leaf, in parts (codes, deaths), new rows by leaf (codes, times, deaths), and a limit of all codes."""


def _encode(rows: list[_LeafRows]) -> Encoded:
    """The key codes of all rows. New values get codes of their own, which are forgotten."""
    store = rows[0].store
    (id_, term), keys = store.plan.terms[0], store.keys
    values: list[pa.Array] = []
    lives: list[tuple[I64, I64]] = []
    for each in rows:
        found, times = pa.nulls(0, term.type), np.empty(0, np.int64)
        if each.waiting is not None:
            found, times = _read_terms(each.store, each.waiting)
        values.append(found)
        lives.append((times, compute_expirations(times, each.store.plan.source.window.lifetime)))
    encoded = pc.dictionary_encode(pa.concat_arrays(values))
    limit = keys.code_limit((id_,))
    known = keys.interners[id_].find(encoded.dictionary)
    distinct = np.where(known == NONE, limit + np.arange(known.size), known).astype(np.int32)
    codes = distinct[pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)] if len(distinct) else distinct
    cuts = np.cumsum([len(found) for found in values])[:-1]
    stored = [each.store.rows.view_deaths(id_) for each in rows]
    new = [(part, *life) for part, life in zip(np.split(codes, cuts), lives, strict=True)]
    return stored, new, limit + known.size + 1


def _read_terms(store: LeafStore, rows: Batch) -> tuple[pa.Array, NDArray[np.int64]]:
    """The key values and times of the rows that the leaf will store."""
    plan = store.plan
    chosen = np.arange(len(rows))
    if plan.filters:
        chosen = np.flatnonzero(compute_mask(plan.filters, lambda column: rows.columns[column.name], len(rows)))
    values = evaluate(plan.terms[0][1], lambda column: rows.columns[column.name], len(rows))
    matchable = chosen[np.asarray(values.is_valid())[chosen]]
    return values.take(pa.array(matchable)), rows.times[matchable]
