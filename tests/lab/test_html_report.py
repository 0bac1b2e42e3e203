"""The HTML report: one file with checks, figures and tables, and what the papers found."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import penstock.lab as labs
from penstock.cli import app
from penstock.lab import LABS
from penstock.lab.findings import FIGURE_FINDINGS, FINDINGS, find_finding
from penstock.lab.html_report import build_html
from penstock.lab.report import Report, RunFacts, Section, check_at_least, check_at_most

WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def make_reports() -> list[Report]:
    jit = Report("jit", True, notes=["not measured: <b>"])
    jit.checks += [check_at_most("rows built", 12.5, 20, "rows"), check_at_least("gain & more", 0.5, 2, "x")]
    jit.sections.append(Section("sweep", "Figure 10 <sweep>", [{"window": 5, "rows_s": 1234.5, "who": "a<b"}]))
    jit.figures["jit-figure-10.png"] = b"\x89PNG picture"
    jit.facts = RunFacts("2026-01-02 03:00 UTC", 61.5, [0.5, 0.4, 0.3], [2.0, 1.0, 0.5])
    return [jit, Report("core", True)]


class Collector(HTMLParser):
    """Collects the tags and their links."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_report_is_one_file_without_outside_parts() -> None:
    found = Collector()
    found.feed(build_html(make_reports(), "penstock lab all", WHEN))
    assert "script" not in found.tags
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
    assert found.tags.count("img") == 1


def test_report_has_checks_findings_and_facts() -> None:
    html = build_html(make_reports(), "penstock lab all --quick", WHEN)
    assert '1 of 2 checks met their goals.<br>Missed in <a href="#jit">jit</a>: gain &amp; more.' in html
    assert "Labs that are not in this report: jisc, graph, jaqpot, adapt, slice" in html
    assert "more than ten times less processor time" in html
    assert "2026-01-02 03:04 UTC" in html
    assert "<code>penstock lab all --quick</code>" in html
    assert "Figure 10 &lt;sweep&gt;" in html
    assert "a&lt;b" in html
    assert "not measured: &lt;b&gt;" in html
    assert re.search(r"<th>rows/s</th>", html)


def test_findings_are_those_of_labs() -> None:
    assert FINDINGS.keys() <= LABS.keys()
    assert json.dumps(dict(FINDINGS))


def test_figures_stand_beside_what_the_paper_found() -> None:
    html = build_html(make_reports(), "penstock lab all", WHEN)
    assert html.count('class="pair"') == 1
    assert "saves up to 62 % of the memory" in html
    assert find_finding("jisc-figure-12-rare.png") == FIGURE_FINDINGS["jisc-figure-12"]
    assert find_finding("adapt.png") is None


def test_every_figure_of_the_papers_has_a_finding() -> None:
    """Each figure that a lab of a paper draws, and no other."""
    drawn = set()
    for path in Path(labs.__file__).parent.joinpath("papers").rglob("*.py"):
        drawn |= set(re.findall(r'figures\[f?"([a-z0-9-]+?)-?(?:\{[^}]*\})?\.png"\]', path.read_text()))
    drawn = drawn - {"jit-figure", "jisc-figure"} | {f"jit-figure-{number}" for number in range(10, 18)}
    drawn |= {f"jisc-figure-{number}" for number in (7, 8, 11, 12)}
    not_in_papers = {"jisc-batches", "slice-crowds"}
    assert drawn - not_in_papers == set(FIGURE_FINDINGS)


def test_report_says_when_and_under_which_load() -> None:
    html = build_html(make_reports(), "penstock lab all", WHEN)
    assert "2026-01-02 03:00 UTC" in html
    assert "0.5, 0.4, 0.3" in html
    assert "penstock lab jit --quick" in html


def test_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report, _ = make_reports()
    report.write(tmp_path)
    assert Report.read(tmp_path, "jit") == report
    assert Report.read(tmp_path, "core") is None
    (tmp_path / "core.json").write_text('{"lab": "core"}')
    assert Report.read(tmp_path, "core") is None


def test_failing_lab_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report says why; measured again alone, it takes its place among the others."""
    jit, core = make_reports()
    failing = {"core"}

    def run(name: str, quick: bool) -> Report:
        if name in failing:
            raise ValueError("no <memory> left")
        return replace(jit if name == "jit" else core, lab=name, quick=quick)

    monkeypatch.setattr(labs, "run", run)
    monkeypatch.setattr(labs, "LABS", {name: LABS[name] for name in ("core", "jit")})
    found = CliRunner().invoke(app, ["lab", "all", "--quick", "--out", str(tmp_path)])
    assert found.exit_code == 1
    html = (tmp_path / "report.html").read_text()
    assert "Labs that failed: core." in html
    assert "This lab failed: ValueError: no &lt;memory&gt; left" in html
    assert "saves up to 62 % of the memory" in html
    failing.clear()
    assert CliRunner().invoke(app, ["lab", "core", "--quick", "--out", str(tmp_path)]).exit_code == 0
    html = (tmp_path / "report.html").read_text()
    assert "failed" not in html
    assert "saves up to 62 % of the memory" in html


def test_rows_of_a_table_may_lack_columns() -> None:
    """As those of settings that not every rival runs in."""
    report = Report("slice", quick=True)
    rows = [{"setting": "fast", "push_down_s": 5, "own_s": 7}, {"setting": "crowd", "own_s": 9}]
    report.sections.append(Section("beyond", "Beyond the paper", rows))
    report.show(Console(file=io.StringIO()))
    assert "<td>crowd</td><td></td>" in build_html([report], "penstock lab slice")
