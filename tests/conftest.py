"""Assertions in these support modules report the compared values, as those of test modules do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("expr_reference", "regression_runs", "sharing_runs")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the services that tests started; `make services` has its own."""
    if not hasattr(session.config, "workerinput"):
        from services import stop_own_services

        stop_own_services()
