"""One local Spark session for all tests, with four attempts per task so that faults can be injected.

Spark waits ten seconds for a Python process that it starts in the driver; the limit cannot be configured. A loaded
machine may need longer, so a test that failed only for this reason runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

_WORKER_TIMEOUT = "Python worker failed to connect back"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=[_WORKER_TIMEOUT]))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.spark.session import SHORT_RUN_SETTINGS, local_session

    session = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_RUN_SETTINGS})
    yield session
    session.stop()
