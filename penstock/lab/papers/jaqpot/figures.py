"""The figures of `penstock lab jaqpot`, in the layout of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.lab.drawing import create_panels, encode_png
from penstock.lab.report import ReportRow

STYLES = {
    "steady": "*-", "lp": "s-", "jaqpot": "o-", "grepp": "d--", "equal-hj": "x:", "global-hjpr": "^:",
    "ebest-hjp": "v:", "sbest-hjp": "+:", "exact": "k-",
}  # fmt: skip


def draw_curves(
    panels: Sequence[tuple[str, Sequence[ReportRow]]], across: str, labels: tuple[str, str], title: str
) -> bytes:
    """A curve for each policy; `across` is the column of the x-axis."""
    drawing, drawn = create_panels(len(panels), title)
    for panel, (name, rows) in zip(drawn, panels, strict=True):
        for policy, style in STYLES.items():
            if rows and policy in rows[0]:
                panel.plot([row[across] for row in rows], [row[policy] for row in rows], style, label=policy)
        panel.set(xlabel=labels[0], ylabel=labels[1], title=name)
    drawn[0].legend(fontsize="small")
    return encode_png(drawing)


def draw_bars(panels: Sequence[tuple[str, Sequence[ReportRow]]], across: str, label: str, title: str) -> bytes:
    """A group of bars for each value of the column `across`, one bar for each other column."""
    drawing, drawn = create_panels(len(panels), title)
    for panel, (name, rows) in zip(drawn, panels, strict=True):
        others = [column for column, value in rows[0].items() if column != across and isinstance(value, float)]
        for place, column in enumerate(others):
            at = [number + 0.8 * place / len(others) for number in range(len(rows))]
            panel.bar(at, [row[column] for row in rows], 0.8 / len(others), label=column)
        panel.set(ylabel=label, title=name, xticks=[number + 0.4 for number in range(len(rows))])
        panel.set_xticklabels([f"{row[across]}" for row in rows])
        panel.set_ylim(0, None if any(row[column] for row in rows for column in others) else 1)
        if not any(row[column] for row in rows for column in others):
            panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center")
    drawn[0].legend(fontsize="small")
    return encode_png(drawing)
