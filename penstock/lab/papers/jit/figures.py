"""The JIT paper's figures: (a) CPU and (b) memory as there, and between them the comparisons of a nested-loop join.

The paper's joins are nested loops, so its CPU curves are to be read beside our comparisons; our CPU is with indexes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from penstock.lab.papers.jit.clique import Sweep

STYLES = {"REF (eager)": "s-", "JIT": "o-", "auto": "^--", "none": "x:"}
PANELS = (
    ("cpu_seconds", "CPU, seconds (indexed)", "linear"),
    ("nested_loop", "comparisons (nested loop)", "log"),
    ("peak_kib", "peak memory, KiB", "linear"),
)


def draw_sweep(sweep: Sweep, rows: Sequence[dict[str, Any]]) -> bytes:
    """Three panels over the sweep's parameter, a curve for each policy."""
    drawing = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(drawing)
    drawing.suptitle(f"Figure {sweep.figure}: {sweep.shape} plan")
    for panel, (name, label, scale) in zip(drawing.subplots(1, len(PANELS)), PANELS, strict=True):
        for policy, style in STYLES.items():
            part = [row for row in rows if row["policy"] == policy]
            across = [row[sweep.parameter] for row in part]
            panel.plot(across, [row[name] for row in part], style, label=policy, linewidth=1.2, markersize=5)
        panel.set(xlabel=sweep.label, ylabel=label, yscale=scale, xticks=sweep.values)
        panel.grid(alpha=0.3)
        if scale == "linear":
            panel.set_ylim(bottom=0)
    drawing.axes[0].legend(fontsize="small")
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=130)
    return image.getvalue()
