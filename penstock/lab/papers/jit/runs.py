"""One point of the JIT experiments under each state policy: seconds of CPU, and counts that no machine changes.

Nested-loop comparisons are counted, not made. The engine counts, for every window and state, the probes it answered
(`probes`); a nested-loop join compares each with every row that lives there. So a push adds, for each window and
state, probes × the mean of the living rows before and after the push. What JIT asks of its own tables is hashed in the
paper too (MNS buffer, blacklist) and adds one comparison each: a row tested at a gate (`tested`), a demanded key whose
waiting tuples are sought in a window (`sought`, which is taken out of the window's probes). The count is not in JIT's
favour: tuples that wait stay in their window here, so that others are compared with them; the paper moves them to
the blacklist. How much rests on hashing the sought keys is shown by a second count, `nested_loop_scanned`, in which
each of them is compared with the whole window as well.

With indexes there is one operation for each probe, test and sought key, and one for each row found.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.lab.papers.jit.clique import Clique

POLICIES = ("eager", "jit", "auto", "none")

Metrics = Mapping[str, Any]


@dataclass
class Tally:
    """What a run counted."""

    answer: list[pa.Table] = field(default_factory=list)
    built: int = 0
    """Rows of intermediate joins: built by new tuples, or on demand."""
    resumed: int = 0
    suppressed: Counter[str] = field(default_factory=Counter)
    """Rows that were put off when they came up, by the type of their MNS."""
    sought: int = 0
    tested: int = 0
    peak_state_rows: int = 0
    """Rows held by the states of intermediate joins, dead ones that were not cleared away yet included."""
    peak_live_rows: int = 0
    peak_bytes: int = 0
    nested_loop: float = 0.0
    nested_loop_scanned: float = 0.0
    indexed: int = 0

    @property
    def results(self) -> int:
        return sum(table.num_rows for table in self.answer)

    def has_same_answer(self, other: Tally) -> bool:
        """Whether both runs gave the same rows, in whatever order within an instant."""
        mine, theirs = (pa.concat_tables(tally.answer) for tally in (self, other))
        order = [(name, "ascending") for name in mine.column_names]
        return bool(mine.sort_by(order).equals(theirs.sort_by(order)))

    def as_row(self) -> dict[str, Any]:
        return {
            "built": self.built,
            "nested_loop": round(self.nested_loop),
            "nested_loop_scanned": round(self.nested_loop_scanned),
            "indexed": self.indexed,
            "peak_state_rows": self.peak_state_rows,
            "peak_live_rows": self.peak_live_rows,
            "peak_kib": round(self.peak_bytes / 1024),
            "results": self.results,
        }

    def as_mns_row(self) -> dict[str, Any]:
        held = {kind.replace(" ", "_"): self.suppressed[kind] for kind in ("empty", "type I", "type II")}
        return {**held, "built": self.built, "resumed": self.resumed, "sought": self.sought, "tested": self.tested}


@dataclass(frozen=True)
class PolicyOutcome:
    """A point under one policy."""

    cpu: float
    tally: Tally


def run_policies(point: Clique, rounds: int) -> dict[str, PolicyOutcome]:
    """Run a point under every policy. The last round counts, all of them time.

    The policies take turns push by push, so that a busy moment of the machine hits all of them; of each push the best
    round is taken. The engine's metrics are read outside of what is timed.
    """
    pushes = point.generate_pushes()
    seconds = {state: np.zeros((rounds, len(pushes) + 1)) for state in POLICIES}
    tallies = {state: Tally() for state in POLICIES}
    for number in range(rounds):
        engines = {state: point.build_engine(state) for state in POLICIES}
        before: dict[str, Metrics] = {state: engine.metrics("q") for state, engine in engines.items()}
        for at, push in enumerate((*pushes, None)):
            for state in POLICIES if at % 2 else reversed(POLICIES):
                engine, tally = engines[state], tallies[state]
                begin = time.process_time()
                out = engine.flush() if push is None else engine.push(push)
                seconds[state][number, at] = time.process_time() - begin
                if number == rounds - 1:
                    after: Metrics = engine.metrics("q")
                    tally.answer.append(out["q"])
                    _add_push(tally, before[state], after)
                    before[state] = after
    for state, tally in tallies.items():
        _add_totals(tally, before[state], point)
    return {state: PolicyOutcome(float(seconds[state].min(axis=0).sum()), tallies[state]) for state in POLICIES}


def _add_push(tally: Tally, before: Metrics, after: Metrics) -> None:
    """Add the comparisons of one push, and see whether there was ever more in memory."""
    alive = [{**metrics["window_rows"], **metrics["live_rows"]} for metrics in (before, after)]
    tested = _sum_counts(after["tested"]) - _sum_counts(before["tested"])
    tally.nested_loop += tested
    tally.nested_loop_scanned += tested
    for part, probes in after["probes"].items():
        living = (alive[0].get(part, 0) + alive[1].get(part, 0)) / 2
        asked = probes - before["probes"][part]
        sought = after["sought"].get(part, 0) - before["sought"].get(part, 0)
        tally.nested_loop += (asked - sought) * living + sought
        tally.nested_loop_scanned += asked * living
    tally.peak_state_rows = max(tally.peak_state_rows, _sum_counts(after["state_rows"]))
    tally.peak_live_rows = max(tally.peak_live_rows, _sum_counts(after["live_rows"]))
    tally.peak_bytes = max(tally.peak_bytes, after["bytes"])


def _add_totals(tally: Tally, metrics: Metrics, point: Clique) -> None:
    """The counts that the engine keeps over the whole run. The root's rows are the results, not intermediate ones."""
    inner = [node for node in metrics["built"] if node != point.plan]
    tally.built = sum(metrics["built"][node] + metrics["completed"].get(node, 0) for node in inner)
    tally.resumed = _sum_counts(metrics["resumed"])
    tally.sought, tally.tested = _sum_counts(metrics["sought"]), _sum_counts(metrics["tested"])
    for held in metrics["suppressed"].values():
        tally.suppressed.update(held)
    found = sum(metrics["built"].values()) + _sum_counts(metrics["completed"])
    found += sum(sum(metrics["suppressed"][node].values()) for node in metrics["built"])
    tally.indexed = _sum_counts(metrics["probes"]) + tally.tested + found


def _sum_counts(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
