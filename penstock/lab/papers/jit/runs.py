"""One point of the JIT experiments under each state policy: CPU seconds, and counts that depend on the data alone.

Nested-loop comparisons are computed, not executed. `nested_loop` has every comparison that the algorithm makes:
- A probe of a window or state (`probes`) is compared with every live row: for each push, the probes times the mean of
  the live rows before and after the push. A search for the tuples that wait for a newly demanded key is a probe, too.
- Tuples that are resumed together and joined with each other, every pair (`compared`).
- One comparison for each look-up in a set of keys or rows, which the paper hashes as well: a row tested at a gate
  (`tested`), a driver row whose key is entered (`entered`), a row looked for before it is inserted (`checked`).

`nested_loop_hashed` is the same where a newly demanded key finds its tuples by one look-up instead of a scan of the
window (`sought`), as in a blacklist that is hashed by MNS.

With indexes there is one operation for each probe and each look-up, and one for each row found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.lab.papers.jit.clique import Clique
from penstock.lab.report import ReportRow
from penstock.lab.timing import TurnTimer
from penstock.lab.workloads import has_same_rows

POLICIES = ("eager", "lazy", "jit", "auto", "none")

Metrics = Mapping[str, Any]

SINGLE_COMPARISONS = ("tested", "entered", "compared", "checked")
"""The counts of the engine in which every comparison counts as one."""


@dataclass
class Tally:
    """The counts of a run."""

    answer: list[pa.Table] = field(default_factory=list)
    built: int = 0
    """Rows of intermediate joins, built by new tuples or on demand."""
    resumed: int = 0
    suppressed: Counter[str] = field(default_factory=Counter)
    """Rows that were suppressed when they arose, by the type of their MNS."""
    sought: int = 0
    tested: int = 0
    peak_state_rows: int = 0
    """Rows in the states of intermediate joins, with expired rows that are not removed yet."""
    peak_live_rows: int = 0
    peak_bytes: int = 0
    nested_loop: float = 0.0
    nested_loop_hashed: float = 0.0
    indexed: int = 0
    changes: int = 0
    """How often the policy of one node changed by what was measured, at the node with most changes."""

    @property
    def results(self) -> int:
        return sum(table.num_rows for table in self.answer)

    def has_same_answer(self, other: Tally) -> bool:
        """Whether both runs returned the same rows, in any order."""
        return has_same_rows(pa.concat_tables(self.answer), pa.concat_tables(other.answer))

    def as_row(self) -> ReportRow:
        return {
            "built": self.built,
            "nested_loop": round(self.nested_loop),
            "nested_loop_hashed": round(self.nested_loop_hashed),
            "indexed": self.indexed,
            "peak_state_rows": self.peak_state_rows,
            "peak_live_rows": self.peak_live_rows,
            "peak_kib": round(self.peak_bytes / 1024),
            "results": self.results,
        }

    def as_mns_row(self) -> ReportRow:
        suppressed = {kind.replace(" ", "_"): self.suppressed[kind] for kind in ("empty", "type I", "type II")}
        return {
            **suppressed,
            "built": self.built,
            "resumed": self.resumed,
            "sought": self.sought,
            "tested": self.tested,
        }


@dataclass(frozen=True)
class PolicyOutcome:
    """A point under one policy."""

    cpu: float
    tally: Tally


def run_policies(point: Clique, rounds: int) -> dict[str, PolicyOutcome]:
    """Run a point under every policy: all rounds are timed, the last one is counted.

    Reading the metrics of the engine is not timed.
    """
    pushes = point.generate_pushes()
    timer = TurnTimer(POLICIES, rounds, len(pushes) + 1)
    tallies = {state: Tally() for state in POLICIES}
    for number in range(rounds):
        engines = {state: point.build_engine(state) for state in POLICIES}
        before: dict[str, Metrics] = {state: engine.metrics("q") for state, engine in engines.items()}
        for at, push in enumerate((*pushes, None)):
            for state in timer.order(at):
                engine, tally = engines[state], tallies[state]
                out = timer.run(state, number, at, engine.flush if push is None else partial(engine.push, push))
                if number == rounds - 1:
                    after: Metrics = engine.metrics("q")
                    tally.answer.append(out["q"])
                    add_push(tally, before[state], after)
                    before[state] = after
    for state, tally in tallies.items():
        _add_totals(tally, before[state], point)
    return {state: PolicyOutcome(timer.total(state), tallies[state]) for state in POLICIES}


def add_push(tally: Tally, before: Metrics, after: Metrics) -> None:
    """Add the comparisons of one push, and update the peaks."""
    live = [{**metrics["window_rows"], **metrics["live_rows"]} for metrics in (before, after)]
    single = sum(_sum_counts(after[name]) - _sum_counts(before[name]) for name in SINGLE_COMPARISONS)
    tally.nested_loop += single
    tally.nested_loop_hashed += single
    for part, probes in after["probes"].items():
        live_rows = (live[0].get(part, 0) + live[1].get(part, 0)) / 2
        new_probes = probes - before["probes"][part]
        sought = after["sought"].get(part, 0) - before["sought"].get(part, 0)
        tally.nested_loop += new_probes * live_rows
        tally.nested_loop_hashed += (new_probes - sought) * live_rows + sought
    tally.peak_state_rows = max(tally.peak_state_rows, _sum_counts(after["state_rows"]))
    tally.peak_live_rows = max(tally.peak_live_rows, _sum_counts(after["live_rows"]))
    tally.peak_bytes = max(tally.peak_bytes, after["bytes"])


def _add_totals(tally: Tally, metrics: Metrics, point: Clique) -> None:
    """Add the counts that the engine keeps over the whole run. The rows of the root are results, not intermediate."""
    inner = [node for node in metrics["built"] if node != point.plan]
    tally.built = sum(metrics["built"][node] + metrics["completed"].get(node, 0) for node in inner)
    tally.changes = max(metrics["changes"].values(), default=0)
    tally.resumed = _sum_counts(metrics["resumed"])
    tally.sought, tally.tested = _sum_counts(metrics["sought"]), _sum_counts(metrics["tested"])
    for suppressed in metrics["suppressed"].values():
        tally.suppressed.update(suppressed)
    found = sum(metrics["built"].values()) + _sum_counts(metrics["completed"])
    found += sum(sum(metrics["suppressed"][node].values()) for node in metrics["built"])
    lookups = sum(_sum_counts(metrics[name]) for name in ("tested", "entered", "checked"))
    tally.indexed = _sum_counts(metrics["probes"]) + lookups + found


def _sum_counts(counts: Mapping[str, int]) -> int:
    return sum(counts.values())
