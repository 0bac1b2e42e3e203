"""The figures of `penstock lab graph`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.report import ReportRow


def draw_curves(
    rows: Sequence[ReportRow], across: str, curves: dict[str, str], labels: tuple[str, str], title: str
) -> bytes:
    """A curve for each column in `curves`, which has their labels; `across` is the column of the x-axis."""
    drawing, panel = _create_panel(*labels, title)
    for name, label in curves.items():
        panel.plot([row[across] for row in rows], [row[name] for row in rows], "o-", label=label)
    panel.set(xscale="log", yscale="log")
    panel.legend()
    return encode_png(drawing)


def draw_bars(
    rows: Sequence[ReportRow], across: str, names: Sequence[str], ylabel: str, title: str, *, scale: str = "log"
) -> bytes:
    """A group of bars for each row, one bar for each column in `names`."""
    drawing, panel = _create_panel("", ylabel, title)
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = np.arange(len(rows)) + number * width
        panel.bar(places, [row[name] for row in rows], width, label=name.removesuffix("_ms").replace("_", " "))
    panel.set_xticks(np.arange(len(rows)) + 0.4 - width / 2, [row[across] for row in rows], rotation=30, ha="right")
    panel.set_yscale(scale)
    panel.legend()
    return encode_png(drawing)


def _create_panel(xlabel: str, ylabel: str, title: str) -> tuple[Figure, Any]:
    drawing, (panel,) = create_panels(1, title, (6.4, 4))
    panel.set(xlabel=xlabel, ylabel=ylabel)
    panel.grid(alpha=0.3, which="both")
    return drawing, panel
