"""A query graph as an SVG file: sources at the left, shared operators in the middle, queries and sinks at the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from penstock.engine import EngineStatus
from penstock.web.graph import FILE, Box, GraphPicture, Line, build_graph
from penstock.web.layout import Point

_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1c2733}.note{font-size:10.5px;fill:#4a5a6a}.head{font-weight:700}"
    "rect{fill:#eef3f8;stroke:#41648a}.source,.table{fill:#e9f5ec;stroke:#3d7a4b}.query{fill:#fdf3e1;stroke:#a06a12}"
    "path{fill:none;stroke:#6b7a89;stroke-width:1.3}.ets{stroke-dasharray:2 4}"
    ".ground{fill:#fff;stroke:none}.tip{fill:#6b7a89;stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#a9b7c4}.ground{fill:#19222b}"
    "rect{fill:#1a2b3d;stroke:#7ba6d3}.source,.table{fill:#17301f;stroke:#6fb583}.query{fill:#362a14;stroke:#dca74c}"
    "path{stroke:#8fa0b0}.tip{fill:#8fa0b0}}"
)
_HEAD_CHARACTER, _NOTE_CHARACTER = 7.3, 6.4


def draw_graph(status: EngineStatus, sinks: Mapping[str, str] | None = None) -> str:
    """One connected picture of all queries of a status."""
    picture = build_graph(status, sinks=sinks, limits=FILE)
    layout = picture.layout
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:.0f}" height="{layout.height:.0f}" '
        f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" role="img" aria-label="query graph">'
    )
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    ground = '<rect class="ground" width="100%" height="100%"/>'
    lines = [part for line in picture.lines for part in _draw_line(line, picture)]
    boxes = [part for box in picture.boxes for part in _draw_box(box, picture, status)]
    return "\n".join([head, f"<style>{_STYLE}</style>", arrow, ground, *lines, *boxes, "</svg>"])


def format_path(points: Sequence[Point]) -> str:
    """A smooth line through points, horizontal at each of them."""
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for right, down in rest:
        bend = (right - x) / 2
        parts.append(f"C{x + bend:.1f} {y:.1f} {right - bend:.1f} {down:.1f} {right:.1f} {down:.1f}")
        x, y = right, down
    return "".join(parts)


def _draw_line(line: Line, picture: GraphPicture) -> Iterator[str]:
    points = picture.layout.arcs[line.source, line.target]
    style = ' class="ets"' if line.ets else ""
    yield f'<path{style} marker-end="url(#tip)" d="{format_path(points)}"/>'


def _draw_box(box: Box, picture: GraphPicture, status: EngineStatus) -> Iterator[str]:
    x, y = picture.layout.boxes[box.id]
    size = picture.sizes[box.id]
    place = f'x="{x:.1f}" y="{y:.1f}" width="{size.width:.1f}" height="{size.height:.1f}"'
    yield f'<rect class="{escape(box.kind)}" rx="6" {place}/>'
    for number, text in enumerate(_list_texts(box, picture, status)):
        weight, character = ("note", _NOTE_CHARACTER) if number else ("head", _HEAD_CHARACTER)
        most = int((size.width - 18) / character)
        shown = text if len(text) <= most else f"{text[: most - 1]}…"
        yield f'<text class="{weight}" x="{x + 10:.1f}" y="{y + 19 + 16 * number:.1f}">{escape(shown)}</text>'


def _list_texts(box: Box, picture: GraphPicture, status: EngineStatus) -> Iterator[str]:
    yield box.title
    operators = [status.operators[place] for place in box.members]
    if box.kind == "query":
        yield "query" if box.count == 1 else "queries"
        yield from box.notes
        return
    if box.count > 1:
        yield "over the same streams"
        return
    first = operators[0]
    if box.kind == "source" and any(line.target == box.id for line in picture.lines):
        yield "derived stream"
        return
    yield box.kind if first.policy is None else f"{box.kind}, state {first.policy}"
    if box.kind not in ("source", "table"):
        yield f"shared by {first.members:,} queries" if first.members > 1 else "one query"
    yield from box.notes
