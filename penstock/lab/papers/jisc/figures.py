"""The figures of `penstock lab jisc`, in the layout of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.report import ReportRow

LABELS = {
    "jisc": ("JISC", "o-"),
    "jisc_unpaced": ("JISC without pacing", "o:"),
    "moving_state": ("Moving State", "^-"),
    "parallel_track": ("Parallel Track", "s-"),
    "cacq": ("CACQ", "d-"),
    "stairs": ("STAIRs", "v--"),
    "jisc_on_stairs": ("JISC on STAIRs", "x--"),
}


def draw_stage(rows: Sequence[ReportRow], title: str) -> bytes:
    """(a) running time and (b) speedup of JISC, by the number of joins."""
    drawing, (left, right) = create_panels(2, title)
    joins = [row["joins"] for row in rows]
    for name, (label, style) in LABELS.items():
        left.plot(joins, [row[name] for row in rows], style, label=label)
        if name != "jisc":
            right.plot(joins, [row[name] / row["jisc"] for row in rows], style, label=f"over {label}")
    left.set(xlabel="joins", ylabel="CPU seconds", title="(a) running time")
    right.set(xlabel="joins", ylabel="times", title="(b) speedup of JISC")
    right.axhline(1, color="grey", linewidth=1)
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    return encode_png(drawing)


def draw_batches(seconds: Sequence[float], migrating: slice) -> bytes:
    """The time of every batch of a run; the batches of the migration are marked."""
    drawing, (panel,) = create_panels(1, "Time of each batch, all states incomplete")
    panel.bar(range(len(seconds)), [1000 * value for value in seconds], width=1, color="C0")
    panel.axvspan(migrating.start - 0.5, migrating.stop - 0.5, color="C1", alpha=0.3, label="migrating")
    panel.set(xlabel="batch", ylabel="CPU milliseconds")
    panel.legend()
    return encode_png(drawing)


def draw_normal(rows: Sequence[ReportRow]) -> bytes:
    drawing, (panel,) = create_panels(1, "Figure 9: normal operation")
    panel.bar([row["run"] for row in rows], [row["seconds"] for row in rows])
    panel.set(ylabel="CPU seconds")
    return encode_png(drawing)


def draw_latency(rows: Sequence[ReportRow]) -> bytes:
    drawing, (panel,) = create_panels(1, "Figure 10 (a): first output after a change of the plan")
    for name in ("jisc", "moving_state", "stairs"):
        label, style = LABELS[name]
        panel.plot([row["window"] for row in rows], [row[f"{name}_ms"] for row in rows], style, label=label)
    panel.set(xlabel="window, tuples", ylabel="CPU milliseconds", xscale="log", yscale="log")
    panel.legend()
    return encode_png(drawing)


def draw_theta_latency(rows: Sequence[ReportRow], title: str) -> bytes:
    drawing, (panel,) = create_panels(1, title)
    for name in ("jisc", "moving_state"):
        label, style = LABELS[name]
        panel.plot([row["window"] for row in rows], [row[f"{name}_ms"] for row in rows], style, label=label)
    panel.plot([row["window"] for row in rows], [row["ordinary_push_ms"] for row in rows], "k:", label="ordinary push")
    panel.set(xlabel="window, tuples", ylabel="CPU milliseconds", xscale="log", yscale="log")
    panel.legend()
    return encode_png(drawing)


def draw_frequency(rows: Sequence[ReportRow], names: Sequence[str], title: str) -> bytes:
    drawing, (panel,) = create_panels(1, title)
    for name in names:
        label, style = LABELS[name]
        panel.plot([row["windows_between"] for row in rows], [row[name] for row in rows], style, label=label)
    panel.set(xlabel="windows between two changes", ylabel="CPU seconds")
    panel.legend()
    return encode_png(drawing)


def draw_proposition(rows: Sequence[ReportRow]) -> bytes:
    """The mean with one standard deviation by the formula, and the mean of the draws."""
    drawing, (panel,) = create_panels(1, "Proposition 1: complete states after a swap")
    joins = [row["joins"] for row in rows]
    deviations = [row["variance"] ** 0.5 for row in rows]
    panel.errorbar(joins, [row["mean"] for row in rows], deviations, fmt="o-", capsize=3, label="formula")
    panel.plot(joins, [row["drawn_mean"] for row in rows], "x", label="drawn")
    panel.set(xlabel="joins", ylabel="complete states")
    panel.legend()
    return encode_png(drawing)
