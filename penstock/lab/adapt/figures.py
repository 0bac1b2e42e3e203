"""The figure of `penstock lab adapt`: CPU of every push, and the decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from penstock.lab.drawing import create_panels, encode_png

_COLOURS = {"migrate": "C3", "policy": "C4", "budget": "C5", "reslice": "C6"}


def draw_timeline(
    cpu: Mapping[str, Sequence[float]], decisions: Sequence[tuple[int, str]], shed: Collection[int]
) -> bytes:
    """CPU per push of each run, averaged over ten pushes; decisions are lines, declared overload is shaded."""
    drawing, (panel,) = create_panels(1, size=(9, 4))
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
    return encode_png(drawing)
