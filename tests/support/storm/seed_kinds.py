"""The kinds of seeds that `seed_runner.py` runs, by name: storms, and the random runs of the law tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST

Check = Callable[[int], object]


def find_check(kind: str) -> Check:
    """The function that raises if a seed of this kind fails."""
    check = CHECKS[kind]()
    return check if kind in ("embedded", "large", "cells") else lambda seed: _check_law(check, seed)


def _check_law(check: Check, seed: int) -> None:
    """Like storms, runs of the law tests use the smallest thresholds for odd seeds."""
    import law_support

    law_support.MAINTENANCE = SMALLEST if seed % 2 else SHIPPED
    check(seed)


def _load_embedded() -> Check:
    from storm.embedded_check import check_embedded

    return check_embedded


def _load_large() -> Check:
    from storm.embedded_check import check_large

    return check_large


def _load_cells() -> Check:
    from storm.cell_run import check_cells

    return check_cells


def _load_types() -> Check:
    from random_runs import check_run

    return check_run


def _load_shared() -> Check:
    from sharing_runs import check_sharing

    return check_sharing


def _load_bounds() -> Check:
    from bound_runs import check_bounds

    return check_bounds


def _load_instants() -> Check:
    from instant_runs import check_instants

    return check_instants


def _load_counted() -> Check:
    from sharing_runs import check_rows_window_sharing

    return check_rows_window_sharing


def _load_nested() -> Check:
    from nested_runs import check_nesting

    return check_nesting


def _load_wider() -> Check:
    from nested_runs import check_wider_later

    return check_wider_later


def _load_grammar() -> Check:
    from grammar_runs import check_run

    from penstock.testing.grammar_cases import random_grammar_case

    return lambda seed: check_run(random_grammar_case(seed))


def _load_migrations() -> Check:
    from migration_runs import draw_migration_run

    return lambda seed: _assert_no_fault(draw_migration_run(seed))


def _load_budgets() -> Check:
    from budget_cases import draw_budget_case

    return lambda seed: _assert_no_fault(draw_budget_case(seed))


def _assert_no_fault(run: Any) -> None:
    fault = run.find_fault()
    assert fault is None, f"{run}\n{fault}"


CHECKS: dict[str, Callable[[], Check]] = {
    "embedded": _load_embedded,
    "large": _load_large,
    "cells": _load_cells,
    "types": _load_types,
    "shared": _load_shared,
    "bounds": _load_bounds,
    "counted": _load_counted,
    "instants": _load_instants,
    "nested": _load_nested,
    "wider": _load_wider,
    "grammar": _load_grammar,
    "migrations": _load_migrations,
    "budgets": _load_budgets,
}
