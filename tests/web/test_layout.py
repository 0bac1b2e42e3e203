"""The layered layout: boxes do not overlap, arcs go to the right, the same graph has the same picture."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from penstock.web.layout import Layout, Size, lay_out


def draw_random(seed: int) -> tuple[dict[str, Size], list[tuple[str, str]], Layout]:
    rng = random.Random(seed)
    sizes = {f"n{number}": Size(rng.uniform(50, 200), rng.uniform(20, 90)) for number in range(rng.randint(1, 30))}
    names = list(sizes)
    arcs = (
        [tuple(sorted(rng.sample(range(len(names)), 2))) for _ in range(rng.randint(0, 50))] if len(names) > 1 else []
    )
    named = [(names[start], names[end]) for start, end in arcs]
    return sizes, named, lay_out(sizes, named)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int) -> None:
    sizes, arcs, layout = draw_random(seed)
    for one, other in combinations(sizes, 2):
        (x, y), (u, v) = layout.boxes[one], layout.boxes[other]
        apart_x = x + sizes[one].width <= u or u + sizes[other].width <= x
        apart_y = y + sizes[one].height <= v + 1e-6 or v + sizes[other].height <= y + 1e-6
        assert apart_x or apart_y, (one, other)
    for start, end in arcs:
        assert layout.boxes[start][0] + sizes[start].width < layout.boxes[end][0]
        points = layout.arcs[start, end]
        assert all(left[0] < right[0] for left, right in pairwise(points))
        for (x, y), (u, v) in pairwise(points):  # it bends between layers only, and passes no box
            for name, (left, top) in layout.boxes.items():
                beside = u <= left + 1e-6 or left + sizes[name].width <= x + 1e-6
                assert beside or max(y, v) <= top + 1e-6 or top + sizes[name].height <= min(y, v) + 1e-6, (start, end)
    for name, (x, y) in layout.boxes.items():
        assert 0 <= x <= layout.width - sizes[name].width
        assert 0 <= y <= layout.height - sizes[name].height
    assert layout == draw_random(seed)[2]


def test_empty_graph_and_unknown_boxes() -> None:
    assert lay_out({}, []).boxes == {}
    assert lay_out({"a": Size(10, 10)}, [("a", "b"), ("a", "a")]).arcs == {}


def test_arcs_of_a_box_are_apart() -> None:
    sizes = {name: Size(100, 60) for name in "abcd"}
    layout = lay_out(sizes, [("a", "d"), ("b", "d"), ("c", "d")])
    ends = sorted(layout.arcs[name, "d"][-1][1] for name in "abc")
    assert all(right - left > 10 for left, right in pairwise(ends))
    tops = sorted("abc", key=lambda name: layout.boxes[name][1])
    assert tops == sorted("abc", key=lambda name: layout.arcs[name, "d"][-1][1])


def test_neighbours_are_exchanged_where_fewer_arcs_cross() -> None:
    """Five readers of `join` and one of `early`: by the mean place of its neighbours a reader can stand above."""
    sizes = {name: Size(100, 40) for name in ("a", "b", "early", "join", "late", "out", *"uvwxy")}
    arcs = [("a", "early"), ("a", "join"), ("b", "join"), ("early", "late"), ("b", "late"), ("late", "out")]
    arcs += [("join", each) for each in "uvwxy"]
    boxes = lay_out(sizes, arcs).boxes
    assert (boxes["early"][1] < boxes["join"][1]) == all(boxes["late"][1] < boxes[each][1] for each in "uvwxy")


def test_gap_is_wider_for_many_arcs() -> None:
    sizes = {name: Size(100, 40) for name in ("a", "b", *map(str, range(40)))}
    few, many = [("a", "0")], [(source, str(number)) for source in "ab" for number in range(40)]
    assert lay_out(sizes, many).boxes["0"][0] > lay_out(sizes, few).boxes["0"][0]
