"""One local Spark session for all tests; four attempts for a task, so that faults can be injected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.spark.session import SHORT_LIVED, local_session

    session = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_LIVED})
    yield session
    session.stop()
