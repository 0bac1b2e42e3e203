"""Another writer of a Delta table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def change_during_commit(sink: Any, change: Callable[[], object]) -> None:
    """Call a function between what the next commit of a sink reads and what it writes."""
    open_table, changed = sink._open_table, []

    def open_and_change() -> Any:
        table = open_table()
        if not changed:
            changed.append(change())
        return table

    sink._open_table = open_and_change
