"""The projection operator: a filter and new columns over the changes of an answer.

Law: a row of the input that satisfies all conditions is in the answer, with the output columns, exactly while it is in
the answer of the input. Numbers and signs stay the same. State: none. Cost: O(1) a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.expr import Column, Expr, compute_mask, evaluate
from penstock.ops.evaluation import EVALUATION_ERRORS, make_evaluation_error
from penstock.ops.protocol import B, Batch, Changes, FrontierBypass, Inlet, Outlet, QueryOperator, SavedState
from penstock.ops.time_merge import pass_frontier


class ProjectionOperator(QueryOperator, FrontierBypass):
    """SELECT outputs FROM one relation WHERE conditions.

    Columns are read by their names; aliases do not matter.
    """

    def __init__(
        self, id_: str, inlet: Inlet, outlet: Outlet, conditions: Sequence[Expr], outputs: Sequence[tuple[str, Expr]]
    ) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._conditions = tuple(conditions)
        self._outputs = tuple(outputs)
        self._emitted = 0

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        done = 0
        for batch in self._inlet.take_batches(budget):
            rows = self._try_project(batch)
            if rows is not None and len(rows):
                self._emitted += len(rows)
                self._outlet.write(rows)
            done += len(batch)
        pass_frontier(self._inlet, self._outlet)
        return done

    def metrics(self) -> dict[str, object]:
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {"emitted": self._emitted, **error}

    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None:  # noqa: ARG002
        """No state: the current rows follow from those of the input."""
        return None if current is None else self._project(current[0])

    def _try_project(self, batch: Batch) -> Batch | None:
        if self.failure is not None:
            return None
        try:
            return self._project(batch)
        except MemoryError:
            raise
        except EVALUATION_ERRORS as error:
            self.failure = make_evaluation_error(self.id, error)
            return None

    def _project(self, batch: B) -> B:
        if self._conditions:
            passing = compute_mask(self._conditions, _make_reader(batch), len(batch))
            if not passing.all():
                batch = batch.take(np.flatnonzero(passing))
        read = _make_reader(batch)
        return replace(batch, columns={name: evaluate(expr, read, len(batch)) for name, expr in self._outputs})


def _make_reader(batch: Batch) -> Callable[[Column], pa.Array]:
    return lambda column: batch.columns[column.name]
