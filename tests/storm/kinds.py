"""The kinds of seeds that `children.py` runs, by name: storms, and the other random families of the law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.maintenance import DEFAULT_MAINTENANCE, SMALLEST_MAINTENANCE

Check = Callable[[int], object]


def find_check(kind: str) -> Check:
    """The function that raises if a seed of this kind fails."""
    check = CHECKS[kind]()
    return check if kind in ("embedded", "large", "cells") else lambda seed: _check_law(check, seed)


def _check_law(check: Check, seed: int) -> None:
    """Like storms, the law's families run with the smallest thresholds for odd seeds."""
    import lawkit

    lawkit.MAINTENANCE = SMALLEST_MAINTENANCE if seed % 2 else DEFAULT_MAINTENANCE
    check(seed)


def _embedded() -> Check:
    from storm import check_embedded

    return check_embedded


def _large() -> Check:
    from storm import check_large

    return check_large


def _cells() -> Check:
    from cells import check_cells

    return check_cells


def _types() -> Check:
    from test_law_random_runs import check_run

    return check_run


def _shared() -> Check:
    from test_law_groups import holds_together

    return holds_together


def _counted() -> Check:
    from test_law_groups import counted_holds

    return counted_holds


def _nested() -> Check:
    from test_law_nested import holds_together

    return holds_together


def _migrations() -> Check:
    from adventures import adventure

    return lambda seed: _assert_no_fault(adventure(seed))


def _budgets() -> Check:
    from straits import strait

    return lambda seed: _assert_no_fault(strait(seed))


def _assert_no_fault(run: Any) -> None:
    fault = run.fault()
    assert fault is None, f"{run}\n{fault}"


CHECKS: dict[str, Callable[[], Check]] = {
    "embedded": _embedded,
    "large": _large,
    "cells": _cells,
    "types": _types,
    "shared": _shared,
    "counted": _counted,
    "nested": _nested,
    "migrations": _migrations,
    "budgets": _budgets,
}
