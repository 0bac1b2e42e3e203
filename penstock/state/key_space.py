"""Key codes: keys of one or more columns become dense int32 codes, shared by all operators that compare these keys.

Law: two keys have the same code exactly if they are equal in every column. The code of a single column is that of its
interner; a longer key is the pair of its prefix's code and its last column's code, interned again. Codes that no stored
row uses are recycled, so that the tables are bounded by the stored rows, not by the history.

The join, sequences, groups and ROWS windows with PARTITION BY all use this coder. In a join key NULL matches nothing;
in a group or a partition NULL is a value like another (`null_is_value`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.plan import Key
from penstock.state.interning import CodeTable, Interner, NullableInterner, empty_codes, make_interner
from penstock.state.kernels import I32, I64, U8
from penstock.state.maintenance import SHIPPED, Maintenance


class KeySpace:
    """The codes of all keys over some columns. A key is a tuple of column numbers in ascending order."""

    def __init__(
        self, types: Sequence[pa.DataType], maintenance: Maintenance = SHIPPED, *, null_is_value: bool = False
    ) -> None:
        self._maintenance = maintenance
        self.full_key: Key = tuple(range(len(types)))
        """The key of all columns."""
        interners: Iterable[Interner] = (make_interner(type_, maintenance.capacity) for type_ in types)
        if null_is_value:
            interners = map(NullableInterner, types, interners)
        self.interners = tuple(interners)
        self._composites: dict[Key, CodeTable] = {}
        self._tables: dict[Key, Interner | CodeTable] = {(id_,): each for id_, each in enumerate(self.interners)}
        """All of them, by key."""
        self._live_after_recycle: dict[Key, int] = {}

    def code_limit(self, key: Key) -> int:
        """All codes of a key are below this."""
        if not key:
            return 1
        return self.interners[key[0]].code_limit if len(key) == 1 else self._get_composite(key).code_limit

    def count_codes(self, key: Key) -> int:
        """How many codes of a key are in use, or were since the last recycling."""
        if not key:
            return 1
        return self.interners[key[0]].live_count if len(key) == 1 else self._get_composite(key).live_count

    def encode_columns(self, columns: Sequence[pa.Array], rows: int, *, insert: bool) -> I32:
        """The codes of the full key from the values of all columns."""
        parts = [interner.intern(column) for interner, column in zip(self.interners, columns, strict=True)]
        return self.encode(self.full_key, parts, rows, insert=insert)

    def decode_columns(self, codes: I32) -> list[pa.Array]:
        """The values of all columns from codes of the full key."""
        parts = self.decode(self.full_key, codes)
        return [interner.values(part) for interner, part in zip(self.interners, parts, strict=True)]

    def encode(self, key: Key, parts: Sequence[I32], rows: int, *, insert: bool) -> I32:
        """The codes of a key from the codes of its columns, in the key's order.

        Without `insert` a key that was never inserted gets NONE. The empty key has the one code 0.
        """
        if not key:
            return np.zeros(rows, np.int32)
        if len(key) == 1:
            return parts[0]
        prefix = self.encode(key[:-1], parts[:-1], rows, insert=insert)
        last = parts[-1]
        packed = (prefix.astype(np.int64) << 32) | last.astype(np.int64)
        known = (prefix >= 0) & (last >= 0)
        table = self._get_composite(key)
        find: Callable[[I64], I32] = table.intern if insert else table.lookup
        if known.all():
            return find(packed)
        out = empty_codes(rows)
        out[known] = find(packed[known])
        return out

    def decode(self, key: Key, codes: I32) -> list[I32]:
        """The codes of the columns that codes of a key are made of."""
        if len(key) <= 1:
            return [codes] * len(key)
        packed = self._get_composite(key).values(codes)
        return [*self.decode(key[:-1], (packed >> 32).astype(np.int32)), (packed & 0xFFFFFFFF).astype(np.int32)]

    def _get_composite(self, key: Key) -> CodeTable:
        table = self._composites.get(key)
        if table is None:
            table = self._composites[key] = self._tables[key] = CodeTable(self._maintenance.capacity)
        return table

    def recycle(self, used: Callable[[Key], Iterable[I32]]) -> bool:
        """Free the codes that no row uses, if enough were added; `used` yields the codes of a key that rows hold.

        Longer keys are recycled first, because the codes that a stored key is made of must keep their meaning. Returns
        whether codes may have been freed: a freed code may be used again for another value.
        """
        if not self._is_recycling_due():
            return False
        least, tables = self._maintenance.recycle_codes, self._tables
        for key in sorted(tables, key=len, reverse=True):
            tables[key].recycle(_mark_used(tables[key].code_limit, (*used(key), *self._list_part_codes(key))))
            self._live_after_recycle[key] = max(least, tables[key].live_count)
        return True

    def _is_recycling_due(self) -> bool:
        regrowth, least = self._maintenance.regrowth, self._maintenance.recycle_codes
        for key, table in self._tables.items():
            if table.live_count > regrowth * self._live_after_recycle.get(key, least):
                return True
        return False

    def _list_part_codes(self, key: Key) -> Iterable[I64]:
        """The codes of a key that codes of longer keys are made of."""
        for longer, table in self._composites.items():
            if longer[:-1] == key:
                yield table.list_live_values() >> 32
            if longer[-1:] == key:
                yield table.list_live_values() & 0xFFFFFFFF


def _mark_used(bound: int, used: Iterable[NDArray[np.signedinteger]]) -> U8:
    marks = np.zeros(bound, np.uint8)
    for codes in used:
        marks[codes[codes >= 0]] = 1
    return marks
