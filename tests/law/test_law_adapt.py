"""The law with a controller: its changes, however frequent, do not change results."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from law_support import CHUNKS, FIRST, SEEDS, STATES, STRESS_RULES, check_case, list_seeds, make_engine

from penstock.testing import random_case
from penstock.testing.query_text import random_plan


@pytest.mark.parametrize("chunk", CHUNKS[::3])
def test_frequent_adaptation_matches_oracle(chunk: int) -> None:
    for seed in list_seeds(chunk):
        case = random_case(seed)
        rng = random.Random(seed)
        options = {"state": rng.choice(STATES), "batch": rng.choice((1, 3, 4096)), "adapt": STRESS_RULES}

        def unharmed(current: Any, step: int) -> None:  # noqa: ARG001
            assert [decision for decision in current.decisions() if decision.error] == []

        check_case(case, options, rng.choice((None, case.plan)), lambda: unharmed)


class DriftCase:
    """Up to five streams in a chain, a star or a clique; every few seconds the number of values of each key changes."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"drift {seed}")
        self.names = "ABCDE"[: rng.choice((3, 4, 5))]
        shape = rng.choice(("chain", "star", "clique"))
        ties = [
            (self.names[at - 1] if shape == "chain" else "A", name) for at, name in enumerate(self.names) if at
        ]  # fmt: skip
        columns = ["k0" if shape == "clique" else f"k{at}" for at in range(len(ties))]
        windows = {name: rng.choice(("[RANGE 8]", "[RANGE 12]", "[ROWS 20]")) for name in self.names}
        sources = ", ".join(f"{name} {window}" for name, window in windows.items())
        equal = " AND ".join(f"{a}.{column} = {b}.{column}" for (a, b), column in zip(ties, columns, strict=True))
        self.text = f"SELECT {', '.join(f'{name}.id AS {name.lower()}' for name in self.names)} FROM {sources}"
        self.text += f" WHERE {equal}"
        self.plan = random_plan(rng, list(self.names))
        self.schema = dict.fromkeys(("ts", "id", *(f"k{at}" for at in range(len(ties)))), "bigint")
        data = np.random.default_rng(seed)
        self.pushes = []
        for at in range(30):
            if at % 10 == 0:
                values = {column: int(data.choice((2, 6, 40))) for column in self.schema if column[0] == "k"}
                rates = {name: int(data.integers(1, 5)) for name in self.names}
            self.pushes.append({
                name: pa.table({
                    "ts": np.sort(data.integers(2 * at, 2 * at + 2, rows)), "id": data.integers(0, 1 << 40, rows),
                    **{column: data.integers(0, most, rows) for column, most in values.items()},
                })
                for name, rows in rates.items()
            })  # fmt: skip

    def answer(self, **options: Any) -> tuple[list[Counter[Any]], Any]:
        current = make_engine(**options)
        for name in self.names:
            current.stream(name, self.schema, time="ts")
        current.query("q", self.text, plan=self.plan)
        tables = [current.push(push)["q"] for push in self.pushes]
        return [Counter(map(str, table.to_pylist())) for table in (*tables, current.flush()["q"])], current


@pytest.mark.parametrize("chunk", range(FIRST, FIRST + max(10, SEEDS // 6), 5))
def test_adaptation_to_drift_matches_exact_engine(chunk: int) -> None:
    acted = 0
    for seed in range(chunk, chunk + 5):
        run = DriftCase(seed)
        exact, _ = run.answer(state="eager")
        state = run.rng.choice(STATES)
        adapted, current = run.answer(state=state, adapt=STRESS_RULES)
        assert adapted == exact, f"drift {seed}, {state}: {run.text} {current.decisions()}"
        assert [decision for decision in current.decisions() if decision.error] == []
        acted += len(current.decisions())
    assert acted > 5, "a controller that does nothing proves nothing"
