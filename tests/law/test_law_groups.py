"""The law for groups: a query that shares its join with others answers what it answers alone.

Random queries over the same streams, with their own windows, filters, predicates, select lists, aliases and emission,
come and go under way, with snapshots, migrations and changes of policy in between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from law_support import CHUNKS, check_fails, list_seeds
from sharing_mutants import SHARING_MUTANTS, Mutant
from sharing_runs import (
    SharingRun,
    build_engine,
    check_rows_window_sharing,
    check_sharing,
    draw_sharing_run,
    run_queries,
)

from penstock.testing import difference

REGRESSIONS = {
    5: "rows of a table in a parallel track had no code of interest",
    13: "rows that had died in a query's own window came back from a snapshot",
    111: "results found before two parties became one were given to both",
    122: "intermediate rows were not tested when a predicate became common to all",
    1048: "tuples freed with the query that wanted them came back with the next party",
    3053: "a table's columns were those of the first query that came back from a snapshot",
    7059: "the code of one side was taken for that of the combination",
    7293: "a static row, born before all time, broke off a chain",
}


@pytest.mark.parametrize("seed", REGRESSIONS, ids=list(REGRESSIONS.values()))
def test_sharing_regressions(seed: int) -> None:
    check_sharing(seed)


@pytest.mark.parametrize("mutant", SHARING_MUTANTS, ids=lambda mutant: mutant.method)
def test_sharing_mutant_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert any(check_fails(check_sharing, seed) for seed in mutant.seeds)


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
    """It answers no more than one that was there from the start, and no less once it says that it is complete."""
    for seed in list_seeds(chunk):
        told = draw_sharing_run(seed)
        plain = [name for name, text in told.texts.items() if text.startswith("SELECT ") and "COUNT" not in text]
        plain = [name for name in plain if "DISTINCT" not in told.texts[name] and "ROWS" not in told.texts[name]]
        if not plain or len(told.pushes) < 2:
            continue
        late, step = plain[-1], told.rng.randrange(1, len(told.pushes))
        told.added_at |= dict.fromkeys(told.texts, 0) | {late: len(told.pushes)}
        told.dropped_at |= dict.fromkeys(told.texts, len(told.pushes))
        state = told.rng.choice(["eager", "lazy", "jit", "auto", "none"])
        says: list[Any] = []

        def looks_back(
            eng: Any, now: int, told: SharingRun = told, late: str = late, step: int = step, says: list[Any] = says
        ) -> Any:
            if now == step:
                eng.query(late, told.texts[late], history=True)
                says.append(eng.metrics(late)["complete_since"])
            return eng

        answer = run_queries(build_engine(state=state), told, list(told.texts), looks_back)[late]
        told.added_at[late] = 0
        whole = run_queries(build_engine(share=False, state="eager"), told, [late])[late]
        context = f"seed {seed}, {state}, at {step}, complete since {says}: {told.texts[late]}"
        more = Counter(map(str, answer.to_pylist())) - Counter(map(str, whole.to_pylist()))
        assert not more, f"{context}\nunexpected: {list(more)[:5]}"
        if says[0] is not None:
            fault = difference(_filter_since(answer, says[0]), _filter_since(whole, says[0]))
            assert fault is None, f"{context}\n{fault}"
