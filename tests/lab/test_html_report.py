"""The HTML report: one file with checks, figures and tables, and what the papers found."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

from penstock.lab import LABS
from penstock.lab.html_report import FINDINGS, build_html
from penstock.lab.report import Report, Section, check_at_least, check_at_most

WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def make_reports() -> list[Report]:
    jit = Report("jit", True, notes=["not measured: <b>"])
    jit.checks += [check_at_most("rows built", 12.5, 20, "rows"), check_at_least("gain & more", 0.5, 2, "x")]
    jit.sections.append(Section("sweep", "Figure 10 <sweep>", [{"window": 5, "rows_s": 1234.5, "who": "a<b"}]))
    jit.figures["jit-figure-10.png"] = b"\x89PNG picture"
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
    assert "1 of 2 checks met their goals. Missed: gain &amp; more." in html
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
