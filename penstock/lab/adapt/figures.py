"""The figure of `penstock lab adapt`: what every push cost, and when something was decided."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_COLOURS = {"migrate": "C3", "policy": "C4", "budget": "C5", "reslice": "C6"}


def draw_timeline(
    cpu: Mapping[str, Sequence[float]], decisions: Sequence[tuple[int, str]], shed: Collection[int]
) -> bytes:
    """CPU per push by run, averaged over ten; decisions as lines, declared overload as a shade."""
    drawing = Figure(figsize=(9, 4), layout="constrained")
    panel = drawing.subplots()
    for name, seconds in cpu.items():
        wide = min(10, len(seconds))
        panel.plot(1000 * np.convolve(seconds, np.full(wide, 1 / wide), "same"), label=name)
    for push, do in decisions:
        panel.axvline(push, color=_COLOURS[do], linewidth=0.8, linestyle=":")
    if shed:
        panel.axvspan(min(shed), max(shed) + 1, color="grey", alpha=0.2, label="under a budget")
    panel.set(xlabel="push (a second of event time)", ylabel="CPU milliseconds", yscale="log")
    panel.set_title("A drifting workload; dotted: decisions (red plan, violet policy, brown budget)")
    panel.legend(fontsize="small")
    out = io.BytesIO()
    FigureCanvasAgg(drawing).print_png(out)
    return out.getvalue()
