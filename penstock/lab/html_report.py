"""The report of several labs as one HTML file: checks, tables, and figures beside what their papers found.

The file has no scripts and loads nothing: pictures are inside it. The date, the machine and the command are at its
beginning, so that a reader can judge and repeat the measurement.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from penstock.lab import LABS
from penstock.lab.findings import FINDINGS, find_finding
from penstock.lab.report import (
    Check,
    Report,
    ReportRow,
    Section,
    describe_machine,
    format_cell,
    format_heading,
    list_columns,
)

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;"
    "max-width:1100px;margin:2em auto;padding:0 1em;color:#17212b;background:#fff}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
    "td,th{padding:2px 10px 2px 0;border-bottom:1px solid #d5dce2;text-align:left;white-space:nowrap}"
    ".facts td{white-space:normal}.facts code{overflow-wrap:anywhere}"
    ".n{text-align:right;font-variant-numeric:tabular-nums}img{max-width:100%}figure{margin:1em 0}"
    ".pair{display:grid;grid-template-columns:minmax(0,3fr) minmax(14em,1fr);gap:1em;align-items:start}"
    "@media(max-width:700px){.pair{grid-template-columns:1fr}}"
    ".paper{border-left:4px solid #41648a;padding:.2em 1em;background:#eef3f8}.missed{color:#b3261e;font-weight:700}"
    ".met{color:#1d6b34}code{background:#eef1f4;padding:0 .3em}nav a{margin-right:1em}"
    "@media(prefers-color-scheme:dark){body{background:#11171d;color:#e6edf3}.paper{background:#1a2b3d}code{background:"
    "#26313b}td,th{border-color:#34414d}.missed{color:#ff9b93}.met{color:#7fd396}a{color:#79b4f2}img{background:#fff}}"
)


def build_html(reports: Sequence[Report], command: str, when: datetime | None = None) -> str:
    """One page of all reports. `command` repeats the measurement."""
    quick = any(report.quick for report in reports)
    links = "".join(_link(report.lab) for report in reports)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock: measurements</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        "<h1>Penstock: measurements</h1>",
        *_render_facts(command, when or datetime.now(UTC), quick=quick),
        _render_summary(reports),
        f"<nav>{links}</nav>",
        _render_runs(reports),
        *(part for report in reports for part in _render_lab(report)),
        "</body></html>",
    ]
    return "\n".join(parts)


def _render_facts(command: str, when: datetime, *, quick: bool) -> Iterator[str]:
    machine = describe_machine()
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items() if number)
    hardware = (
        f"{machine['cores']} cores", machine["processor"], machine["memory"] and f"memory {machine['memory']}",
        machine["system"], f"Python {machine['python']}",
    )  # fmt: skip
    facts = {
        "date": f"{when:%Y-%m-%d %H:%M} UTC",
        "command": f"<code>{escape(command)}</code>",
        "scale": "quick: smaller data and fewer rounds" if quick else "full",
        "machine": escape(", ".join(filter(None, hardware))),
        "packages": escape(packages),
        "seeds": (
            "fixed: 7 for streams of joins, of JISC and of State-Slice, 1 for JIT, JAQPOT, Nexmark and TPC-H, 0 and "
            "up for drawn plans; the same command has the same data, and times differ with the machine and its load"
        ),
        "time": "most figures are processor seconds of the process: other programs disturb them less than the clock",
    }
    yield (
        '<table class="facts">'
        + "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in facts.items())
        + "</table>"
    )


def _render_summary(reports: Sequence[Report]) -> str:
    """How many checks met their goals, those that missed them by lab, and the labs without figures."""
    checks = [check for report in reports for check in report.checks]
    missed = {report.lab: [check.name for check in report.checks if not check.ok] for report in reports}
    failed = [report.lab for report in reports if report.failure is not None]
    absent = [lab for lab in LABS if lab not in {report.lab for report in reports}]
    lines = [f"{sum(check.ok for check in checks)} of {len(checks)} checks met their goals."]
    lines += [f"Missed in {_link(lab)}: {escape(', '.join(names))}." for lab, names in missed.items() if names]
    lines += [f'<b class="missed">Labs that failed: {escape(", ".join(failed))}.</b>'] if failed else []
    lines += [f"Labs that are not in this report: {escape(', '.join(absent))}."] if absent else []
    return "<p>" + "<br>".join(lines) + "</p>"


def _link(lab: str) -> str:
    return f'<a href="#{escape(lab)}">{escape(lab)}</a>'


def _render_runs(reports: Sequence[Report]) -> str:
    """When each lab ran, and what the load of the machine was: labs may have been measured one by one."""
    rows = "".join(
        f'<tr><td>{escape(report.lab)}</td><td>{escape(facts.begun)}</td><td class="n">{facts.seconds:,.0f} s</td>'
        f"<td>{_format_load(facts.load_before)}</td><td>{_format_load(facts.load_after)}</td>"
        f"<td><code>penstock lab {escape(report.lab)}{' --quick' if report.quick else ''}</code></td></tr>"
        for report in reports
        if (facts := report.facts) is not None
    )
    head = "<tr><th>lab</th><th>begun</th><th>took</th><th>load before</th><th>load after</th><th>command</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _format_load(load: Sequence[float]) -> str:
    return ", ".join(f"{each:g}" for each in load)


def _render_lab(report: Report) -> Iterator[str]:
    yield f'<h2 id="{escape(report.lab)}">{escape(report.lab)}</h2>'
    if report.lab in LABS:
        yield f"<p>Measures {escape(LABS[report.lab].description)}.</p>"
    if report.lab in FINDINGS:
        yield f'<p class="paper">{escape(FINDINGS[report.lab])}</p>'
    if report.checks:
        yield _render_checks(report.checks)
    if report.failure is not None:
        yield f'<p class="missed">This lab failed: {escape(report.failure)}</p>'
    for name, content in report.figures.items():
        yield _render_figure(name, content)
    yield from (_render_section(section) for section in report.sections)
    yield from (f"<p>{escape(note)}</p>" for note in report.notes)


def _render_figure(name: str, content: bytes) -> str:
    """A figure, and beside it what the paper found in it."""
    title = name.removesuffix(".png").replace("-", " ")
    data, finding = b64encode(content).decode(), find_finding(name)
    figure = (
        f'<figure><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(title)}, measured in this run</figcaption></figure>"
    )
    if finding is None:
        return figure
    return f'<div class="pair">{figure}<p class="paper"><b>The paper:</b> {escape(finding)}</p></div>'


def _render_checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr><td>{escape(check.name)}</td><td class="n">{escape(format_cell(check.value))}</td>'
        f"<td>{escape(check.unit)}</td><td>{escape(check.goal)}</td>"
        f'<td class="{"met" if check.ok else "missed"}">{"met" if check.ok else "missed"}</td></tr>'
        for check in checks
    )
    return f"<table><tr><th>check</th><th>value</th><th>unit</th><th>goal</th><th></th></tr>{rows}</table>"


def _render_section(section: Section) -> str:
    names = list_columns(section.rows)
    head = "".join(f"<th>{escape(format_heading(name))}</th>" for name in names)
    body = "".join(f"<tr>{_render_cells(row, names)}</tr>" for row in section.rows)
    table = f"<table><tr>{head}</tr>{body}</table>"
    return f"<details><summary>{escape(section.title)}</summary>{table}</details>"


def _render_cells(row: ReportRow, names: Sequence[str]) -> str:
    kinds = {name: ' class="n"' if isinstance(row.get(name), int | float) else "" for name in names}
    return "".join(f"<td{kinds[name]}>{escape(format_cell(row.get(name)))}</td>" for name in names)
