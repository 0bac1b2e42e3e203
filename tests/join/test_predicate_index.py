"""The predicate index against the filters themselves, evaluated one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.expr import BOOL, DOUBLE, INT, Call, Column, Expr, Literal, compute_mask
from penstock.join.sharing import predicate_index, slice_tally
from penstock.join.sharing.group_bits import GroupBits
from penstock.join.sharing.interest import GroupWindows, Interest
from penstock.join.sharing.predicate_index import PredicateIndex, find_comparison
from penstock.join.sharing.slice_tally import SliceTally

NAN, INF = float("nan"), float("inf")


def draw_filter(rng: random.Random, column: Column, constants: list[Any]) -> Expr:
    def literal() -> Literal:
        return Literal(rng.choice(constants), column.type)

    op = rng.choice(["<", "<=", "=", ">=", ">", "in"])
    if op == "in":
        return Call("in", (column, *(literal() for _ in range(rng.randint(1, 4)))), BOOL)
    return Call(op, (literal(), column) if rng.random() < 0.3 else (column, literal()), BOOL)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("type_", [INT, DOUBLE], ids=str)
def test_index_agrees_with_filters(seed: int, type_: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_index, "BLOCK_CELLS", 40)
    rng, column = random.Random(seed), Column("a", "v", type_)
    constants = list(range(-3, 9)) if type_ == INT else [-INF, -1.5, -0.0, 0.0, 2.0, 2.5, 7.0, INF]
    filters = [[draw_filter(rng, column, constants) for _ in range(rng.randint(1, 3))] for _ in range(20)]
    others = [None, *range(-5, 12)] if type_ == INT else [None, NAN, -2.0, 0.0, -0.0, 2.0, 2.25, 7.0, 8.0, INF, -INF]
    values = pa.array([rng.choice(others) for _ in range(80)], type_)
    interest = Interest([GroupWindows({"a": 9})] * 22)
    conditions = {}
    for place, some in enumerate(filters):
        compared = [find_comparison(each) for each in some]
        conditions[place] = [each for each in compared if each is not None]
        assert len(conditions[place]) == len(some)
    index = PredicateIndex(conditions, 1 << 21, interest.encode_set, 22)
    for part in (values[:30], values[30:]):
        codes = index.encode(part)
        for place, some in enumerate(filters):
            passing = compute_mask(some, lambda _, part=part: part, len(part))
            assert (interest.is_wanted_by(place, codes) == passing).all(), some
        assert interest.is_wanted_by(21, codes).all()
        assert not interest.is_wanted_by(20, codes).any()


def test_what_is_not_indexed() -> None:
    number, text = Column("a", "v", DOUBLE), Column("a", "s", pa.string())
    for filter_ in (
        Call("<", (number, Literal(NAN, DOUBLE)), BOOL),
        Call("<", (number, Literal(None, DOUBLE)), BOOL),
        Call("<>", (number, Literal(1.0, DOUBLE)), BOOL),
        Call("<", (text, Literal("b", pa.string())), BOOL),
        Call("<", (number, number), BOOL),
        Call("in", (number, Literal(1.0, DOUBLE), number), BOOL),
    ):
        assert find_comparison(filter_) is None


@pytest.mark.parametrize("groups", [1, 8, 9, 70])
def test_bits_of_sets(groups: int) -> None:
    rng = random.Random(groups)
    sets = [0, *(rng.getrandbits(groups) for _ in range(40))]
    windows = np.array([rng.randint(1, 99) for _ in range(groups)])
    bits = GroupBits(groups)
    bits.read_group(sets[:7], 0)
    longest = [max((w for g, w in enumerate(windows.tolist()) if s >> g & 1), default=0) for s in sets]
    assert bits.find_longest(sets, windows).tolist() == longest
    for group in range(groups):
        assert bits.read_group(sets, group, 3).tolist() == [bool(s >> group & 1) for s in sets[3:]]
    kept = [*rng.sample(range(groups), groups // 2), None, rng.randrange(groups)]
    moved = [sum(1 << new for new, old in enumerate(kept) if old is not None and s >> old & 1) for s in sets]
    assert bits.move_groups(sets, np.arange(len(sets)), kept) == moved
    bits.widen(groups + 200)
    assert not bits.read_group(sets, groups + 150).any()


@pytest.mark.parametrize("cells", [0, 1 << 16], ids=["pairs", "matrix"])
def test_tally_of_slices(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_tally, "DENSE_CELLS", cells)
    rng, windows = np.random.default_rng(1), np.array([3, 5, 9])
    tally, seen = SliceTally(windows), np.zeros((6, 4), np.int64)
    for _ in range(3):
        age, codes = rng.integers(0, 12, 50), rng.integers(0, 6, 50).astype(np.int32)
        tally.add(age, codes, 6)
        np.add.at(seen, (codes, np.searchsorted(windows, age, side="right")), 1)
    found = np.zeros_like(seen)
    np.add.at(found, tally.list_entries()[:2], tally.list_entries()[2])
    assert (found == seen).all()
    again = tally.reslice(np.array([4, 20]))  # slices that end at 5 and 9 go to the next larger window
    moved = np.zeros((6, 3), np.int64)
    np.add.at(moved, again.list_entries()[:2], again.list_entries()[2])
    assert (moved == np.stack([seen[:, 0], seen[:, 1] + seen[:, 2], seen[:, 3]], axis=1)).all()
