"""Routes: how the tuples of one FROM item find their cells in a grid. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from penstock.expr.nodes import Column, Expr, rewrite


@dataclass(frozen=True)
class HashCoordinate:
    """A coordinate from a hash: of a term, or of the whole tuple if there is no term."""

    term: Expr | None
    keeps_nulls: bool = False
    """Whether a NULL has a cell: it equals nothing in a join, but is a group of its own."""


@dataclass(frozen=True)
class RouteDimension:
    """One dimension as a stream sees it: how many cells it has, and the tuple's coordinate. None: all of them."""

    share: int
    coordinate: HashCoordinate | None


@dataclass(frozen=True)
class Route:
    """How the tuples of one FROM item find their cells. Terms have no alias, so that routes compare by value."""

    first_cell: int
    dimensions: tuple[RouteDimension, ...]

    @property
    def copies(self) -> int:
        """To how many cells a tuple goes."""
        return prod(step.share for step in self.dimensions if step.coordinate is None)

    def compute_strides(self) -> tuple[int, ...]:
        """How far apart the cells of a dimension are, for each dimension."""
        return tuple(prod(step.share for step in self.dimensions[place + 1 :]) for place in range(len(self.dimensions)))

    def is_owner(self, cell: int) -> bool:
        """Whether this cell speaks for the tuples it holds: one of the copies does."""
        place = cell - self.first_cell
        if not 0 <= place < prod(step.share for step in self.dimensions):
            return False
        return all(
            step.coordinate is not None or place // offset % step.share == 0
            for step, offset in zip(self.dimensions, self.compute_strides(), strict=True)
        )


def strip_alias(term: Expr) -> Expr:
    """A term of a stream, whatever the stream is called."""
    return rewrite(term, lambda node: replace(node, alias="") if isinstance(node, Column) else node)
