"""A line in the log for every micro-batch; a line for every cell at the level of DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

_LOG = logging.getLogger(__name__)


def log_batch(batch: int, cells: Mapping[int, Any]) -> None:
    """Log the rows that cells got in a micro-batch and the longest time that an engine worked."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    rows = {number: sum(cell["rows"].values()) for number, cell in cells.items()}
    longest = max((cell["worked"] for cell in cells.values()), default=0.0)
    _LOG.info(
        "micro-batch %d: %d rows to %d cells, engines at most %.3f s", batch, sum(rows.values()), len(rows), longest
    )
    for number, cell in cells.items():
        _LOG.debug("micro-batch %d, cell %d: %d rows, %.3f s", batch, number, rows[number], cell["worked"])
