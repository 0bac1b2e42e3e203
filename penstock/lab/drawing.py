"""Figures of one or several panels, as PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

PANEL_SIZE = (5.6, 4.0)
"""Width and height of a panel, in inches."""
_COLUMNS = 2
"""Panels side by side: the text of more would be unreadable in the report."""
_DOTS_PER_INCH = 130


def create_panels(
    count: int, title: str = "", size: tuple[float, float] = PANEL_SIZE, *, sharey: bool = False
) -> tuple[Figure, Sequence[Any]]:
    """A figure with `count` panels in rows of two, each of `size` and with a grid."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    drawing = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(drawing)
    if title:
        drawing.suptitle(title, fontsize="medium")
    panels = drawing.subplots(rows, columns, sharey=sharey, squeeze=False).flat
    for panel in panels:
        panel.grid(alpha=0.3)
    for spare in panels[count:]:
        spare.set_axis_off()
    return drawing, list(panels[:count])


def encode_png(drawing: Figure) -> bytes:
    """A figure as PNG with a palette: a third of the bytes, because a report has dozens of them."""
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=_DOTS_PER_INCH)
    return compress_png(image.getvalue())


def compress_png(content: bytes) -> bytes:
    """The same picture with at most 128 colours."""
    image = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128).save(image, format="png", optimize=True)
    return image.getvalue()
