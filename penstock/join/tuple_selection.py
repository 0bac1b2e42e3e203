"""Which tuples of a batch a leaf stores, and their codes.

Law: a tuple is stored if it passes the filters, or if some query that shares the leaf needs it, and if it has no NULL
in a term that joins it. Queries that do not join on a term need tuples with a NULL in it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.expr import Column, compute_mask, evaluate
from penstock.join.sharing.leaf_interest import LeafInterest
from penstock.plan import LeafPlan
from penstock.state import I32, I64, KeySpace, Mask

_NO_NULL_CODES: Mapping[int, int] = {}


@dataclass
class TupleSelection:
    """The tuples of a batch that are stored: positions (None for all), codes by class, and codes of interest."""

    chosen: I64 | None
    codes: dict[int, I32]
    wanted: I32 | None

    def take(self, times: I64) -> I64:
        return times if self.chosen is None else times[self.chosen]

    def read(self, columns: Mapping[str, pa.Array], names: Iterable[str]) -> Mapping[str, pa.Array]:
        """Some columns of the stored tuples; there may be others."""
        if self.chosen is None:
            return columns
        indices = pa.array(self.chosen)
        return {name: columns[name].take(indices) for name in names}


def select_tuples(
    plan: LeafPlan,
    keys: KeySpace,
    interest: LeafInterest | None,
    columns: Mapping[str, pa.Array],
    rows: int,
    wanted: I32 | None,
) -> TupleSelection:
    """Choose the tuples that are stored. `wanted` are codes of interest; filters have been evaluated then."""
    if wanted is not None:
        chosen = _find_positions(wanted)
    elif plan.filters:
        chosen = _find_positions(compute_mask(plan.filters, lambda column: columns[column.name], rows))
    else:
        chosen = None
    codes, with_nulls = _encode_terms(plan, keys, columns, chosen, rows)
    if wanted is None and not with_nulls:
        return TupleSelection(chosen, codes, None)
    null_codes = _NO_NULL_CODES if interest is None else interest.null_codes
    lacking = [codes[id_] for id_ in with_nulls if id_ not in null_codes]
    if lacking:
        matchable = np.logical_and.reduce([column >= 0 for column in lacking])
        chosen = np.flatnonzero(matchable) if chosen is None else chosen[matchable]
        codes = {id_: column[matchable] for id_, column in codes.items()}
    if wanted is not None and chosen is not None:
        wanted = wanted[chosen]
    if null_codes and interest is not None:
        positions = np.arange(rows) if chosen is None else chosen
        if wanted is None:
            wanted = np.full(positions.size, interest.encode_readers(), np.int32)
        return TupleSelection(*interest.narrow_nulls(positions, codes, wanted))
    return TupleSelection(chosen, codes, wanted)


def _encode_terms(
    plan: LeafPlan, keys: KeySpace, columns: Mapping[str, pa.Array], chosen: I64 | None, rows: int
) -> tuple[dict[int, I32], list[int]]:
    """The codes of tuples in every class, NONE where the term is NULL; and the classes in which some are NULL."""
    codes: dict[int, I32] = {}
    with_nulls = []
    for id_, term in plan.terms:
        if chosen is None and isinstance(term, Column):
            values = columns[term.name]
        else:
            values = evaluate(term, _make_reader(columns, chosen), rows if chosen is None else chosen.size)
        codes[id_] = keys.interners[id_].intern(values)
        if values.null_count:
            with_nulls.append(id_)
    return codes, with_nulls


def _find_positions(chosen: Mask | I32) -> I64 | None:
    """Where a mask is true, or a code is not NO_INTEREST; None for everywhere."""
    return None if np.count_nonzero(chosen) == chosen.size else np.flatnonzero(chosen)


def _make_reader(columns: Mapping[str, pa.Array], chosen: I64 | None) -> Callable[[Column], pa.Array]:
    if chosen is None:
        return lambda column: columns[column.name]
    indices = pa.array(chosen)
    return lambda column: columns[column.name].take(indices)
