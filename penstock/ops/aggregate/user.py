"""User-defined aggregates: Python classes that are called with the rows of a group one by one.

Law: at every instant at which a group changes, `terminate` returns the result over the rows that the group has then. A
class has `iterate(*arguments)`, `terminate()` and, optionally, `initialise` and `remove(*arguments)`. Each group has an
object of its own, which is deleted when the group has lost all of its rows. `initialise` is called once before the
first row; if it takes arguments, it is called with the first row instead of `iterate`. Without `remove`, a group that
lost rows is computed again from the rows it has, in the order in which they came. Rows with a NULL argument are
ignored, unless the class has `nulls = True`; without other rows the result is NULL. An exception of the class stops its
query and no other.
State: an object a group; without `remove` also the arguments of its rows. Cost: Python per row.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import QueryError
from penstock.ops.protocol import I8
from penstock.ops.row_groups import ChangePoints
from penstock.state import I32, I64

Arguments = tuple[Any, ...]


class AggregateError(Exception):
    """A user-defined aggregate raised an exception, or returned a value that does not fit its type."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name} raised {type(error).__name__}: {error}")
        self.aggregate = name
        self.error = error


def make_aggregate_error(id_: str, failed: AggregateError) -> QueryError:
    """Why an operator stopped."""
    error = QueryError(
        "AGGREGATE_FAILED",
        f"{id_} stopped: the aggregate {failed}; correct the class, drop the query and start it again",
        aggregate=failed.aggregate,
    )
    error.__cause__ = failed.error
    return error


def check_aggregate_class(name: str, cls: object) -> type:
    """The class, if it can be an aggregate."""
    if not isinstance(cls, type):
        raise QueryError("BAD_AGGREGATE", f"the aggregate {name} is {cls!r}; give a class", aggregate=name)
    missing = [method for method in ("iterate", "terminate") if not callable(getattr(cls, method, None))]
    if missing:
        raise QueryError(
            "BAD_AGGREGATE",
            f"the class {cls.__name__} of the aggregate {name} has no {' and no '.join(missing)}; "
            "it needs iterate(*arguments) and terminate(), and may have initialise and remove",
            aggregate=name,
        )
    return cls


class _GroupState:
    """The object of one group, and its rows if the class has no `remove`."""

    def __init__(self, cls: type, first_row_in_initialise: bool) -> None:
        self._cls = cls
        self._takes_first = first_row_in_initialise
        self.rows: dict[Hashable, Arguments] = {}
        self.count = 0
        self.result: Any = None
        self.stale = False
        self._object: Any = None

    def add(self, arguments: Arguments) -> None:
        if self._object is None:
            self._object = self._cls()
            initialise = getattr(self._object, "initialise", None)
            if initialise is not None:
                initialise(*(arguments if self._takes_first else ()))
                if self._takes_first:
                    return
        self._object.iterate(*arguments)

    def remove(self, arguments: Arguments) -> None:
        self._object.remove(*arguments)

    def compute_result(self) -> Any:
        if not self.count:
            self._object = None
            return None
        if self.stale:
            self._object = None
            for arguments in self.rows.values():
                self.add(arguments)
        self.stale = False
        return self._object.terminate()


class UserAggregate:
    """A user-defined aggregate over all groups."""

    def __init__(self, name: str, cls: type, type_: pa.DataType) -> None:
        self._name = name
        self._cls = cls
        self._type = type_
        self._can_remove = callable(getattr(cls, "remove", None))
        initialise = getattr(cls, "initialise", None)
        self._takes_first = initialise is not None and len(inspect.signature(initialise).parameters) > 1
        self._groups: dict[int, _GroupState] = {}

    def apply(self, at: ChangePoints, weights: I8, columns: Sequence[pa.Array], names: I64 | I32) -> pa.Array:
        """Apply changes, in the order of the points; a row leaves with the name with which it entered."""
        arguments = list(zip(*(column.to_pylist() for column in columns), strict=True))
        results, start = [], 0
        try:
            for code, end in zip(at.codes.tolist(), at.ends.tolist(), strict=True):
                results.append(self._apply_group(code, range(start, end), weights, arguments, names))
                start = end
            return pa.array(results, self._type)
        except MemoryError:  # not the fault of the class
            raise
        except Exception as error:
            raise AggregateError(self._name, error) from error

    def _apply_group(self, code: int, rows: range, weights: I8, arguments: list[Arguments], names: I64 | I32) -> Any:
        group = self._groups.get(code)
        for row in rows:
            if not weights[row]:
                continue
            if group is None:
                group = self._groups[code] = _GroupState(self._cls, self._takes_first)
            self._apply_row(group, int(weights[row]), int(names[row]), arguments[row])
        if group is None:
            return None
        if len(rows):
            group.result = group.compute_result()
            if not group.count:
                del self._groups[code]
        return group.result

    def _apply_row(self, group: _GroupState, weight: int, name: int, arguments: Arguments) -> None:
        group.count += weight
        if self._can_remove:
            (group.add if weight > 0 else group.remove)(arguments)
        elif weight > 0:
            group.rows[name] = arguments
            if not group.stale:
                group.add(arguments)
        else:
            del group.rows[name]
            group.stale = True
