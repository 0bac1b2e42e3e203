"""Mutation tests: maintenance without one renumbering, mark or notification makes a known case fail.

Each case is also a regression test: without the mutant it passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

import law_support
import maintenance_mutants as mutants
import pytest
from migration_runs import EQUALITIES, MigrationRun, draw_small_run
from nested_runs import check_nesting
from regression_runs import (
    check_column_kept_later_in_compacted_window,
    check_parallel_track_on_shared_join,
    check_rows_window_after_query_drop,
)
from replaced_tables import check_replacement
from sharing_runs import check_sharing

from penstock.state.maintenance import SMALLEST
from penstock.testing import random_case
from penstock.testing.operator_cases import random_operators_case

Mutant = Callable[[pytest.MonkeyPatch], None]
Holds = Callable[[], object]


def check_joins(seed: int) -> None:
    case = random_case(seed)
    for options, plan in law_support.sample_run_options(case):
        law_support.check_case(case, options, plan)


def check_operators(seed: int) -> None:
    law_support.check_case(random_operators_case(seed), {"state": "eager", "batch": 3}, None)


def check_small_run(seed: int) -> None:
    run = draw_small_run(seed)
    _check_run(MigrationRun(**{**vars(run), "maintenance": SMALLEST}))


def check_partitioned_migration(seed: int) -> None:
    """Windows that are renumbered often, below states that stay incomplete."""
    rng = random.Random(f"partitioned {seed}")
    case = random_case(
        seed, sources=rng.choice((3, 4)), shape=EQUALITIES, tables=False, emit="", windows=("partition", "range"),
        span=1000, rows=rng.choice((14, 24)), full=True, domain=rng.choice((2, 3)), limit=1500, late=False, nulls=0,
    )  # fmt: skip
    _check_run(MigrationRun(case, "lazy", rng.choice((1, 3)), case.plan, 0.3, 0, pace=0, maintenance=SMALLEST))


def check_partitioned_theta_migration(seed: int) -> None:
    """As `check_partitioned_migration`, with predicates that have no key."""
    rng = random.Random(f"partitioned theta {seed}")
    case = random_case(
        seed, sources=3, shape="theta", tables=False, emit="", windows=("partition", "range"), span=1000,
        rows=rng.choice((14, 24)), full=True, domain=rng.choice((4, 8)), limit=2500, late=False, nulls=0,
    )  # fmt: skip
    _check_run(MigrationRun(case, "lazy", rng.choice((1, 3)), case.plan, 0.15, 0, pace=0, maintenance=SMALLEST))


def check_cycle_migration(seed: int) -> None:
    """Keys of two classes that are replaced often, below states that stay incomplete."""
    rng = random.Random(f"cycles {seed}")
    case = random_case(
        seed, sources=3, shape=("cycle", "clique"), tables=False, emit="", windows=("range",),
        span=rng.choice((8, 16)), rows=60, full=True, domain=rng.choice((3, 4, 6)), limit=2500, late=False, nulls=0,
    )  # fmt: skip
    _check_run(MigrationRun(case, "lazy", rng.choice((1, 3)), case.plan, 0.3, 0, pace=0, maintenance=SMALLEST))


def check_limited_joins(seed: int) -> None:
    """Every push empties states and moves windows to disk."""
    case = random_case(seed, sources=3, tables=False, windows=("partition", "range"), span=1000, rows=24, limit=1500)
    with TemporaryDirectory() as folder:
        for state in ("eager", "lazy"):
            options = {"state": state, "batch": 3, "memory": "1 GB", "spill": folder}
            law_support.check_case(case, options, None)


def check_parallel_track() -> None:
    check_parallel_track_on_shared_join("ABC", "(A C B)")


def _check_run(run: MigrationRun) -> None:
    fault = run.find_fault()
    assert fault is None, fault


CASES: dict[Mutant, Holds] = {
    mutants.skip_state_renumbering: partial(check_joins, 19),
    mutants.look_up_ends_by_old_ids: partial(check_joins, 19),
    mutants.skip_pending_rows_renumbering: partial(check_nesting, 44),
    mutants.skip_expirations_renumbering: partial(check_joins, 19),
    mutants.skip_missing_marks_renumbering: partial(check_partitioned_migration, 29),
    mutants.skip_rows_window_renumbering: partial(check_joins, 19),
    mutants.skip_interest_codes_move: partial(check_sharing, 2),
    mutants.skip_reindexing: partial(check_joins, 16),
    mutants.skip_parallel_track_marks: check_parallel_track,
    mutants.skip_parallel_track_renumbering: check_parallel_track,
    mutants.skip_column_marks_renumbering: check_column_kept_later_in_compacted_window,
    mutants.skip_heap_relabeling: partial(check_operators, 28),
    mutants.recycle_codes_of_leaves: partial(check_joins, 0),
    mutants.recycle_codes_of_states: partial(check_small_run, 8),
    mutants.recycle_codes_of_gates: partial(check_small_run, 21),
    mutants.recycle_codes_of_longer_keys: partial(check_joins, 8),
    mutants.recycle_codes_of_groups: partial(check_operators, 0),
    mutants.recycle_codes_of_sequences: partial(check_operators, 1),
    mutants.keep_freed_tuples_in_queues: partial(check_rows_window_after_query_drop, "[ROWS 2]"),
    mutants.keep_complete_keys_on_recycle: partial(check_cycle_migration, 579),
    mutants.skip_view_recall: partial(check_sharing, 0),
    mutants.read_moved_rows_in_views: partial(check_sharing, 4),
    mutants.drop_rows_in_heap_compaction: partial(check_operators, 33),
    mutants.skip_sequence_queue_rebuild: partial(check_operators, 1),
    mutants.skip_complete_rows_renumbering: partial(check_partitioned_theta_migration, 65),
    mutants.skip_segment_renumbering: partial(check_limited_joins, 17),
    mutants.read_rows_behind_segments: partial(check_limited_joins, 0),
    mutants.take_emptied_states_as_complete: partial(check_limited_joins, 0),
    mutants.keep_states_of_replaced_tables: partial(check_replacement, 16),
    mutants.restore_with_present_rows: partial(check_replacement, 68),
}


@pytest.mark.parametrize(("mutant", "case"), CASES.items(), ids=[mutant.__name__ for mutant in CASES])
def test_mutant_is_detected(mutant: Mutant, case: Holds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_support, "MAINTENANCE", SMALLEST)
    case()
    mutant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011 - broken code may fail in any way
        case()


def test_all_mutants_have_case() -> None:
    assert set(mutants.MUTANTS) == set(CASES)
