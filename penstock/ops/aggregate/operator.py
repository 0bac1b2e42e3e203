"""The aggregate operator: GROUP BY, aggregates and HAVING.

Law: at every instant the answer has one row for each group that has rows valid then and passes HAVING. Its values are
the keys and the aggregates over those rows. A row leaves (-1) and another enters (+1) at an instant only if a value
changed. Without keys all rows are one group, which, like any other, is in the answer only while it has rows.
With SLIDE there are reports: see `sliding`.

It reads changes of whole instants. State: codes for the keys, accumulators (see `accumulators`), the number of each
group's row. It does not keep its input or output: the rows before a batch follow from the accumulators.
Cost: O(n log n) to sort a batch by group, then O(1) a change (O(log n) for MIN and MAX).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.expr import AGGREGATES, INT, Aggregate, Column, FunctionError, compute_mask, evaluate
from penstock.ops.aggregate.accumulators import Accumulator, make_accumulator
from penstock.ops.aggregate.user import AggregateError, UserAggregate, make_aggregate_error
from penstock.ops.evaluation import make_evaluation_error
from penstock.ops.kernels import compute_distinct_weights
from penstock.ops.protocol import (
    I8,
    Batch,
    Changes,
    FrontierBypass,
    Inlet,
    Outlet,
    QueryOperator,
    SavedState,
    as_changes,
    concat,
)
from penstock.ops.row_groups import (
    AnswerDiffer,
    ChangePoints,
    GroupCounts,
    RowGroups,
    find_change_points,
    grow,
    make_empty_changes,
    zero_null_weights,
)
from penstock.ops.time_merge import pass_frontier
from penstock.plan import GroupPlan
from penstock.state import ALWAYS, I32, I64, SHIPPED, Maintenance

COUNT_STAR = Aggregate("count", (), False, INT)
"""COUNT(*): counted for every group, because a group without rows is not in the answer."""


class _DistinctWeights:
    """DISTINCT in an aggregate: of equal values in a group only the first to come and the last to leave count."""

    def __init__(self, types: Sequence[pa.DataType], maintenance: Maintenance) -> None:
        self._groups = RowGroups([pa.int32(), *types], maintenance)
        self._counts: I64 = np.zeros(1, np.int64)

    def filter_weights(self, codes: I32, weights: I8, columns: Sequence[pa.Array]) -> tuple[I8, I32]:
        """The weights of the changes that count, else 0, and a name for each value of a group."""
        names = self._groups.encode([pa.array(codes), *columns], codes.size)
        self._counts = grow(self._counts, self._groups.bound)
        out = np.empty(codes.size, np.int8)
        compute_distinct_weights(names, weights, self._counts, out)
        return out, names

    def recycle(self) -> None:
        self._groups.recycle(self._counts)


def _count_required(aggregate: Aggregate, classes: Mapping[str, type]) -> int:
    """How many arguments must not be NULL: rows with a NULL in one of the first of them are ignored."""
    if aggregate.function not in classes:
        return AGGREGATES[aggregate.function].required
    return 0 if getattr(classes[aggregate.function], "nulls", False) else len(aggregate.args)


class AggregateFunction:
    """One aggregate over groups whose rows come and go. `columns` are the names of its arguments."""

    def __init__(
        self, aggregate: Aggregate, columns: Sequence[str], classes: Mapping[str, type], maintenance: Maintenance
    ) -> None:
        self.columns = list(columns)
        self._required = _count_required(aggregate, classes)
        self._distinct = (
            _DistinctWeights([arg.type for arg in aggregate.args], maintenance) if aggregate.distinct else None
        )
        self._accumulator: UserAggregate | Accumulator = (
            UserAggregate(aggregate.function, classes[aggregate.function], aggregate.type)
            if aggregate.function in classes
            else make_accumulator(aggregate, maintenance)
        )

    def apply(self, at: ChangePoints, changes: Changes, bound: int) -> pa.Array:
        """The result at every point. `changes` are in the order of the points."""
        columns = [changes.columns[name] for name in self.columns]
        weights: I8 = changes.signs
        names: I64 | I32 = changes.numbers
        for column in columns[: self._required]:
            weights = zero_null_weights(weights, column)
        if self._distinct is not None:
            codes = np.repeat(at.codes, np.diff(at.ends, prepend=0))
            self._distinct.recycle()
            weights, names = self._distinct.filter_weights(codes, weights, columns)
        if isinstance(self._accumulator, UserAggregate):
            return self._accumulator.apply(at, weights, columns, names)
        return self._accumulator.apply(at, weights, columns, bound)


class GroupedAggregation:
    """The answer of a GROUP BY under changes of its input."""

    def __init__(self, plan: GroupPlan, classes: Mapping[str, type], maintenance: Maintenance) -> None:
        self._plan = plan
        self._groups = RowGroups([key.type for key in plan.keys], maintenance)
        self._counts = GroupCounts()
        self._functions = [
            None
            if aggregate == COUNT_STAR
            else AggregateFunction(aggregate, [plan.input_names[arg] for arg in aggregate.args], classes, maintenance)
            for aggregate in plan.aggregates
        ]
        self._items = [(name, plan.to_group_columns(expr)) for name, expr in plan.items]
        self._having = None if plan.having is None else plan.to_group_columns(plan.having)
        self._differ = AnswerDiffer()

    def apply_changes(self, changes: Changes) -> Changes | None:
        """The changes of the answer, given changes of the input."""
        self._groups.recycle(self._counts.counts)
        keys = [changes.columns[f"{place}"] for place in range(len(self._plan.keys))]
        at = find_change_points(self._groups.encode(keys, len(changes)), changes.times)
        changes = changes.take(at.order)
        bound = self._groups.bound
        rows = self._counts.apply(at, changes.signs, bound)
        known = {("key", f"{place}"): key for place, key in enumerate(self._groups.decode(at.codes))}
        for place, function in enumerate(self._functions):
            value = pa.array(rows) if function is None else function.apply(at, changes, bound)
            known["aggregate", f"{place}"] = value

        def read(column: Column) -> pa.Array:
            return known[column.alias, column.name]

        columns = {name: evaluate(expr, read, len(at)) for name, expr in self._items}
        shown = rows > 0
        if self._having is not None:
            shown &= compute_mask([self._having], read, len(at))
        return self._differ.compute_changes(at, shown, columns, bound)

    def metrics(self) -> dict[str, object]:
        return {"groups": int(np.count_nonzero(self._counts.counts))}


class AggregateBase(QueryOperator):
    """What both aggregate operators share: the aggregation, its failure and its state."""

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, plan: GroupPlan, classes: Mapping[str, type],
        maintenance: Maintenance = SHIPPED,
    ) -> None:  # fmt: skip
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._aggregation = GroupedAggregation(plan, classes, maintenance)
        self._types = {name: expr.type for name, expr in plan.items}
        self._emitted = 0

    def metrics(self) -> dict[str, object]:
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {**self._aggregation.metrics(), "emitted": self._emitted, **error}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """The state follows from the current rows of the input."""
        if current is None:
            return None
        (rows,) = current
        changed = self._apply_batches([replace(rows, times=np.full(len(rows), ALWAYS + 1))])
        return make_empty_changes(self._types) if changed is None else changed

    def _apply_batches(self, batches: Sequence[Batch]) -> Changes | None:
        changes = [as_changes(batch) for batch in batches if len(batch)]
        if not changes or self.failure is not None:
            return None
        try:
            return self._aggregation.apply_changes(concat(changes))
        except AggregateError as failed:
            self.failure = make_aggregate_error(self.id, failed)
        except FunctionError as failed:
            self.failure = make_evaluation_error(self.id, failed)
        return None

    def _write(self, changed: Changes | None) -> None:
        if changed is not None:
            self._emitted += len(changed)
            self._outlet.write(changed)


class AggregateOperator(AggregateBase, FrontierBypass):
    """GROUP BY that reports at every instant at which something changes."""

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        batches = self._inlet.take_batches(budget)
        self._write(self._apply_batches(batches))
        pass_frontier(self._inlet, self._outlet)
        return sum(len(batch) for batch in batches)
