"""Figures of several panels, as PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def create_panels(count: int, title: str) -> tuple[Figure, Sequence[Any]]:
    drawing = Figure(figsize=(5.6 * count, 4), layout="constrained")
    FigureCanvasAgg(drawing)
    drawing.suptitle(title, fontsize="medium")
    panels = drawing.subplots(1, count, squeeze=False)[0]
    for panel in panels:
        panel.grid(alpha=0.3)
    return drawing, panels


def encode_png(drawing: Figure) -> bytes:
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=130)
    return image.getvalue()
