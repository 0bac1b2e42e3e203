"""Routes: how the tuples of one FROM item find their cells in a grid. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from penstock.expr import Column, Expr, rewrite


@dataclass(frozen=True)
class HashCoordinate:
    """A coordinate by a hash: of a term, or of the whole tuple if there is no term."""

    term: Expr | None
    keeps_nulls: bool = False
    """Whether a NULL has a cell: it equals no value in a join, but is a group of its own."""


@dataclass(frozen=True)
class RouteDimension:
    """One dimension of the grid for a stream: its number of cells, and the coordinate of a tuple. None: all cells."""

    share: int
    coordinate: HashCoordinate | None


@dataclass(frozen=True)
class Route:
    """The cells of the tuples of one FROM item. Terms have no alias, so that routes compare by value."""

    first_cell: int
    dimensions: tuple[RouteDimension, ...]

    @property
    def copies(self) -> int:
        """The number of cells a tuple goes to."""
        return prod(step.share for step in self.dimensions if step.coordinate is None)

    def compute_strides(self) -> tuple[int, ...]:
        """For each dimension, the distance between the numbers of neighbouring cells."""
        return tuple(prod(step.share for step in self.dimensions[place + 1 :]) for place in range(len(self.dimensions)))

    def is_owner(self, cell: int) -> bool:
        """Whether this cell reports the tuples it holds: one of the cells with a copy does."""
        place = cell - self.first_cell
        if not 0 <= place < prod(step.share for step in self.dimensions):
            return False
        return all(
            step.coordinate is not None or place // offset % step.share == 0
            for step, offset in zip(self.dimensions, self.compute_strides(), strict=True)
        )


def strip_alias(term: Expr) -> Expr:
    """A term of a stream without the alias of the stream."""
    return rewrite(term, lambda node: replace(node, alias="") if isinstance(node, Column) else node)
