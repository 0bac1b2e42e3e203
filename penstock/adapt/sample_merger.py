"""Merges the samples of one join from the cells of a pipeline into one sample: the join in an average cell.

All cells run one plan, and the cost of a plan is the sum over the cells, so rates and rows are means over the cells
that have rows of the join. Pairs are added up: a row meets rows of its own cell only. Push statistics are those of the
busiest cell, because a budget must suffice there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.adapt.monitor import JoinSample, PushStats

JoinKey = tuple[str, int]
"""A query and the index of one of its joins."""


class SampleMerger:
    """Collects the samples of a join until all cells have sent one, or one of them sends its next."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._samples: dict[JoinKey, dict[int, JoinSample]] = {}

    def add(self, samples: Mapping[int, Sequence[JoinSample]], queries: Collection[str]) -> list[JoinSample]:
        """Add samples by cell and return the merged samples that are complete; `queries`: those that still run."""
        self._samples = {join: found for join, found in self._samples.items() if join[0] in queries}
        complete = []
        for cell, each in samples.items():
            for sample in each:
                join = sample.query, sample.join_index
                if cell in self._samples.get(join, {}):
                    complete.append(self._samples.pop(join))
                found = self._samples.setdefault(join, {})
                found[cell] = sample
                if len(found) == self._cells:
                    complete.append(self._samples.pop(join))
        together = (merge_samples([found[cell] for cell in sorted(found)]) for found in complete)
        return [sample for sample in together if sample is not None]


def merge_samples(samples: Sequence[JoinSample]) -> JoinSample | None:
    """One sample for several of the same join; None if no cell has rows of it."""
    filled = [sample for sample in samples if any(sample.rows.values())]
    if not filled:
        return None
    first = filled[0]
    alike = [each for each in filled if (each.names, each.tree) == (first.names, first.tree)]
    return replace(
        first,
        time=max(each.time for each in alike),
        rates=_average([each.rates for each in alike]),
        rows=_average([each.rows for each in alike]),
        pairs={
            pair: (sum(each.pairs[pair][0] for each in alike), sum(each.pairs[pair][1] for each in alike))
            for pair in first.pairs
        },
        state_rows=sum(each.state_rows for each in alike),
        push_stats=PushStats(*(max(numbers) for numbers in zip(*map(_push_stats_fields, alike), strict=True))),
        sheddable=all(each.sheddable for each in alike),
        has_own_budget=any(each.has_own_budget for each in alike),
        demand_ratio=max((each.demand_ratio for each in alike if each.demand_ratio is not None), default=None),
    )


def _average(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {alias: sum(each[alias] for each in values) / len(values) for alias in values[0]}


def _push_stats_fields(sample: JoinSample) -> tuple[int, float, float]:
    return sample.push_stats.pushes, sample.push_stats.seconds, sample.push_stats.event_seconds
