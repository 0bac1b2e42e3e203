"""Layered layout of a directed graph without cycles, left to right: positions of boxes and lines of arcs.

The steps are those of Sugiyama: layers by the longest path, a place holder wherever an arc passes a layer, an order
within each layer by the mean place of the neighbours, and positions as near to the neighbours as the boxes' heights
allow (isotonic regression). Arcs of a box leave and enter it at places of their own, in the order of their other ends;
between two layers they bend, past a layer they are straight, so that none crosses a box. A pure function: the same
graph has the same picture. Both the page and `penstock explain --format svg` use it.

Cost: sweeps x (boxes + passed layers).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LAYER_GAP = 96.0
_MORE_GAP, _FEW_ARCS, _WIDEST_GAP = 3.0, 16, 360.0
"""A gap that more than a few arcs pass is wider by so much for each, so that they can be told apart."""
END_LENGTH = 50.0
"""The straight end of an arc, with room for a number such as "12.3k/s" above it; the rest of a gap is for its bend."""
ROW_GAP = 22.0
PORT_GAP = 18.0
"""The distance of two arcs of a box: each can have a number above it."""
MARGIN = 16.0
_ORDER_SWEEPS = 12
_PLACE_SWEEPS = 6
_EXCHANGE_SWEEPS = 8

Point = tuple[float, float]
Arc = tuple[str, str]


@dataclass(frozen=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """The left top corner of every box, the points that every arc passes, and the size of the picture."""

    boxes: Mapping[str, Point]
    arcs: Mapping[Arc, tuple[Point, ...]]
    width: float
    height: float


def lay_out(sizes: Mapping[str, Size], arcs: Sequence[Arc]) -> Layout:
    """Place the boxes of a graph; arcs that name an unknown box are left out."""
    known = list(dict.fromkeys((a, b) for a, b in arcs if a in sizes and b in sizes and a != b))
    layer = _assign_layers(list(sizes), known)
    heights = {name: size.height for name, size in sizes.items()}
    chains = {arc: _make_chain(arc, layer, heights) for arc in known}
    columns = _order_columns(layer, chains)
    tops = _place_rows(columns, chains, heights)
    passing = _count_passing(chains, layer)
    lefts, rights, total = _place_columns(columns, sizes, passing)
    boxes = {name: (lefts[layer[name]], tops[name]) for name in sizes}
    middle = {name: top + heights[name] / 2 for name, top in tops.items()}
    leaving, entering = _place_ends(chains, middle, heights)
    lines = {}
    for arc, chain in chains.items():
        start, end = arc
        points = [(boxes[start][0] + sizes[start].width, leaving[arc]), (rights[layer[start]], leaving[arc])]
        for name in chain[1:-1]:
            points += [(lefts[layer[name]], middle[name]), (rights[layer[name]], middle[name])]
        points += [(boxes[end][0] - END_LENGTH, entering[arc]), (boxes[end][0], entering[arc])]
        lines[arc] = tuple(dict.fromkeys(points))
    height = max((tops[name] + heights[name] for column in columns for name in column), default=0.0)
    return Layout(boxes, lines, total, height + MARGIN)


def _assign_layers(names: Sequence[str], arcs: Sequence[Arc]) -> dict[str, int]:
    """The longest path to each box. An arc that would close a cycle does not count."""
    after, degree = defaultdict[str, list[str]](list), dict.fromkeys(names, 0)
    for start, end in arcs:
        after[start].append(end)
        degree[end] += 1
    layer, ready = dict.fromkeys(names, 0), [name for name in names if not degree[name]]
    while ready:
        name = ready.pop()
        for end in after[name]:
            layer[end] = max(layer[end], layer[name] + 1)
            degree[end] -= 1
            if not degree[end]:
                ready.append(end)
    return layer


def _make_chain(arc: Arc, layer: dict[str, int], heights: dict[str, float]) -> list[str]:
    """An arc with a place holder in every layer it passes; place holders are added to `layer` and `heights`."""
    start, end = arc
    chain = [start]
    for passed in range(layer[start] + 1, layer[end]):
        name = f"\0{start}\0{end}\0{passed}"
        layer[name], heights[name] = passed, 4.0
        chain.append(name)
    return [*chain, end]


def _order_columns(layer: Mapping[str, int], chains: Mapping[Arc, list[str]]) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, number in layer.items():
        columns[number].append(name)
    before, after = _list_neighbours(chains)
    for sweep in range(_ORDER_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        place = {name: index / max(1, len(column) - 1) for column in columns for index, name in enumerate(column)}
        for column in columns if forward else reversed(columns):
            ranks = {
                name: sum(place[each] for each in near) / len(near) if (near := neighbours[name]) else place[name]
                for name in column
            }
            column.sort(key=lambda name: ranks[name])
            place.update({name: index / max(1, len(column) - 1) for index, name in enumerate(column)})
    return _exchange_neighbours(columns, before, after)


def _exchange_neighbours(
    columns: list[list[str]], before: Mapping[str, list[str]], after: Mapping[str, list[str]]
) -> list[list[str]]:
    """The columns with neighbours exchanged where that lets fewer arcs cross."""
    place = {name: index for column in columns for index, name in enumerate(column)}

    def count_crossings(upper: str, lower: str) -> int:
        return sum(
            place[one] > place[other] for side in (before, after) for one in side[upper] for other in side[lower]
        )

    for _ in range(_EXCHANGE_SWEEPS):
        changed = False
        for column in columns:
            for index in range(len(column) - 1):
                upper, lower = column[index : index + 2]
                if count_crossings(lower, upper) < count_crossings(upper, lower):
                    column[index], column[index + 1] = lower, upper
                    place[lower], place[upper] = index, index + 1
                    changed = True
        if not changed:
            break
    return columns


def _count_passing(chains: Mapping[Arc, list[str]], layer: Mapping[str, int]) -> Mapping[int, int]:
    """The arcs that pass the gap behind each column."""
    return Counter(layer[name] for chain in chains.values() for name in chain[:-1])


def _list_neighbours(chains: Mapping[Arc, list[str]]) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    before, after = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for chain in chains.values():
        for left, right in pairwise(chain):
            before[right].append(left)
            after[left].append(right)
    return before, after


def _place_rows(
    columns: Sequence[list[str]], chains: Mapping[Arc, list[str]], heights: Mapping[str, float]
) -> dict[str, float]:
    """The top of every box: near its neighbours, below the box before it."""
    before, after = _list_neighbours(chains)
    middle: dict[str, float] = {}
    for column in columns:
        y = 0.0
        for name in column:
            middle[name] = y + heights[name] / 2
            y += heights[name] + ROW_GAP
    for sweep in range(_PLACE_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [
                sum(middle[each] for each in near) / len(near) if (near := neighbours[name]) else middle[name]
                for name in column
            ]
            for name, y in zip(column, _separate(wanted, [heights[name] for name in column]), strict=True):
                middle[name] = y
    top = min((middle[name] - heights[name] / 2 for name in middle), default=0.0)
    return {name: y - heights[name] / 2 - top + MARGIN for name, y in middle.items()}


def _separate(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """The positions nearest to the wanted ones (least squares) in which boxes keep their order and do not touch."""
    offsets, total = [], 0.0
    for index, height in enumerate(heights):
        total += height / 2 + (heights[index - 1] / 2 + ROW_GAP if index else 0.0)
        offsets.append(total)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            earlier, more = blocks.pop()
            mean, count = (mean * count + earlier * more) / (count + more), count + more
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def _place_ends(
    chains: Mapping[Arc, list[str]], middle: Mapping[str, float], heights: Mapping[str, float]
) -> tuple[dict[Arc, float], dict[Arc, float]]:
    """The heights at which arcs leave and enter their boxes: those of a box do not meet unless there are many."""
    found: tuple[dict[Arc, float], dict[Arc, float]] = {}, {}
    for ends, box, neighbour in ((found[0], 0, 1), (found[1], -1, -2)):
        arcs = defaultdict[str, list[Arc]](list)
        for arc, chain in chains.items():
            arcs[chain[box]].append(arc)
        for name, listed in arcs.items():
            listed.sort(key=lambda arc: (middle[chains[arc][neighbour]], arc))
            gap = min(PORT_GAP, heights[name] / (len(listed) + 1))
            for place, arc in enumerate(listed):
                ends[arc] = middle[name] + gap * (place - (len(listed) - 1) / 2)
    return found


def _place_columns(
    columns: Sequence[list[str]], sizes: Mapping[str, Size], passing: Mapping[int, int]
) -> tuple[list[float], list[float], float]:
    """The left and the right edges of columns, and the width of all."""
    lefts, rights, x = [], [], MARGIN
    gap = 0.0
    for number, column in enumerate(columns):
        width = max((sizes[name].width for name in column if name in sizes), default=0.0)
        x += gap
        lefts.append(x)
        rights.append(x + width)
        x += width
        gap = min(_WIDEST_GAP, LAYER_GAP + _MORE_GAP * max(0, passing.get(number, 0) - _FEW_ARCS))
    return lefts, rights, x + MARGIN
