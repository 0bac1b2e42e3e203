"""Plans as SVG: a tree of boxes with the streams at the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from penstock.plan.explain import ExplainNode

CHARACTER_WIDTH = 7.3  # of a monospace font at 12 px
LINE_HEIGHT = 17
PADDING = 10
GAP = 24
LEVEL_GAP = 44  # between a box and its children
TITLE_HEIGHT = 30


@dataclass(frozen=True)
class Box:
    """A node of a plan: a heading and a line for each property, above the boxes of its inputs."""

    lines: tuple[str, ...]
    children: tuple[Box, ...]

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * CHARACTER_WIDTH + 2 * PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * LINE_HEIGHT + 2 * PADDING

    @property
    def children_width(self) -> float:
        """The width of the subtrees, side by side."""
        return sum(child.tree_width for child in self.children) + GAP * max(0, len(self.children) - 1)

    @property
    def tree_width(self) -> float:
        """The width of the box and its subtrees."""
        return max(self.width, self.children_width)

    @property
    def tree_height(self) -> float:
        """The height of the box and its subtrees."""
        return self.height + max((LEVEL_GAP + child.tree_height for child in self.children), default=0)


def _build_box(part: ExplainNode) -> Box:
    lines = (part.title, *(f"{name}: {value}" for name, value in part.properties))
    return Box(lines, tuple(_build_box(child) for child in part.children))


def draw_svg(plans: Mapping[str, ExplainNode]) -> str:
    """One picture of several plans with titles, one below the other."""
    trees = {title: _build_box(plan) for title, plan in plans.items()}
    width = max((tree.tree_width for tree in trees.values()), default=0) + 2 * GAP
    parts: list[str] = []
    y = float(GAP)
    for title, tree in trees.items():
        parts.append(f'<text class="title" x="{GAP}" y="{y + 12:.0f}">{escape(title)}</text>')
        parts += _draw_box(tree, GAP, y + TITLE_HEIGHT)
        y += TITLE_HEIGHT + tree.tree_height + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" font-family="monospace">'
    style = (
        "<style>text{font-size:12px;fill:#222}.title{font-size:14px;font-weight:bold}.head{font-weight:bold}"
        "rect{fill:#f4f7fa;stroke:#5b7a99}.leaf{fill:#eef7ee;stroke:#5c8f5c}path{fill:none;stroke:#888}</style>"
    )
    ground = '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, style, ground, *parts, "</svg>"])


def _draw_box(box: Box, left: float, top: float) -> Iterator[str]:
    """Draw a box centred over its subtree, which begins at `left`, and an arc from each child to its parent."""
    centre = left + box.tree_width / 2
    corner = centre - box.width / 2
    x, y = left + (box.tree_width - box.children_width) / 2, top + box.height + LEVEL_GAP
    for child in box.children:
        middle = x + child.tree_width / 2
        bend = y - LEVEL_GAP / 2
        yield f'<path d="M{middle:.1f} {y:.1f}V{bend:.1f}H{centre:.1f}V{top + box.height:.1f}"/>'
        yield from _draw_box(child, x, y)
        x += child.tree_width + GAP
    kind = "node" if box.children else "leaf"
    size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
    yield f'<rect class="{kind}" rx="6" x="{corner:.1f}" y="{top:.1f}" {size}/>'
    for number, line in enumerate(box.lines):
        weight = ' class="head"' if number == 0 else ""
        baseline = top + PADDING + LINE_HEIGHT * number + 12
        yield f'<text{weight} x="{corner + PADDING:.1f}" y="{baseline:.1f}">{escape(line)}</text>'
