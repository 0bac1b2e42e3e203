"""One local Spark session for all pages that use Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from penstock.spark.session import SHORT_RUN_SETTINGS, local_session

    session = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_RUN_SETTINGS})
    yield session
    session.stop()
