"""The predicate index: which filter groups need a tuple, found by the position of its value among their constants.

A comparison of a column with a constant (`<`, `<=`, `=`, `>=`, `>`, BETWEEN, IN) holds for some positions among the
sorted constants of all groups: between two neighbouring constants, or at a constant, all values pass the same
comparisons. NaN is greater than every constant, NULL passes none.

Law: `encode(values)` are the codes of the sets of groups whose comparisons on this column hold, and of the groups that
have none. Cost: a binary search per tuple, and one pass over the comparisons for each position that occurs first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import pyarrow as pa

from penstock.expr import DOUBLE, INT, Call, Column, Expr, Literal
from penstock.state import I32, I64, NONE, Mask

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
BLOCK_CELLS = 1 << 23
"""The most pairs of a position and a comparison that are tested at a time."""


@dataclass(frozen=True)
class Comparison:
    """A column compared with constants: one constant, or several for IN."""

    column: Column
    op: str
    constants: tuple[int | float, ...]


def find_comparison(expr: Expr) -> Comparison | None:
    """The comparison that a filter is; None if it is something else, or the type has no order that numbers have."""
    if not isinstance(expr, Call) or expr.op not in (*_MIRRORED, "in"):
        return None
    first, *others = expr.args
    op = expr.op
    if isinstance(first, Literal) and op != "in":
        (first, others), op = (others[0], [first]), _MIRRORED[op]
    if not isinstance(first, Column) or first.type not in (INT, DOUBLE):
        return None
    constants = [_read_constant(other, first.type) for other in others]
    if any(constant is None for constant in constants):
        return None
    return Comparison(first, op, tuple(constant for constant in constants if constant is not None))


def _read_constant(expr: Expr, type_: pa.DataType) -> int | float | None:
    if not isinstance(expr, Literal) or expr.type != type_ or isinstance(expr.value, bool):
        return None
    if not isinstance(expr.value, (int, float)) or isnan(expr.value):
        return None
    return float(expr.value) if type_ == DOUBLE else expr.value


Spans = Sequence[tuple[int, int]]
"""Ranges of positions, each from its first to before its last; disjoint."""


class PredicateIndex:
    """The comparisons of many filter groups on one column, or the first arrivals that they need."""

    def __init__(
        self,
        conditions: Mapping[int, Sequence[Comparison]],
        unconditional: int,
        encode_set: Callable[[int], int],
        groups: int,
    ) -> None:
        """`conditions` are by the place of a group; the groups in `unconditional` have none. `groups`: their number."""
        constants = {each for some in conditions.values() for one in some for each in one.constants}
        self._constants = np.array(sorted(constants))
        places = {constant: place for place, constant in enumerate(self._constants.tolist())}
        entries = [
            (low, high, group)
            for group, some in conditions.items()
            for low, high in _meet_all(_find_spans(one, places) for one in some)
        ]
        self._lows, self._highs, self._groups = np.array(entries, np.int64).reshape(-1, 3).T
        self._unconditional = unconditional
        self._encode_set = encode_set
        self._group_count = groups
        self._codes: I32 = np.full(2 * len(places) + 2, NONE, np.int32)

    def encode(self, values: pa.Array | I64) -> I32:
        """The code of each tuple, by its value in the column."""
        positions = self._find_positions(values)
        codes = self._codes.take(positions)
        if codes.min(initial=0) < 0:
            self._add_codes(np.unique(positions[codes < 0]))
            codes = self._codes.take(positions)
        return codes

    def _find_positions(self, values: pa.Array | I64) -> I64:
        """2 i + 1 for the i-th constant, 2 i for a value before it; the last position is that of NULL."""
        numbers = values if isinstance(values, np.ndarray) else _fill_null(values)
        places = np.searchsorted(self._constants, numbers)
        equal: Mask = self._constants.take(places, mode="clip") == numbers
        positions: I64 = 2 * places + equal
        if isinstance(values, pa.Array) and values.null_count:
            positions[values.is_null().to_numpy(zero_copy_only=False)] = 2 * self._constants.size + 1
        return positions

    def _add_codes(self, positions: I64) -> None:
        """Find the groups that need the values at some positions."""
        block = max(1, BLOCK_CELLS // max(1, self._lows.size))
        for first in range(0, positions.size, block):
            some = positions[first : first + block, np.newaxis]
            held = np.zeros((len(some), self._group_count), np.bool_)
            at, entry = np.nonzero((self._lows <= some) & (some < self._highs))
            held[at, self._groups[entry]] = True
            sets = np.packbits(held, axis=1, bitorder="little")
            self._codes[some[:, 0]] = [
                self._encode_set(int.from_bytes(row.tobytes(), "little") | self._unconditional) for row in sets
            ]


def _fill_null(values: pa.Array) -> I64:
    filled = values.fill_null(0) if values.null_count else values
    numbers: I64 = filled.to_numpy(zero_copy_only=False)
    return numbers


def _find_spans(comparison: Comparison, places: Mapping[int | float, int]) -> Spans:
    """The positions at which a comparison holds."""
    if comparison.op == "in":
        return [(2 * place + 1, 2 * place + 2) for place in {places[each] for each in comparison.constants}]
    at, end = 2 * places[comparison.constants[0]] + 1, 2 * len(places) + 1
    return [{"<": (0, at), "<=": (0, at + 1), "=": (at, at + 1), ">=": (at, end), ">": (at + 1, end)}[comparison.op]]


def _meet_all(spans: Iterable[Spans]) -> Spans:
    """The positions that are in all of some ranges."""
    first, *others = spans
    for other in others:
        met = ((max(a, c), min(b, d)) for a, b in first for c, d in other)
        first = [(low, high) for low, high in met if low < high]
    return first
