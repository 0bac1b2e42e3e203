"""The history of groups and its totals against plain Python."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from penstock.expr import DOUBLE
from penstock.ops.aggregate.group_history import GroupHistory, RangeMinima, Ranges, SumTotals, ValueLinks
from penstock.ops.aggregate.slice_kernels import find_end
from penstock.state import FOREVER, NONE, SHIPPED
from penstock.testing.row_aggregates import sum_exactly


def test_totals_of_ranges_after_drops() -> None:
    rng, history = random.Random(5), GroupHistory()
    sums, low, links = SumTotals(DOUBLE), RangeMinima(DOUBLE, smallest=True), ValueLinks(DOUBLE, SHIPPED)
    columns = (sums, low, links)
    rows: list[tuple[int, float | None]] = []
    for _ in range(60):
        new = [(rng.randrange(3), rng.choice([None, 0.1, -7.5, 1e20, 3.0])) for _ in range(rng.randint(0, 40))]
        rows += new
        values = pa.array([value for _, value in new], DOUBLE)
        first = history.append(np.arange(len(new)), np.array([code for code, _ in new], np.int32), 3)
        for column in columns:
            column.append(history, first, values)
        count = rng.choice([0, 0, len(rows) // 3, len(rows)])
        if count:
            dropped = history.drop(count)
            for column in columns:
                column.drop(dropped, len(rows))
            rows = rows[count:]
        _check_ranges(rng, history, sums, low, rows)
        _check_links(links, rows)


def _check_ranges(
    rng: random.Random, history: GroupHistory, sums: SumTotals, low: RangeMinima, rows: list[tuple[int, float | None]]
) -> None:
    for code in range(3):
        places = [place for place, (group, _) in enumerate(rows) if group == code]
        for _ in range(3):
            start = rng.randint(0, len(places))
            stop = rng.randint(start, len(places))
            left, last = ([int(NONE), *places][end] for end in (start, stop))
            ranges = Ranges(np.array([left], np.int32), np.array([last], np.int32))
            values = [rows[place][1] for place in places[start:stop]]
            known = [value for value in values if value is not None]
            assert history.count_rows(ranges).tolist() == [len(values)]
            found, counts = sums.read_as_doubles(ranges)
            assert counts.tolist() == [len(known)]
            assert not known or found.tolist() == [sum_exactly(known)]
            assert low.read(history, ranges).to_pylist() == [min(known, default=None)]


def _check_links(links: ValueLinks, rows: list[tuple[int, float | None]]) -> None:
    for place, row in enumerate(rows):
        if row[1] is None:
            assert links.after[place] == place
            continue
        same = [other for other, each in enumerate(rows) if each == row]
        at = same.index(place)
        assert links.before[place] == (same[at - 1] if at else NONE)
        assert links.after[place] == (same[at + 1] if at + 1 < len(same) else NONE)


def test_minimum_takes_logarithmic_jumps() -> None:
    history = GroupHistory()
    size = 1 << 14
    history.append(np.arange(size), np.zeros(size, np.int32), 1)
    for left in range(0, size, 997):
        row, steps, until = size - 1, 0, int(history.ordinals[left])
        while row >= 0 and history.ordinals[row] > until:
            row = int(history.jumps[row] if history.depths[row] >= until else history.previous[row])
            steps += 1
        assert steps <= 4 * 14


def test_ends_do_not_overflow() -> None:
    assert find_end(7, 5) == 12
    assert find_end(int(FOREVER) - 3, 5) == FOREVER
