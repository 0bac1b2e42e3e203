"""MIN and MAX of groups whose rows come and go.

Law: at every point the result is the smallest or largest value that the group has then, NULL without any. NaN is above
all other numbers. State: two pairing heaps a group, of the values that came and of those of them that left but are not
removed yet, rebuilt when most of their nodes are not needed. Texts and decimals are represented by labels in the same
order. Cost: O(log n) a change, amortised; Python only for each new distinct text or decimal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.expr import DOUBLE
from penstock.ops.kernels import find_group_minimum
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints, Mask, grow, zero_null_weights
from penstock.state import I64, NONE, U8, Maintenance


@dataclass(frozen=True)
class Relabeling:
    """Labels that changed: the old ones, ascending, and the new ones."""

    old: I64
    new: I64

    def apply(self, labels: I64) -> I64:
        return self.new[np.searchsorted(self.old, labels)]


@dataclass(frozen=True)
class EncodedValues:
    """Values as integers in the same order. `relabeling`: how the integers of earlier values changed."""

    words: I64
    relabeling: Relabeling | None = None


class WordEncoder:
    """Values of one word, as integers in the same order; NaN is above all others."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._is_float = pt.is_floating(type_)

    def encode(self, values: pa.Array) -> EncodedValues:
        if self._is_float:
            doubles = values.cast(DOUBLE).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
            bits: I64 = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
            return EncodedValues(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))
        if pt.is_date32(values.type):
            values = values.cast(pa.int32())
        return EncodedValues(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))

    def decode(self, words: I64, known: Mask) -> pa.Array:
        if self._is_float:
            bits = np.where(words < 0, words ^ np.int64(2**63 - 1), words)
            return pa.array(bits.view(np.float64), mask=~known).cast(self._type)
        numbers = pa.array(np.where(known, words, 0), mask=~known)
        return (numbers.cast(pa.int32()) if pt.is_date32(self._type) else numbers).cast(self._type)


class LabelEncoder:
    """Texts and decimals as labels in the same order: a new value gets a label between those of its neighbours.

    If there is no label between them, all values get new labels.
    """

    def __init__(self, type_: pa.DataType, gap: int) -> None:
        self._type = type_
        self._gap = gap
        self._values: list[Any] = []
        self._labels: list[int] = []
        self._label_by_value: dict[object, int] = {}
        self._column: pa.Array | None = None

    def encode(self, values: pa.Array) -> EncodedValues:
        encoded = pc.dictionary_encode(values)
        distinct = encoded.dictionary.to_pylist()
        relabeling: Relabeling | None = None
        for value in distinct:
            if value not in self._label_by_value:
                relabeling = self._insert(value, relabeling)
        labels = np.fromiter((self._label_by_value[value] for value in distinct), np.int64, len(distinct))
        if not labels.size:
            return EncodedValues(np.zeros(len(values), np.int64))
        return EncodedValues(labels[encoded.indices.fill_null(0).to_numpy()], relabeling)

    def decode(self, words: I64, known: Mask) -> pa.Array:
        if self._column is None:
            self._column = pa.array(self._values, self._type)
        places = np.searchsorted(np.array(self._labels, np.int64), words)
        return self._column.take(pa.array(places, mask=~known))

    def __len__(self) -> int:
        return len(self._values)

    def retain(self, words: I64) -> None:
        """Remove all values but these."""
        places = np.searchsorted(np.array(self._labels, np.int64), np.unique(words))
        self._values = [self._values[place] for place in places]
        self._labels = [self._labels[place] for place in places]
        self._label_by_value = dict(zip(self._values, self._labels, strict=True))
        self._column = None

    def _insert(self, value: Any, before: Relabeling | None) -> Relabeling | None:
        """Add a value; returns how labels have changed since the start of the batch, `before` included."""
        place = bisect_left(self._values, value)
        low = self._labels[place - 1] if place else None
        high = self._labels[place] if place < len(self._labels) else None
        if low is None:
            label = 0 if high is None else high - self._gap
        elif high is None:
            label = low + self._gap
        else:
            label = (low + high) // 2
        self._values.insert(place, value)
        self._column = None
        if label in (low, high) or abs(label) >= 2**62:
            return self._relabel(place, before)
        self._labels.insert(place, label)
        self._label_by_value[value] = label
        return before

    def _relabel(self, place: int, before: Relabeling | None) -> Relabeling:
        old = np.array(self._labels, np.int64)
        labels = (np.arange(len(self._values), dtype=np.int64) - len(self._values) // 2) * self._gap
        step = Relabeling(old, np.delete(labels, place))
        self._labels = labels.tolist()
        self._label_by_value = dict(zip(self._values, self._labels, strict=True))
        return step if before is None else Relabeling(before.old, step.apply(before.new))


class ExtremeAccumulator:
    """MIN(x) and MAX(x)."""

    def __init__(self, type_: pa.DataType, maintenance: Maintenance, *, smallest: bool) -> None:
        by_label = pt.is_string(type_) or pt.is_binary(type_) or pt.is_decimal(type_)
        self._encoder: WordEncoder | LabelEncoder = (
            LabelEncoder(type_, maintenance.label_gap) if by_label else WordEncoder(type_)
        )
        self._maintenance = maintenance
        self._flip_mask = np.int64(0 if smallest else -1)
        self._roots: I64 = np.full((1, 2), NONE, np.int64)
        self._live_count = 0
        self._clear(1)

    def _clear(self, capacity: int) -> None:
        self._key, self._child, self._sibling = (np.zeros(capacity, np.int64) for _ in range(3))
        self._owner: I64 = np.full(capacity, NONE, np.int64)
        self._pool: I64 = np.array([NONE, 0], np.int64)

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], bound: int) -> pa.Array:
        (values,) = columns
        weights = zero_null_weights(weights, values)
        encoded = self._encoder.encode(values)
        if encoded.relabeling is not None:
            used = self._owner >= 0
            self._key[used] = encoded.relabeling.apply(self._key[used] ^ self._flip_mask) ^ self._flip_mask
        out, found = self._update_heaps(at, weights, encoded.words ^ self._flip_mask, bound)
        self._live_count += int(weights.sum())
        result = self._encoder.decode(out ^ self._flip_mask, found.view(np.bool_))
        if self._pool[1] > 2 * self._maintenance.regrowth * self._live_count + self._maintenance.compact_rows:
            self._compact()
        return result

    def _update_heaps(self, at: ChangePoints, weights: I8, words: I64, bound: int) -> tuple[I64, U8]:
        if bound > self._roots.shape[0]:
            more = (1 << (bound - 1).bit_length()) - self._roots.shape[0]
            self._roots = np.concatenate([self._roots, np.full((more, 2), NONE, np.int64)])
        if self._pool[1] + weights.size > self._key.size:
            capacity = 1 << (int(self._pool[1]) + weights.size - 1).bit_length()
            self._key, self._child, self._sibling = (grow(a, capacity) for a in (self._key, self._child, self._sibling))
            self._owner = np.concatenate([self._owner, np.full(capacity - self._owner.size, NONE, np.int64)])
        out, found = np.empty(len(at), np.int64), np.empty(len(at), np.uint8)
        find_group_minimum(
            at.ends, at.codes, weights, words, self._roots,
            self._key, self._child, self._sibling, self._owner, self._pool, out, found,
        )  # fmt: skip
        return out, found

    def _compute_max_labels(self, used: int) -> float:
        """How many labels are kept while `used` values are in use."""
        return self._maintenance.regrowth * used + self._maintenance.compact_rows

    def _compact(self) -> None:
        """Rebuild the heaps from the values that came and have not left."""
        used = np.flatnonzero(self._owner >= 0)
        owner, key = self._owner[used], self._key[used]
        order = np.lexsort((key, owner >> 1))
        owner, key = owner[order], key[order]
        codes, weights = owner >> 1, 1 - 2 * (owner & 1)
        starts = np.flatnonzero(np.append(True, (codes[1:] != codes[:-1]) | (key[1:] != key[:-1]))[: codes.size])
        left = np.add.reduceat(weights, starts) if starts.size else starts
        codes, key = np.repeat(codes[starts], left), np.repeat(key[starts], left)
        self._roots.fill(NONE)
        self._clear(max(1, 1 << (2 * codes.size).bit_length()))
        if isinstance(self._encoder, LabelEncoder) and len(self._encoder) > self._compute_max_labels(codes.size):
            self._encoder.retain(key ^ self._flip_mask)
        if codes.size:
            ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]) + 1, codes.size)
            groups = codes[ends - 1].astype(np.int32)
            at = ChangePoints(np.arange(codes.size), groups, ends, ends, np.ones(ends.size, np.bool_))
            self._update_heaps(at, np.ones(codes.size, np.int8), key, int(groups.max()) + 1)
