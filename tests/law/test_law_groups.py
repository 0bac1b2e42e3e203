"""The law for shared joins: a query that shares its join gives the results that it gives alone.

Random queries over the same streams have their own windows, filters, predicates, select lists, aliases and emission.
They are added and dropped during the run, with snapshots, migrations and policy changes in between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import law_support
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from law_support import CHUNKS, check_fails, list_seeds
from sharing_mutants import FREED_MUTANT, SHARING_MUTANTS, Mutant
from sharing_runs import (
    SharingRun,
    build_engine,
    check_freed_tuples,
    check_rows_window_sharing,
    check_sharing,
    draw_sharing_run,
    run_queries,
)

from penstock.state import SHIPPED
from penstock.testing import difference

REGRESSIONS = {
    5: "table rows in a parallel track had no interest code",
    13: "rows expired in a query's window came back from a snapshot",
    111: "results found before two filter groups merged went to both",
    122: "intermediate rows were not tested when a predicate became common",
    1048: "tuples freed with a query came back with the next filter group",
    3053: "table columns were those of the first restored query",
    7059: "the code of one side was used for the combination",
    7293: "a static row ended a chain",
}


@pytest.mark.parametrize("seed", REGRESSIONS, ids=list(REGRESSIONS.values()))
def test_sharing_regressions(seed: int) -> None:
    check_sharing(seed)


@pytest.mark.parametrize("mutant", SHARING_MUTANTS, ids=lambda mutant: mutant.method)
def test_sharing_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_sharing, seed) for seed in mutant.seeds)


def test_freed_tuples_stay_freed() -> None:
    check_freed_tuples()


def test_freed_mutant_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_support, "MAINTENANCE", SHIPPED)  # the smallest thresholds remove the tuples at once
    FREED_MUTANT.apply(monkeypatch)
    with pytest.raises(AssertionError):
        check_freed_tuples()


@pytest.mark.parametrize("chunk", CHUNKS)
def test_sharing_matches_unshared_queries(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_sharing(seed)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_sharing_with_rows_windows(chunk: int) -> None:
    for seed in list_seeds(chunk):
        check_rows_window_sharing(seed)


def _filter_since(table: pa.Table, time: int) -> pa.Table:
    return table.filter(pc.greater_equal(table.column("_ts"), time))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_history_query_complete_since(chunk: int) -> None:
    """A query with history gives only results of a query from the start, and all of them from `complete_since` on."""
    for seed in list_seeds(chunk):
        run = draw_sharing_run(seed)
        plain = [name for name, text in run.texts.items() if text.startswith("SELECT ") and "COUNT" not in text]
        plain = [name for name in plain if "DISTINCT" not in run.texts[name] and "ROWS" not in run.texts[name]]
        if not plain or len(run.pushes) < 2:
            continue
        late, step = plain[-1], run.rng.randrange(1, len(run.pushes))
        run.added_at |= dict.fromkeys(run.texts, 0) | {late: len(run.pushes)}
        run.dropped_at |= dict.fromkeys(run.texts, len(run.pushes))
        state = run.rng.choice(["eager", "lazy", "jit", "auto", "none"])
        says: list[Any] = []

        def looks_back(
            eng: Any, now: int, run: SharingRun = run, late: str = late, step: int = step, says: list[Any] = says
        ) -> Any:
            if now == step:
                eng.query(late, run.texts[late], history=True)
                says.append(eng.metrics(late)["complete_since"])
            return eng

        answer = run_queries(build_engine(state=state), run, list(run.texts), looks_back)[late]
        run.added_at[late] = 0
        whole = run_queries(build_engine(share=False, state="eager"), run, [late])[late]
        context = f"seed {seed}, {state}, at {step}, complete since {says}: {run.texts[late]}"
        more = Counter(map(str, answer.to_pylist())) - Counter(map(str, whole.to_pylist()))
        assert not more, f"{context}\nunexpected: {list(more)[:5]}"
        if says[0] is not None:
            fault = difference(_filter_since(answer, says[0]), _filter_since(whole, says[0]))
            assert fault is None, f"{context}\n{fault}"
