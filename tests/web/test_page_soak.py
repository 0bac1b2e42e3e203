"""The page over a long time and a thousand queries: what it costs the browser, and what it costs the run.

    pytest -m soak tests/web/test_page_soak.py -s                       # ten minutes
    PENSTOCK_PAGE_MINUTES=1 pytest -m soak tests/web/test_page_soak.py -s

The figures are printed and kept in out/page. Processor time is compared, not wall time: other programs may run.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from page_runs import build_engine, keep_pushing, push

from penstock.web.monitor import PageMonitor

pytestmark = pytest.mark.soak
MINUTES = float(os.environ.get("PENSTOCK_PAGE_MINUTES", "10"))
QUERIES = 1000
UPDATES = 10
"""Readings a second. The page's own limit of the part of a core that readings take does not hold in the first test."""
WARM_SECONDS = 120
"""The time lines have their full length after 90 seconds."""
PUSHES, ROUNDS = 800, 12


@contextmanager
def keep_reading(monitor: PageMonitor) -> Iterator[list[float]]:
    """Read ten times a second until the end of the block; yields the times of the readings."""
    stopped, times = threading.Event(), list[float]()

    def work() -> None:
        due = time.monotonic()
        while not stopped.wait(max(0.0, due - time.monotonic())):
            due += 1 / UPDATES
            monitor.read_now()
            times.append(time.monotonic())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield times
    finally:
        stopped.set()
        thread.join()


def read_figures(session: Any) -> dict[str, float]:
    """The counters of the page's process, after its garbage is collected."""
    session.send("HeapProfiler.collectGarbage")
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return {"at": time.monotonic()} | {
        name: found[name] for name in ("TaskDuration", "ScriptDuration", "JSHeapUsedSize", "Nodes", "JSEventListeners")
    }


@pytest.mark.browser
def test_main_thread_and_memory_of_the_page(browser: Any, pictures: Path) -> None:
    engine = build_engine(QUERIES)
    with engine.serve(interval=3600) as server, keep_pushing(engine), keep_reading(server.monitor) as readings:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#state.live")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.wait_for_timeout(1000 * min(WARM_SECONDS, 30 * MINUTES))
        samples = [read_figures(session)]
        first = len(readings)
        for _ in range(max(1, round(2 * MINUTES))):
            page.wait_for_timeout(30_000)
            samples.append(read_figures(session))
        begin, end = samples[0], samples[-1]
        seconds = end["at"] - begin["at"]
        sizes = [sample["JSHeapUsedSize"] / 2**20 for sample in samples]
        third = max(1, len(sizes) // 3)
        figures = {
            "queries": QUERIES,
            "seconds": round(seconds),
            "updates_per_second": round((len(readings) - first) / seconds, 2),
            "main_thread_busy": round((end["TaskDuration"] - begin["TaskDuration"]) / seconds, 3),
            "script": round((end["ScriptDuration"] - begin["ScriptDuration"]) / seconds, 3),
            "heap_mib": [round(size, 2) for size in sizes],
            "heap_growth_mib": round(median(sizes[-third:]) - median(sizes[:third]), 3),
            "nodes": [begin["Nodes"], end["Nodes"]],
            "listeners": [begin["JSEventListeners"], end["JSEventListeners"]],
            "load_average": os.getloadavg(),
        }
        page.close()
    (pictures / "soak_page.json").write_text(json.dumps(figures, indent=2))
    print(json.dumps(figures))
    assert figures["main_thread_busy"] < 0.5
    assert figures["heap_growth_mib"] < 0.5
    assert end["Nodes"] < 1.1 * begin["Nodes"]


@contextmanager
def read_page(address: str) -> Iterator[None]:
    """A reader of the page's events in a process of its own, as a browser is one."""
    program = (
        f"import urllib.request\nfor line in urllib.request.urlopen('{address}api/events'): print(end='.', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.read(1)
        try:
            yield
        finally:
            reader.kill()


def measure_pushes(engine: Any, first: int) -> float:
    """The processor seconds of this process for some pushes: those of the page's threads are among them."""
    gc.collect()
    begun = time.process_time()
    for number in range(first, first + PUSHES):
        push(engine, number)
    return time.process_time() - begun


def measure_page_threads() -> float:
    """The processor seconds of the threads that read the engine and serve the page."""
    threads = [each for each in threading.enumerate() if each.name.startswith("penstock-page")]
    assert len(threads) == 2
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident)) for each in threads if each.ident)


@pytest.mark.parametrize("queries", [0, QUERIES])
def test_page_slows_the_run_little(queries: int, pictures: Path) -> None:
    """Interleaved runs with and without a page that a browser reads.

    `ratio` is that of medians; other programs that run at the same time disturb it by several percent. `share` is the
    processor time of the page's threads in that of the process, which they hardly disturb.
    """
    engine = build_engine(queries)
    place, seconds = 0, dict[bool, list[float]]({True: [], False: []})
    spent = 0.0
    for number in range(2 * (ROUNDS + 1)):
        shown = number % 2 == 0
        if shown:
            with engine.serve(interval=1 / UPDATES) as server, read_page(server.address):
                begun = measure_page_threads()
                found = measure_pushes(engine, place)
                spent += measure_page_threads() - begun if number else 0
        else:
            found = measure_pushes(engine, place)
        place += PUSHES
        if number >= 2:
            seconds[shown].append(found)
    ratio = median(seconds[True]) / median(seconds[False])
    share = spent / sum(seconds[True])
    medians = {str(shown): median(found) for shown, found in seconds.items()}
    figures = {"queries": queries, "seconds": medians, "ratio": round(ratio, 4), "share": round(share, 4)}
    (pictures / f"soak_run_{queries}.json").write_text(json.dumps(figures | {"load_average": os.getloadavg()}))
    print(json.dumps(figures))
    assert share < 0.03
