"""The embedded demo as a live page: the cold store goes on until Ctrl-C, and its queries change while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from penstock.demo.embedded import ADDED_QUERY, build_engine, make_batch
from penstock.engine import Engine

PUSH_EVERY = 0.5
"""Seconds between two pushes; a push has two minutes of all streams."""
_ROUND = 60
"""After so many pushes the changes are repeated."""


def run_live_demo(console: Console, port: int, pushes: int | None = None) -> None:
    """Push batches and change queries, for a number of pushes or until Ctrl-C."""
    engine = build_engine()
    with engine.serve(port) as server:
        console.print(f"page: {server.url}", highlight=False, soft_wrap=True)
        console.print("A cold store, two minutes of event time in every push. End it with Ctrl-C.")
        number = 0
        while pushes is None or number < pushes:
            change = _CHANGES.get(number % _ROUND)
            if change is not None:
                change(engine)
            engine.push(make_batch(number))
            number += 1
            time.sleep(PUSH_EVERY)


def _toggle_query(engine: Engine) -> None:
    name, text = ADDED_QUERY
    if name in engine.queries:
        engine.drop(name)
    else:
        engine.query(name, text)


def _migrate(plan: str) -> Callable[[Engine], None]:
    def change(engine: Engine) -> None:
        if "at_risk" in engine.queries:  # the page may have dropped it
            engine.migrate("at_risk", plan)

    return change


_CHANGES: dict[int, Callable[[Engine], None]] = {
    15: _toggle_query,
    30: _migrate("((r t) h rooms)"),
    45: _migrate("(r ((t rooms) h))"),
}
