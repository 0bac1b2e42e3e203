"""The report of several labs as one HTML file: checks, tables and figures, each beside what its paper found.

The file has no scripts and loads nothing: pictures are inside it. The date, the machine and the command are at its
beginning, so that a reader can judge and repeat the measurement.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from penstock.lab.report import Check, Report, ReportRow, Section, describe_machine, format_cell, format_heading

FINDINGS: Mapping[str, str] = {
    "jit": (
        "JIT: bushy plans use more than ten times less processor time than eager state and up to 62 % less memory; the "
        "gains grow with windows and rates. Left-deep plans gain less, but clearly. The paper's joins are nested loops."
    ),
    "jisc": (
        "JISC: during a migration up to ten times faster than Parallel Track, also if all states are incomplete; in "
        "normal operation as fast as a symmetric hash join and about twice as fast as CACQ; the first result after a "
        "transition comes at once, while Moving State stops for seconds."
    ),
    "jaqpot": (
        "JAQPOT: more than 80 % of the saturated throughput with 60 % of the resources (linear plans), 2.5 times the "
        "best heuristic on average and 6.5 times at most; twice for bushy plans; no stale tuple leaves."
    ),
    "graph": (
        "Query graph: time on demand (ETS) lowers the latency of a union of a fast and a slow stream by orders of "
        "magnitude; ETS arcs are at least 14 % better than punctuation; they remove the bursts that SLIDE causes."
    ),
    "slice": (
        "State-Slice: 20 to 30 % less memory than pull-up and push-down; up to 40 % higher service rate; CPU-Opt is 20 "
        "to 30 % above Mem-Opt for skewed windows, and more with more queries."
    ),
}
"""What the paper of a lab found, in its authors' numbers."""

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;"
    "max-width:1100px;margin:2em auto;padding:0 1em;color:#17212b;background:#fff}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
    "td,th{padding:2px 10px 2px 0;border-bottom:1px solid #d5dce2;text-align:left;white-space:nowrap}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}img{max-width:100%}figure{margin:1em 0}"
    ".paper{border-left:4px solid #41648a;padding:.2em 1em;background:#eef3f8}.missed{color:#b3261e;font-weight:700}"
    ".met{color:#1d6b34}code{background:#eef1f4;padding:0 .3em}nav a{margin-right:1em}"
    "@media(prefers-color-scheme:dark){body{background:#11171d;color:#e6edf3}.paper{background:#1a2b3d}code{background:"
    "#26313b}td,th{border-color:#34414d}.missed{color:#ff9b93}.met{color:#7fd396}a{color:#79b4f2}img{background:#fff}}"
)


def build_html(reports: Sequence[Report], command: str, when: datetime | None = None) -> str:
    """One page of all reports. `command` repeats the measurement."""
    quick = any(report.quick for report in reports)
    links = "".join(f'<a href="#{escape(report.lab)}">{escape(report.lab)}</a>' for report in reports)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock: measurements</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        "<h1>Penstock: measurements</h1>",
        *_render_facts(command, when or datetime.now(UTC), quick=quick),
        _render_summary(reports),
        f"<nav>{links}</nav>",
        *(part for report in reports for part in _render_lab(report)),
        "</body></html>",
    ]
    return "\n".join(parts)


def _render_facts(command: str, when: datetime, *, quick: bool) -> Iterator[str]:
    machine = describe_machine()
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items() if number)
    facts = {
        "date": f"{when:%Y-%m-%d %H:%M} UTC",
        "command": f"<code>{escape(command)}</code>",
        "scale": "quick: smaller data and fewer rounds" if quick else "full",
        "machine": f"{machine['cores']} cores, {escape(machine['system'])}, Python {escape(machine['python'])}",
        "packages": escape(packages),
        "seeds": "fixed in each lab: the same command has the same data; times differ with the machine and its load",
    }
    yield "<table>" + "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in facts.items()) + "</table>"


def _render_summary(reports: Sequence[Report]) -> str:
    checks = [check for report in reports for check in report.checks]
    missed = [check.name for check in checks if not check.ok]
    text = f"{len(checks) - len(missed)} of {len(checks)} checks met their goals."
    return f"<p>{text}{' Missed: ' + escape(', '.join(missed)) + '.' if missed else ''}</p>"


def _render_lab(report: Report) -> Iterator[str]:
    yield f'<h2 id="{escape(report.lab)}">{escape(report.lab)}</h2>'
    if report.lab in FINDINGS:
        yield f'<p class="paper">{escape(FINDINGS[report.lab])}</p>'
    if report.checks:
        yield _render_checks(report.checks)
    for name, content in report.figures.items():
        title = name.removesuffix(".png").replace("-", " ")
        data = b64encode(content).decode()
        yield (
            f'<figure><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(title)}, measured in this run</figcaption></figure>"
        )
    yield from (_render_section(section) for section in report.sections)
    yield from (f"<p>{escape(note)}</p>" for note in report.notes)


def _render_checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr><td>{escape(check.name)}</td><td class="n">{escape(format_cell(check.value))}</td>'
        f"<td>{escape(check.unit)}</td><td>{escape(check.goal)}</td>"
        f'<td class="{"met" if check.ok else "missed"}">{"met" if check.ok else "missed"}</td></tr>'
        for check in checks
    )
    return f"<table><tr><th>check</th><th>value</th><th>unit</th><th>goal</th><th></th></tr>{rows}</table>"


def _render_section(section: Section) -> str:
    names = list(section.rows[0]) if section.rows else []
    head = "".join(f"<th>{escape(format_heading(name))}</th>" for name in names)
    body = "".join(f"<tr>{_render_cells(row, names)}</tr>" for row in section.rows)
    table = f"<table><tr>{head}</tr>{body}</table>"
    return f"<details><summary>{escape(section.title)}</summary>{table}</details>"


def _render_cells(row: ReportRow, names: Sequence[str]) -> str:
    kinds = {name: ' class="n"' if isinstance(row[name], int | float) else "" for name in names}
    return "".join(f"<td{kinds[name]}>{escape(format_cell(row[name]))}</td>" for name in names)
