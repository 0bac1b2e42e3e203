"""One local Spark session for all pages that use Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the process of Java is started: it resolves relative paths there, whatever page runs."""
    return tmp_path_factory.mktemp("spark_pages")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from spark_support import end_java

    from penstock.spark.session import SHORT_RUN_SETTINGS, local_session

    before = Path.cwd()
    end_java()  # other tests may have started a process elsewhere
    os.chdir(spark_folder)
    try:
        session = local_session("local[2,4]", {"spark.driver.memory": "1g", **SHORT_RUN_SETTINGS})
    finally:
        os.chdir(before)
    yield session
    session.stop()
