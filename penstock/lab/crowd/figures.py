"""The figure of `penstock lab crowd`: cost against the number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.lab.drawing import create_panels, encode_png

Curve = tuple[Sequence[int], Sequence[float]]
"""Numbers of queries, and milliseconds."""


def draw_costs(pushes: Mapping[str, Curve], starts: Mapping[str, Curve]) -> bytes:
    """The cost of a push and of starting all queries, on logarithmic axes."""
    drawing, panels = create_panels(2, "Cost by the number of queries")
    for panel, curves, title in zip(panels, (pushes, starts), ("one push", "starting all queries"), strict=True):
        for name, (counts, cost) in curves.items():
            panel.plot(counts, cost, marker="o", label=name)
        panel.set(xlabel="queries", ylabel="CPU milliseconds", xscale="log", yscale="log", title=title)
        panel.legend(fontsize="small")
    return encode_png(drawing)
