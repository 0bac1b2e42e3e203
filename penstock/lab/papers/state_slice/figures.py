"""The figures of `penstock lab slice`, in the layout of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.report import ReportRow

LABELS = {
    "state_slice": ("State-Slice", "o-"),
    "pull_up": ("selection pull-up", "^-"),
    "push_down": ("push-down, stream partition", "s-"),
    "unshared": ("unshared", "d--"),
}


def draw_memory(rows: Sequence[ReportRow], rate: int) -> bytes:
    """Bytes of rows by S_σ, with a panel for each distribution of windows."""
    chosen = [row for row in rows if row["rate"] == rate]
    names = list(dict.fromkeys(row["windows"] for row in chosen))
    drawing, panels = create_panels(len(names), f"Figure 17: bytes of rows, {rate:,} tuples/s")
    for panel, windows in zip(panels, names, strict=True):
        own = [row for row in chosen if row["windows"] == windows]
        for name, (label, style) in LABELS.items():
            panel.plot([row["sigma"] for row in own], [row[f"{name}_row_kib"] for row in own], style, label=label)
        panel.set(xlabel="selectivity of the filter, S_σ", ylabel="KiB", title=windows, ylim=(0, None))
    panels[0].legend(fontsize="small")
    return encode_png(drawing)


def draw_service_rate(rows: Sequence[ReportRow]) -> bytes:
    """Results per second of CPU by S_⋈ at the highest rate and the middle S_σ; a panel for each distribution."""
    rate = max(row["rate"] for row in rows)
    sigmas = sorted({row["sigma"] for row in rows})
    middle = sigmas[len(sigmas) // 2]
    chosen = [row for row in rows if row["rate"] == rate and row["sigma"] == middle]
    names = list(dict.fromkeys(row["windows"] for row in chosen))
    drawing, panels = create_panels(len(names), f"Figure 18: service rate, {rate} tuples/s, S_σ {middle}")
    for panel, windows in zip(panels, names, strict=True):
        own = [row for row in chosen if row["windows"] == windows]
        for name, (label, style) in LABELS.items():
            panel.plot([row["joins"] for row in own], [row[f"{name}_s"] / 1e6 for row in own], style, label=label)
        panel.set(
            xlabel="selectivity of the join, S_⋈",
            ylabel="million results per CPU second",
            title=windows,
            ylim=(0, None),
        )
    panels[0].legend(fontsize="small")
    return encode_png(drawing)


def draw_chains(rows: Sequence[ReportRow]) -> bytes:
    """Results per second of CPU by the number of queries, a panel for each distribution of windows."""
    names = list(dict.fromkeys(row["windows"] for row in rows))
    drawing, panels = create_panels(len(names), "Figure 19: many windows")
    for panel, windows in zip(panels, names, strict=True):
        own = [row for row in rows if row["windows"] == windows]
        queries = [row["queries"] for row in own]
        panel.plot(queries, [row["state_slice_s"] / 1e6 for row in own], "o-", label="engine (a slice for each window)")
        panel.plot(queries, [row["pull_up_s"] / 1e6 for row in own], "^-", label="all merged, with a router")
        panel.plot(queries, [row["unshared_s"] / 1e6 for row in own], "s-", label="a join for each query")
        panel.set(xlabel="queries", ylabel="million results per CPU second", title=windows, ylim=(0, None))
    panels[0].legend(fontsize="small")
    return encode_png(drawing)


def draw_scaling(rows: Sequence[ReportRow]) -> bytes:
    """CPU and state over those of the largest query, by the number of queries."""
    drawing, (left, right) = create_panels(2, "Many queries over the largest query alone")
    queries = [row["queries"] for row in rows]
    left.plot(queries, [row["times_one"] for row in rows], "o-")
    left.axhline(3, color="grey", linewidth=1)
    left.set(xlabel="queries", ylabel="times the CPU", xscale="log", ylim=(0, None))
    right.plot(queries, [row["times_one_row_kib"] for row in rows], "o-")
    right.axhline(1.2, color="grey", linewidth=1)
    right.set(xlabel="queries", ylabel="times the bytes of rows", xscale="log", ylim=(0, None))
    return encode_png(drawing)
