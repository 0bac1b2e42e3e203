"""A test of the tests: maintenance that forgets a renumbering, a mark or a wake-up makes a known case come out wrong.

Each case is also a regression test: unbroken, it comes out right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import lawkit
import maintenance_mutants as mutants
import pytest
import test_law_groups
import test_law_nested
import test_regressions
from adventures import EQUALITIES, Adventure, small

from penstock.state.maintenance import SMALLEST_MAINTENANCE
from penstock.testing import random_case
from penstock.testing.operator_cases import random_operators_case

Mutant = Callable[[pytest.MonkeyPatch], None]
Holds = Callable[[], object]


def law(seed: int) -> None:
    case = random_case(seed)
    for options, plan in lawkit.some_ways(case):
        lawkit.holds(case, options, plan)


def operators(seed: int) -> None:
    lawkit.holds(random_operators_case(seed), {"state": "eager", "batch": 3}, None)


def just_in_time(seed: int) -> None:
    life = small(seed)
    _holds(Adventure(**{**vars(life), "maintenance": SMALLEST_MAINTENANCE}))


def partitions_migrate(seed: int) -> None:
    """Windows that are renumbered all the time, under states that stay incomplete."""
    rng = random.Random(f"partitioned {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 4)), shape=EQUALITIES, tables=False, emit="", windows=("partition", "range"),
        span=1000, rows=rng.choice((14, 24)), full=True, domain=rng.choice((2, 3)), limit=1500, late=False, nulls=0,
    )  # fmt: skip
    _holds(Adventure(case, "lazy", rng.choice((1, 3)), case.plan, 0.3, 0, pace=0, maintenance=SMALLEST_MAINTENANCE))


def cycles_migrate(seed: int) -> None:
    """Keys of two classes that turn over, under states that stay incomplete."""
    rng = random.Random(f"cycles {seed}")
    case = random_case(
        seed, sources=3, shape=("cycle", "clique"), tables=False, emit="", windows=("range",),
        span=rng.choice((8, 16)), rows=60, full=True, domain=rng.choice((3, 4, 6)), limit=2500, late=False, nulls=0,
    )  # fmt: skip
    _holds(Adventure(case, "lazy", rng.choice((1, 3)), case.plan, 0.3, 0, pace=0, maintenance=SMALLEST_MAINTENANCE))


def parallel_track() -> None:
    test_regressions.test_parallel_track_on_a_shared_join("ABC", "(A C B)")


def _holds(life: Adventure) -> None:
    fault = life.fault()
    assert fault is None, fault


CASES: dict[Mutant, Holds] = {
    mutants.states_keep_old_ids: partial(law, 19),
    mutants.states_look_up_ends_by_old_ids: partial(law, 19),
    mutants.pending_rows_keep_old_ids: partial(test_law_nested.holds_together, 44),
    mutants.living_results_keep_old_ids: partial(law, 19),
    mutants.incomplete_states_keep_old_marks: partial(partitions_migrate, 29),
    mutants.rows_windows_keep_old_queues: partial(law, 19),
    mutants.codes_of_interest_stay_where_they_were: partial(test_law_groups.holds_together, 2),
    mutants.indexes_keep_old_ids: partial(law, 16),
    mutants.parallel_track_keeps_old_marks: parallel_track,
    mutants.parallel_track_is_not_told: parallel_track,
    mutants.columns_kept_later_keep_old_marks: test_regressions.test_column_kept_later_in_a_window_that_is_squeezed,
    mutants.heaps_keep_old_labels: partial(operators, 19),
    mutants.codes_of_leaves_are_not_marked: partial(law, 0),
    mutants.codes_of_states_are_not_marked: partial(just_in_time, 8),
    mutants.codes_of_gates_are_not_marked: partial(just_in_time, 11),
    mutants.codes_of_longer_keys_are_not_marked: partial(law, 8),
    mutants.codes_of_groups_are_not_marked: partial(operators, 0),
    mutants.codes_of_sequences_are_not_marked: partial(operators, 1),
    mutants.freed_tuples_stay_in_queues: partial(test_regressions.test_rows_window_after_query_drop, "[ROWS 2]"),
    mutants.complete_keys_outlive_their_codes: partial(cycles_migrate, 107),
    mutants.borrowers_are_not_told: partial(test_law_groups.holds_together, 0),
    mutants.compacted_heaps_lose_their_rows: partial(operators, 17),
    mutants.queues_of_a_sequence_are_not_rebuilt: partial(operators, 1),
}


@pytest.mark.parametrize(("mutant", "case"), CASES.items(), ids=[mutant.__name__ for mutant in CASES])
def test_mutant_is_noticed(mutant: Mutant, case: Holds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lawkit, "MAINTENANCE", SMALLEST_MAINTENANCE)
    case()
    mutant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - broken code may fail in any way
        case()


def test_all_mutants_have_a_case() -> None:
    assert set(mutants.MUTANTS) == set(CASES)
