"""The figures of `penstock lab jit`: CPU and memory as in the JIT paper, and the comparisons of a nested-loop join.

The joins of the paper are nested loops. So compare its CPU curves with our comparisons; our CPU is with indexes. The
comparisons are shown by both conventions of `runs`.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.papers.jit.clique import Sweep
from penstock.lab.report import ReportRow

STYLES = {"REF (eager)": "s-", "JIT": "o-", "auto": "^--", "none": "x:"}
PANELS = (
    ("cpu_seconds", "CPU, seconds (indexed)", "linear"),
    ("nested_loop", "comparisons (nested loop)", "log"),
    ("nested_loop_hashed", "… new demand by look-up", "log"),
    ("peak_kib", "peak memory, KiB", "linear"),
)


def draw_sweep(sweep: Sweep, rows: Sequence[ReportRow]) -> bytes:
    """Four panels over the parameter of the sweep, with a curve for each policy."""
    drawing, panels = create_panels(len(PANELS), f"Figure {sweep.figure}: {sweep.shape} plan", (4.6, 3.2))
    for panel, (name, label, scale) in zip(panels, PANELS, strict=True):
        for policy, style in STYLES.items():
            part = [row for row in rows if row["policy"] == policy]
            across = [row[sweep.parameter] for row in part]
            panel.plot(across, [row[name] for row in part], style, label=policy, linewidth=1.2, markersize=5)
        panel.set(xlabel=sweep.label, ylabel=label, yscale=scale, xticks=sweep.values)
        if scale == "linear":
            panel.set_ylim(bottom=0)
    panels[0].legend(fontsize="small")
    return encode_png(drawing)
