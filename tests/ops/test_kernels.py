"""The compiled loops of grouping and sequences against plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from penstock.expr import DOUBLE, INT, Aggregate, Column
from penstock.ops.aggregate.accumulators import make_accumulator
from penstock.ops.kernels import compute_sequence_limits, cover_rows, limbs_to_double
from penstock.ops.row_groups import AnswerDiffer, GroupCounts, RowGroups, find_change_points
from penstock.state import Maintenance
from penstock.testing.row_aggregates import sum_exactly
from penstock.testing.row_evaluator import fit_to_type, to_comparison_key, to_plain
from penstock.testing.row_functions import WIDE_CONTEXT


def floats(rng: random.Random) -> float:
    return rng.choice(
        (
            rng.uniform(-10, 10),
            rng.uniform(-1, 1) * 10.0 ** rng.randint(-320, 308),
            math.ldexp(rng.choice((1, -1, 3)), rng.randint(-1074, 1020)),
            0.1,
            -0.1,
            1e308,
            -1e308,
            5e-324,
        )
    )


DRAWS = {
    "int": (INT, lambda rng: rng.choice((rng.randint(-9, 9), 2**63 - 1, -(2**63), 2**62))),
    "double": (DOUBLE, floats),
    "odd double": (DOUBLE, lambda rng: rng.choice((math.nan, math.inf, -math.inf, 1.5, -0.0))),
    "decimal": (
        pa.decimal128(38, 2),
        lambda rng: rng.choice((Decimal("0.01"), Decimal(10) ** 35, -(Decimal(10) ** 35))),
    ),
    "string": (pa.string(), lambda rng: "".join(rng.choices("abé", k=rng.randint(0, 4)))),
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "date": (pa.date32(), lambda rng: rng.randint(-50, 50)),
}


MEAN = pa.decimal128(38, 6)  # of decimal(38, 2)


def wanted(function: str, members: list[object], type_: pa.DataType) -> object:
    if function == "count":
        return len(members)
    if not members:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(members, key=to_comparison_key)
    total = sum_exactly(members)
    if function == "avg":
        if not isinstance(total, Decimal):
            return float(total) / len(members)
        over = abs(total) >= Decimal(10) ** 36
        return None if over else fit_to_type(WIDE_CONTEXT.divide(total, len(members)), MEAN)
    if pa.types.is_integer(type_):
        return total if -(2**63) <= total < 2**63 else None
    if pa.types.is_decimal(type_):
        return total if abs(total) < Decimal(10) ** 36 else None
    return total


ACCUMULATORS = [
    (function, kind)
    for function in ("count", "sum", "avg", "min", "max")
    for kind in DRAWS
    if function not in ("sum", "avg") or kind not in ("string", "bool", "date")
]


@pytest.mark.parametrize(("function", "kind"), ACCUMULATORS)
def test_accumulators_against_plain_python(function: str, kind: str) -> None:
    upkeep = Maintenance(compact_rows=20, label_gap=2)  # labels between neighbours are nearly used up
    type_, draw = DRAWS[kind]
    mean = MEAN if kind == "decimal" else DOUBLE
    result = {"count": INT, "avg": mean}.get(function, type_)
    for seed in range(8):
        rng = random.Random(f"{function} {kind} {seed}")
        made = make_accumulator(Aggregate(function, (Column("a", "x", type_),), False, result), upkeep)
        members: defaultdict[int, list[object]] = defaultdict(list)
        for _ in range(30):
            changes: list[tuple[int, int, int, object]] = []
            for time in range(rng.randint(1, 3)):
                for _ in range(rng.randint(1, 12)):
                    code = rng.randrange(3)
                    if members[code] and rng.random() < 0.5:
                        value = members[code].pop(rng.randrange(len(members[code])))
                        changes.append((time, code, -1, value))
                    else:
                        value = None if rng.random() < 0.1 else draw(rng)
                        members[code].append(value)
                        changes.append((time, code, 1, value))
            check_batch(made, function, type_, changes, members)


def check_batch(made, function, type_, changes, members) -> None:  # type: ignore[no-untyped-def]
    before: dict[int, list[object]] = {code: list(rows) for code, rows in members.items()}
    for _, code, sign, value in reversed(changes):
        place = next((i for i, v in enumerate(before[code]) if v is value), None) if sign > 0 else None
        if sign > 0:
            assert place is not None
            before[code].pop(place)
        else:
            before[code].append(value)
    at = find_change_points(np.array([c for _, c, _, _ in changes], np.int32), np.array([t for t, _, _, _ in changes]))
    signs = np.array([s for _, _, s, _ in changes], np.int8)[at.order]
    column = pa.array([v for _, _, _, v in changes], pa.int32() if type_ == pa.date32() else type_)
    column = column.cast(type_).take(pa.array(at.order))
    out = to_plain(made.apply(at, signs, [column], 3))
    for code, time, first, got in zip(at.codes, at.times, at.first, out, strict=True):
        now = Counter(map(key_of, before[code]))
        plain = {key_of(v): v for v in before[code]}
        for when, group, sign, value in changes:
            if group == code and not first and when <= time:
                now[key_of(value)] += sign
                plain[key_of(value)] = value
        rows = [plain[name] for name, count in now.items() for _ in range(count) if plain[name] is not None]
        want = wanted(function, rows, type_)
        assert (got is None) == (want is None), (got, want)
        assert got is None or to_comparison_key(got) == to_comparison_key(want), (got, want)


def key_of(value: object) -> object:
    return None if value is None else to_comparison_key(value)


def test_sums_rounded_once_half_to_even() -> None:
    for limbs, want in (
        ([1, 1 << 21, 0], float(2**53)),  # a tie goes to the even neighbour
        ([3, 1 << 21, 0], float(2**53 + 4)),
        ([(1 << 32) - 1, (1 << 32) - 1, (1 << 32) - 1, 0], float(2**96)),
        ([5, 0, -1], float(5 - 2**64)),
        ([0, 0, 0], 0.0),
    ):
        out = np.empty(1)
        limbs_to_double(np.array([limbs], np.int64), 0, out)
        assert out[0] == want
        assert out[0] == float(Fraction(sum(digit << (32 * place) for place, digit in enumerate(limbs))))


def test_points_before_and_at_each_instant() -> None:
    at = find_change_points(np.array([1, 0, 1, 1], np.int32), np.array([5, 5, 5, 6]))
    assert at.codes.tolist() == [0, 0, 1, 1, 1]
    assert at.first.tolist() == [True, False, True, False, False]
    assert at.times.tolist() == [5, 5, 5, 5, 6]
    assert at.ends.tolist() == [0, 1, 1, 3, 4]
    assert at.order.tolist() == [1, 0, 2, 3]


def test_row_numbers_pair_ends_with_births() -> None:
    answer, counts = AnswerDiffer(), GroupCounts()

    def changed(codes: list[int], times: list[int], signs: list[int]) -> list[tuple[int, int, int, int]]:
        at = find_change_points(np.array(codes, np.int32), np.array(times))
        rows = counts.apply(at, np.array(signs, np.int8)[at.order], 2)
        batch = answer.compute_changes(at, rows > 0, {"n": pa.array(rows)}, 2)
        assert batch is not None
        assert batch.signs is not None
        assert batch.numbers is not None
        return list(zip(batch.times.tolist(), batch.signs.tolist(), batch.columns["n"].to_pylist(),
                        batch.numbers.tolist(), strict=True))  # fmt: skip

    assert changed([0, 1, 0], [1, 1, 2], [1, 1, 1]) == [(1, 1, 1, 0), (1, 1, 1, 2), (2, -1, 1, 0), (2, 1, 2, 1)]
    assert changed([0, 0], [3, 4], [-1, -1]) == [(3, -1, 2, 1), (3, 1, 1, 3), (4, -1, 1, 3)]


def test_row_groups_of_several_columns_recycled() -> None:
    groups, counts = RowGroups([INT, pa.string(), DOUBLE], Maintenance(recycle_codes=4)), GroupCounts()
    rng = random.Random(1)
    living: list[tuple[object, ...]] = []
    for _ in range(200):
        groups.recycle(counts.counts)
        new = [(rng.choice((None, rng.randrange(10**6))), rng.choice((None, f"k{rng.randrange(99)}")),
                rng.choice((None, math.nan, 0.0, 1.5))) for _ in range(3)]  # fmt: skip
        gone = [living.pop(rng.randrange(len(living))) for _ in range(max(0, len(living) - 4))]
        rows, signs = gone + new, [-1] * len(gone) + [1] * len(new)
        columns = [pa.array(column, type_) for column, type_ in
                   zip(zip(*rows, strict=True), (INT, pa.string(), DOUBLE), strict=True)]  # fmt: skip
        codes = groups.encode(columns, len(rows))
        back = list(zip(*(column.to_pylist() for column in groups.decode(codes)), strict=True))
        assert [tuple(map(key_of, row)) for row in back] == [tuple(map(key_of, row)) for row in rows]
        at = find_change_points(codes, np.zeros(len(rows), np.int64))
        counts.apply(at, np.array(signs, np.int8)[at.order], groups.bound)
        living += new
        assert int((counts.counts > 0).sum()) <= len(living)
    assert groups.bound < 200


def test_limits_by_time_stream_and_arrival() -> None:
    rng = random.Random(5)
    for _ in range(100):
        left = sorted((rng.randrange(6), rng.randrange(50)) for _ in range(rng.randint(0, 8)))
        right = sorted((rng.randrange(6), rng.randrange(50)) for _ in range(rng.randint(0, 8)))
        for tie in (-1, 0, 1):
            out = np.empty(len(right), np.int64)
            times, numbers = (np.array([row[i] for row in left], np.int64) for i in (0, 1))
            others = (np.array([row[i] for row in right], np.int64) for i in (0, 1))
            compute_sequence_limits(times, numbers, 7, *others, tie, out)
            for (time, number), limit in zip(right, out, strict=True):
                before = [t < time or (t == time and (tie < 0 or (tie == 0 and n < number))) for t, n in left]
                assert limit == 7 + sum(before)


@pytest.mark.parametrize("seed", range(20))
def test_covered_rows_equal_plain_python(seed: int) -> None:
    """Of each row: the longest intervals without a partner that end at a pair."""
    rng = random.Random(seed)
    rows, count = rng.randint(1, 6), rng.randint(0, 30)
    starts = np.array(sorted(rng.randint(1, 40) for _ in range(count)), np.int64)
    ends = starts + np.array([rng.randint(1, 9) for _ in range(count)], np.int64)
    numbers = np.array([rng.randint(3, 3 + rows) for _ in range(count)], np.int64)  # the last one is not known
    table = np.append(7 + np.arange(rows), -1)
    covered, shown, raised = np.ones(rows, np.int64), np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
    shown[0] = rng.random() < 0.5
    was_shown = bool(shown[0])
    times, slots, touched = (np.empty(2 * count, np.int64) for _ in range(3))
    signs = np.empty(2 * count, np.int8)
    found, longer = cover_rows(numbers, starts, ends, table, 3, 7, covered, shown, raised, times, slots, signs, touched)
    events, until = [], dict.fromkeys(range(rows), 1)
    enters = {slot: was_shown and slot == 0 for slot in range(rows)}
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slot = number - 3
        if slot == rows:
            continue
        if start > until[slot]:
            events += [] if enters[slot] else [(until[slot], slot, 1)]
            events.append((start, slot, -1))
            enters[slot] = False
        until[slot] = max(until[slot], end)
    assert list(zip(times[:found].tolist(), slots[:found].tolist(), signs[:found].tolist(), strict=True)) == events
    assert covered.tolist() == list(until.values())
    assert sorted(touched[:longer].tolist()) == [slot for slot in until if until[slot] > 1]
    assert not raised.any()
