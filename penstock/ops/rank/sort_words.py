"""Sort keys as integers: two words for each column, which compare as its values do.

Law: rows compare by their words, from left to right, exactly as SQL compares their values: NULLs first or last as the
term says, NaN above all other numbers, texts by code point. Cost: O(1) a value; Python only for each new distinct text
or decimal (see `aggregate.extremes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from penstock.ops.aggregate.extremes import LabelEncoder, WordEncoder
from penstock.ops.row_groups import Mask
from penstock.plan import SortColumn
from penstock.state import I64, Maintenance


class SortWords:
    """The words of rows for some sort columns."""

    def __init__(self, columns: Sequence[tuple[SortColumn, pa.DataType]], maintenance: Maintenance) -> None:
        self._columns = [column for column, _ in columns]
        self._encoders = [_make_encoder(kind, maintenance) for _, kind in columns]
        self._maintenance = maintenance

    @property
    def width(self) -> int:
        return 2 * len(self._columns)

    def encode(self, values: Sequence[pa.Array], stored: NDArray[np.int64], used: Mask) -> NDArray[np.int64]:
        """The words of new rows. If the labels of a column change, so do those in `stored`, where it is `used`."""
        count = len(values[0]) if values else 0
        out = np.zeros((count, self.width), np.int64)
        for place, (column, encoder, array) in enumerate(zip(self._columns, self._encoders, values, strict=True)):
            known = array.is_valid().to_numpy(zero_copy_only=False)
            encoded = encoder.encode(array)
            flip = np.int64(-1 if column.descending else 0)
            if encoded.relabeling is not None:
                rows = np.flatnonzero(used & (stored[:, 2 * place] == column.nulls_first))
                held = stored[rows, 2 * place + 1]
                stored[rows, 2 * place + 1] = encoded.relabeling.apply(held ^ flip) ^ flip
            out[:, 2 * place] = known if column.nulls_first else ~known
            out[:, 2 * place + 1] = np.where(known, encoded.words ^ flip, 0)
        return out

    def decode_last(self, words: NDArray[np.int64], known: Mask) -> pa.Array:
        """The values of the last column of rows, where they are known; it is ascending and without NULLs."""
        return self._encoders[-1].decode(words[:, -1], known)

    def recycle(self, stored: NDArray[np.int64], used: Mask, count: int) -> None:
        """Forget texts and decimals that no row has, if there are many of them; `count` rows are used."""
        most = self._maintenance.regrowth * count + self._maintenance.compact_rows
        for place, (column, encoder) in enumerate(zip(self._columns, self._encoders, strict=True)):
            if isinstance(encoder, LabelEncoder) and len(encoder) > most:
                flip = np.int64(-1 if column.descending else 0)
                rows = np.flatnonzero(used & (stored[:, 2 * place] == column.nulls_first))
                words: I64 = stored[rows, 2 * place + 1] ^ flip
                encoder.retain(words)


def _make_encoder(kind: pa.DataType, maintenance: Maintenance) -> LabelEncoder | WordEncoder:
    by_label = pt.is_string(kind) or pt.is_binary(kind) or pt.is_decimal(kind)
    return LabelEncoder(kind, maintenance.label_gap) if by_label else WordEncoder(kind)
