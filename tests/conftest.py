"""Assertions in these support modules report the compared values, as those of test modules do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("expr_reference", "regression_runs", "sharing_runs")
