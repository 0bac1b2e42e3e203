"""One local Spark session for all tests; four attempts for a task, so that faults can be injected.

Spark gives a Python process that it starts in the driver ten seconds to begin, which cannot be set. A machine with much
else to do may need more: a test that failed by this alone is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

pytest.importorskip("pyspark")


_STARTS = 3
_TOO_SLOW = "Python worker failed to connect back"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for start in range(_STARTS):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        slow = any(report.failed and _TOO_SLOW in str(report.longrepr) for report in reports)
        if not slow or start == _STARTS - 1:
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.spark.session import SHORT_LIVED, local_session

    session = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_LIVED})
    yield session
    session.stop()
