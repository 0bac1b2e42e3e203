"""The page in headless Chromium: what a person sees and does. Screenshots are kept in out/page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_runs import PAIRS, build_engine, fetch, keep_pushing, push

import penstock as ps
from penstock.web import serve_folder
from penstock.web.monitor import PageMonitor
from penstock.web.sources import RECORD_FILE, EngineSource

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
READ_NUMBER = """() => {
    const text = document.querySelector("#list .number")?.textContent ?? "0";
    return parseFloat(text) * (text.includes("k") ? 1000 : 1);
}"""


class Opened:
    """A page with what went wrong on it and what it asked for."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.outside: list[str] = []
        page.on("console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(address) else self.outside.append(asked.url))


@contextmanager
def open_page(browser: Any, url: str) -> Iterator[Opened]:
    page = browser.new_page()
    opened = Opened(page, url.partition("#")[0])
    page.goto(url)
    page.wait_for_selector("#state.live")
    try:
        yield opened
    finally:
        page.close()


def check_accessible(page: Any) -> None:
    """Run axe-core in the page. It is evaluated by the debugger, so the content security policy stays as it is."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html)])")
    assert found == []


def test_numbers_move_and_nothing_is_wrong(browser: Any, pictures: Path) -> None:
    engine = build_engine()
    with (
        engine.serve(interval=0.1) as server,
        keep_pushing(engine),
        open_page(browser, server.url) as opened,
    ):
        page = opened.page
        page.wait_for_function(f"() => ({READ_NUMBER})() > 0")
        before = page.evaluate(READ_NUMBER)
        page.wait_for_function(f"before => ({READ_NUMBER})() > before", arg=before)
        page.wait_for_function("() => [...document.querySelectorAll('#graph text.rate')].some(t => t.textContent)")
        assert page.locator("#graph path.ets").count() > 0
        page.wait_for_selector(".holds:has-text('wait for it')")
        check_accessible(page)
        page.hover("#charts figure:first-child .u-over")
        page.wait_for_function("() => /:/.test(document.getElementById('pointed').textContent)")
        page.screenshot(path=pictures / "light.png", full_page=True)
        page.click("#theme")
        check_accessible(page)
        page.screenshot(path=pictures / "dark.png", full_page=True)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=pictures / "phone.png")
        page.click("#theme")
        assert opened.problems == []
        assert opened.outside == []


def test_query_is_added_corrected_migrated_and_dropped(browser: Any, pictures: Path) -> None:
    engine = build_engine()
    with (
        engine.serve(interval=0.1) as server,
        keep_pushing(engine),
        open_page(browser, server.url) as opened,
    ):
        page = opened.page
        page.click("#add")
        page.fill("#name", "mine")
        page.fill("#text", PAIRS.replace("b.v", "b.vv"))
        page.click("#submit")
        page.wait_for_selector("#marks mark")
        assert page.inner_text("#marks mark") == "b.vv"
        assert "unknown column b.vv" in page.inner_text("#error")
        check_accessible(page)
        assert not page.is_visible("#sink")
        assert not page.is_visible("#probes")
        page.screenshot(path=pictures / "error.png")
        page.fill("#text", PAIRS)
        page.click("#submit")
        page.wait_for_selector("#dialog", state="hidden")
        page.wait_for_selector("#events li:has-text('added mine')")
        page.fill("#search", "triples")
        page.click("#list button:has-text('triples')")
        page.wait_for_selector("#detail-plan:has-text('((a b) c)')")
        page.wait_for_selector("#detail-results td")
        page.click("#migrate")
        page.fill("#plan", "(a (b c))")
        page.click("#submit")
        page.wait_for_selector("#events .kind:has-text('plan')")
        page.wait_for_selector("#plans tr:has-text('((a b) c)'):has-text('(a (b c))')")
        page.wait_for_selector("#graph text:has-text('(b c)')")
        page.screenshot(path=pictures / "migrated.png", full_page=True)
        page.fill("#search", "mine")
        page.click("#list button:has-text('mine')")
        page.click("#drop")
        page.click("#submit")
        page.wait_for_selector("#events li:has-text('dropped mine')")
        assert "mine" not in engine.queries
        assert opened.problems == ["Failed to load resource: the server responded with a status of 400 (Bad Request)"]


def test_thousand_queries_are_usable(browser: Any, pictures: Path) -> None:
    engine = build_engine(queries=1000)
    with engine.serve(interval=0.1) as server, keep_pushing(engine), open_page(browser, server.url) as opened:
        page = opened.page
        page.wait_for_selector("#query-count:has-text('1,004')")
        assert page.locator("#list button").count() < 40
        assert page.locator("#graph g").count() < 80
        page.wait_for_function(f"() => ({READ_NUMBER})() > 0")
        page.screenshot(path=pictures / "thousand.png", full_page=True)
        page.fill("#search", "q0777")
        page.wait_for_selector("#query-count:has-text('1 of')")
        page.press("#search", "Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail-heading:has-text('q0777')")
        page.wait_for_selector("#graph text.head:has-text('q0777')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#detail", state="hidden")
        check_accessible(page)
        assert opened.problems == []


def test_wrong_token_and_lost_server(browser: Any) -> None:
    engine = build_engine()
    with engine.serve(interval=0.1) as server:
        page = browser.new_page()
        page.goto(f"{server.address}#token=guess")
        page.click("#list button:has-text('pairs')")
        page.click("#drop")
        page.click("#submit")
        page.wait_for_selector("#error:has-text('WRONG_TOKEN')")
        assert "pairs" in engine.queries
    page.wait_for_selector("#state:has-text('offline')")
    page.click("#submit")
    page.wait_for_selector("#error:has-text('NO_CONNECTION')")
    page.close()


def test_foreign_page_reads_nothing(browser: Any) -> None:
    """A page of another origin may neither read events nor send controls."""
    with build_engine().serve() as server, build_engine().serve() as other:
        page = browser.new_page()
        page.goto(other.address)
        answer = "url => fetch(url).then(() => 'read', () => 'refused')"
        assert page.evaluate(answer, f"{server.address}metrics") == "refused"
        drop = json.dumps({"do": "drop", "arguments": {"name": "pairs"}})
        send = """([url, body]) =>
            fetch(url, {method: 'POST', mode: 'no-cors', body}).then(got => got.type, () => 'refused')"""
        assert page.evaluate(send, [f"{server.address}api/control", drop]) in ("opaque", "refused")
        assert json.loads(fetch(f"{server.address}api/query?name=pairs")[1])["name"] == "pairs"
        page.close()


def test_folder_of_a_run_that_is_removed(browser: Any, tmp_path: Path) -> None:
    """The page keeps what it has read, and says what is wrong with the folder."""
    engine = build_engine()
    record = tmp_path / RECORD_FILE
    monitor = PageMonitor(EngineSource(engine), 60, record.write_bytes)
    monitor.start()
    push(engine, 0)
    monitor.close()
    with serve_folder(str(tmp_path), interval=0.1) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#list button:has-text('triples')")
        page.click("#list button:has-text('pairs')")
        page.click("#drop")
        page.click("#submit")
        page.wait_for_selector("#error:has-text('NO_CHECKPOINT')")
        page.click("#cancel")
        record.write_text("{}")
        page.wait_for_selector("#problem:has-text('is not a record of a run')")
        record.unlink()
        page.wait_for_selector("#problem:has-text('has no record of a run')")
        assert page.is_visible("#list button:has-text('triples')")
        check_accessible(page)
        page.close()


def test_page_without_queries_says_so(browser: Any) -> None:
    with ps.Engine().serve(interval=0.1) as server, open_page(browser, server.url) as opened:
        opened.page.wait_for_selector("#no-queries:has-text('no query yet')")
        opened.page.wait_for_selector("#no-events:has-text('Nothing has changed')")
        check_accessible(opened.page)
        assert opened.problems == []


def test_page_without_token_shows_only(browser: Any) -> None:
    """Controls that would be refused are not there, and the page says why."""
    page = browser.new_page()  # tokens are kept by tab
    with build_engine().serve(interval=0.1) as server:
        page.goto(server.address)
        page.click("#list button:has-text('pairs')")
        page.wait_for_selector(".reader:has-text('shows only')")
        page.wait_for_selector("#detail-plan:has-text('join (a b)')")
        assert not any(page.is_visible(f"#{name}") for name in ("add", "alter", "migrate", "budget", "drop"))
        check_accessible(page)
        page.close()


def test_time_lines_of_few_and_uneven_points(browser: Any) -> None:
    """Times below a young chart differ; one long push does not hide the others, and is said."""
    engine = build_engine()
    with engine.serve(interval=0.1) as server, open_page(browser, server.url) as opened:
        figures = opened.page.evaluate("""async () => {
            const { charts } = window.penstockPage, now = Date.now() / 1000;
            const make = (place) => ({ time: now - 10 + place / 4, rows_in: 1, results: 1, memory: 1, suppressed: 0,
                completeness: 1, freshness: 1, lags: {}, latency: place === 3 ? 5000 : 2 });
            charts.reset([make(0)], []);
            await new Promise(requestAnimationFrame);
            const young = charts.charts[1].plot.scales.x;
            charts.reset(Array.from({ length: 40 }, (_, place) => make(place)), []);
            await new Promise(requestAnimationFrame);
            const { plot, cut } = charts.charts[1];
            return [young.max - young.min, plot.scales.y.max, cut.textContent];
        }""")
        assert figures == [30, pytest.approx(4.4), "highest 5 s, above the chart"]
        assert opened.problems == []


def test_lag_of_many_streams_shows_the_furthest(browser: Any) -> None:
    with build_engine().serve(interval=60) as server, open_page(browser, server.url) as opened:
        shown = opened.page.evaluate("""() => {
            const { charts } = window.penstockPage;
            const lags = Object.fromEntries(Array.from({ length: 20 }, (_, place) => [`s${place}`, place]));
            charts.reset([{ time: 1, rows_in: 1, results: 1, memory: 1, suppressed: 0, completeness: 1, freshness: 1,
                latency: 1, lags }], []);
            return [charts.charts[2].series.map(([name]) => name), charts.charts[2].figure.textContent];
        }""")
        assert shown[0] == [f"s{place}" for place in range(14, 20)]
        assert "6 of 20" in shown[1]


def test_stopped_run_has_no_rates(browser: Any) -> None:
    engine = build_engine()
    with (
        engine.serve(interval=0.1) as server,
        keep_pushing(engine),
        open_page(browser, server.url) as opened,
    ):
        opened.page.wait_for_function(
            "() => [...document.querySelectorAll('#graph text.rate')].some(t => t.textContent)"
        )
        rates = opened.page.evaluate("""() => {
            const page = window.penstockPage;
            page.takeSample({ ...page.sample, state: "stopped", events: [] });
            page.render();
            return [...document.querySelectorAll("#graph text.rate, #list .rate")].map((each) => each.textContent);
        }""")
        assert set(rates) == {""}
