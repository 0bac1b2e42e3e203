"""Demand against the JIT paper's algorithm: a gate holds back exactly the rows that have an MNS.

Random small trees run under "jit". After every push, each gate classifies every row that a node below it could have,
and `identify_mns` classifies the same row against the rows of the driver: the gate holds a row back exactly if the row
has an MNS. (If tuples expire, demand may be too large until the next review, never too small.) States then contain all
demanded rows, and if no tuple expires, no others.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pytest
from inspect_engine import purged_until, tree_of
from lattice import Lattice, classify_mns, identify_mns
from law_support import CHUNKS, list_seeds, make_engine

from penstock.join import JoinNode, JoinRows, JoinTree, TreeNode
from penstock.join.demand.gate import Gate
from penstock.testing.query_text import random_plan

COLUMNS = ("k0", "k1", "k2")
Combination = dict[str, int]
"""Row ids of leaves, by alias."""


@pytest.mark.parametrize("chunk", CHUNKS)
def test_gate_holds_back_rows_with_mns(chunk: int) -> None:
    held: Counter[str] = Counter()
    for seed in list_seeds(chunk):
        case = DemandCase(seed)
        for push in case.pushes():
            case.engine.push(push)
            if not case.expires:
                held += Reference(case.tree).compare(gates_exact=True, states_exact=True)
                continue
            Reference(case.tree).compare(gates_exact=False, states_exact=False)
            case.tree.refresh_gates()
            held += Reference(case.tree).compare(gates_exact=True, states_exact=False)
    assert held["empty"], "no row met the case of a driver without rows"
    assert held["type I"], "no row met the Type I case"


def test_type_ii_mns_is_held_back() -> None:
    """Type II: a and b have partners in C, but no c matches both."""
    eng = make_engine(state="jit")
    for name in "ABC":
        eng.stream(name, dict.fromkeys(("ts", *COLUMNS), "bigint"), time="ts")
    sources = ", ".join(f"{name} [RANGE 10]" for name in "ABC")
    eng.query("q", f"SELECT A.k0 FROM {sources} WHERE A.k0 = C.k0 AND B.k1 = C.k1 AND A.k2 = B.k2", plan="((A B) C)")
    eng.push({"C": pa.table({"ts": [0, 0], "k0": [1, 2], "k1": [2, 1], "k2": [0, 0]})})
    one = pa.table({"ts": [1], "k0": [1], "k1": [1], "k2": [1]})
    eng.push({"A": one, "B": one})
    eng.advance("C", 1)
    eng.push({})
    held = Reference(tree_of(eng)).compare(gates_exact=True, states_exact=True)
    assert held == {"type II": 1}
    suppressed = eng.metrics("q")["suppressed"]
    assert suppressed["(A B)"] == {"type II": 1}
    assert not any(suppressed["A"].values())
    assert not any(suppressed["B"].values())


class DemandCase:
    """A random query over a few streams, its engine, and its pushes."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        self.names = "ABCDE"[: rng.choice((3, 3, 4, 5))]
        self.span = rng.choice((4, 9, 10_000))
        self.expires = self.span < 10_000
        self.engine = make_engine(state="jit", batch=rng.choice((1, 3, 4096)))
        for name in self.names:
            self.engine.stream(name, dict.fromkeys(("ts", *COLUMNS), "bigint"), time="ts")
        self.engine.query("q", self._text(), plan=random_plan(rng, list(self.names)))

    def _text(self) -> str:
        rng = self._rng
        edges = [(rng.choice(self.names[:place]), self.names[place]) for place in range(1, len(self.names))]
        edges += [tuple(rng.sample(self.names, 2)) for _ in range(rng.randrange(3))]
        equal = [f"{a}.{rng.choice(COLUMNS)} = {b}.{rng.choice(COLUMNS)}" for a, b in edges]
        sources = ", ".join(f"{name} [RANGE {self.span}]" for name in self.names)
        return f"SELECT {self.names[0]}.k0 FROM {sources} WHERE {' AND '.join(equal)}"

    @property
    def tree(self) -> JoinTree:
        return tree_of(self.engine)

    def pushes(self) -> Iterator[dict[str, pa.Table]]:
        """About five tuples of each stream, in a few pushes; some streams are empty at first."""
        rng = self._rng
        domain = rng.choice((2, 3, 4))
        silent = rng.randrange(3)
        for number in range(rng.randrange(2, 5)):
            yield {
                name: self._table(3 * number, rng.randrange(3) if number >= silent or place % 2 else 0, domain)
                for place, name in enumerate(self.names)
            }
            for name in self.names:
                self.engine.advance(name, 3 * number + 3)

    def _table(self, begin: int, rows: int, domain: int) -> pa.Table:
        rng = self._rng
        columns = {name: [rng.randrange(domain) for _ in range(rows)] for name in COLUMNS}
        times = sorted(begin + rng.randrange(3) for _ in range(rows))
        return pa.table({"ts": pa.array(times, pa.int64()), **{k: pa.array(v, pa.int64()) for k, v in columns.items()}})


@dataclass
class Reference:
    """All possible rows of a tree and the demand for them, enumerated over the living rows of its leaves."""

    tree: JoinTree

    @cached_property
    def nodes(self) -> list[TreeNode]:
        return list(self.tree.walk_nodes())

    @cached_property
    def guards(self) -> dict[Gate, tuple[JoinNode, TreeNode]]:
        """Every gate with its node and the driver that opens it."""
        joins = [node for node in self.nodes if isinstance(node, JoinNode)]
        return {join.lazy.gate: (join.lazy, join.driver) for join in joins if join.lazy.gate is not None}

    def compare(self, *, gates_exact: bool, states_exact: bool) -> Counter[str]:
        """Compare gates and states with the lattice; returns how many rows had an MNS, by type."""
        held: Counter[str] = Counter()
        for node in self.nodes:
            rows = self.rows(node)
            for gate in node.gates:
                found = [self.mns(gate, row) for row in rows]
                batch = self.as_rows(node, rows)
                admitted = gate.find_demanded(node.plan, node, batch)
                wanted = np.array([not mns for mns in found], np.bool_)
                assert (admitted == wanted if gates_exact else admitted >= wanted).all(), (node.plan.tree, gate.key)
                for mns in itertools.chain.from_iterable(found):
                    gated = self.guards[gate][0].plan
                    held[classify_mns(mns, frozenset(gated.left.aliases), frozenset(gated.right.aliases))] += 1
            if isinstance(node, JoinNode) and node.state is not None:
                stored = {tuple(ids) for ids in node.state.table.rows().ids.T.tolist()}
                demanded = {tuple(row[a] for a in node.plan.aliases) for row in rows if self.is_demanded(node, row)}
                assert demanded == stored if states_exact else demanded <= stored, node.plan.tree
        return held

    def is_demanded(self, node: TreeNode, row: Combination) -> bool:
        return not any(self.mns(gate, row) for gate in node.gates)

    def mns(self, gate: Gate, row: Combination) -> frozenset[frozenset[str]]:
        """The MNSs of a row of a part below a gate: its components are the aliases with a class of the gate's key."""
        classes = {alias: self.tree.stores[alias].plan.classes & set(gate.key) for alias in row}
        components = frozenset(alias for alias, shared in classes.items() if shared)
        opposite = [
            frozenset(
                alias
                for alias in components
                if all(self.code(id_, row, alias) == partner[id_] for id_ in classes[alias])
            )
            for partner in self.opposite(gate)
        ]
        return identify_mns(Lattice(components), opposite)

    def opposite(self, gate: Gate) -> list[dict[int, int]]:
        """The driver's demanded rows, as codes per class of the gate's key."""
        _, driver = self.guards[gate]
        return [
            {id_: next(self.code(id_, row, alias) for alias in row if self.has(id_, alias)) for id_ in gate.key}
            for row in self.rows(driver)
            if self.is_demanded(driver, row)
        ]

    def rows(self, node: TreeNode) -> list[Combination]:
        """All combinations of living rows that agree in every class."""
        found: list[Combination] = [{}]
        for alias in node.plan.aliases:
            found = [{**row, alias: id_} for row in found for id_ in self.living(alias)]
            found = [row for row in found if self.fits(row, alias)]
        return found

    def living(self, alias: str) -> list[int]:
        store = self.tree.stores[alias].rows
        ids = np.arange(store.base, store.end)
        return [int(id_) for id_ in ids[store.read_lifetimes(ids)[1] > purged_until(self.tree)]]

    def fits(self, row: Combination, alias: str) -> bool:
        """Whether the row of an alias agrees with the others in every class they share."""
        return all(
            self.code(id_, row, alias) == self.code(id_, row, other)
            for id_ in self.tree.stores[alias].plan.classes
            for other in row
            if self.has(id_, other)
        )

    def has(self, id_: int, alias: str) -> bool:
        return id_ in self.tree.stores[alias].plan.classes

    def code(self, id_: int, row: Combination, alias: str) -> int:
        return int(self.tree.stores[alias].rows.codes(id_, np.array([row[alias]]))[0])

    def as_rows(self, node: TreeNode, rows: list[Combination]) -> JoinRows:
        ids = np.array([[row[alias] for row in rows] for alias in node.plan.aliases], np.int64)
        ids = ids.reshape(len(node.plan.aliases), len(rows))
        return JoinRows(ids, np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64))
