"""The compiled loops against naive versions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.join.row_set import RowSet
from penstock.join.sharing.code_ring import CodeRing
from penstock.join.sharing.interest import GroupWindows, Interest, compute_ends
from penstock.join.sharing.kernels import (
    clip_expirations,
    compute_window_ends,
    count_by_group,
    count_slices,
    intersect_bits,
    intersect_codes,
    is_ascending,
    select_by_age,
)
from penstock.state import (
    ALWAYS,
    FOREVER,
    NONE,
    SHIPPED,
    BloomFilter,
    CodeSet,
    CodeTable,
    KeySpace,
    NumberMap,
    ProbeBuffer,
    ProbeTarget,
    SortedIndex,
    allocate,
    bloom,
    chain_append,
    compute_ranges,
    concat_arrays,
    find_equal_pairs,
    gather,
    kernels,
    make_ring_column,
    scan_times,
)
from penstock.state.alloc import copy_array
from penstock.state.interning import make_interner
from penstock.state.kernels import chain_retract, ring_chain_append, rows_window_append
from penstock.state.maintenance import SMALLEST
from penstock.state.time_kernels import add_lifetime

RANDOM = np.random.default_rng


@pytest.mark.parametrize("seed", range(5))
def test_code_table_interns_and_recycles(seed: int) -> None:
    rng, table, twin = RANDOM(seed), CodeTable(), {}
    for _ in range(30):
        keys = rng.integers(-50, 50, rng.integers(1, 40)) * 2**40
        codes = table.intern(keys)
        for key, code in zip(keys.tolist(), codes.tolist(), strict=True):
            assert twin.setdefault(key, code) == code
        assert len(set(twin.values())) == len(twin)
        assert table.lookup(np.array([1, 3])).tolist() == [-1, -1]
        if rng.random() < 0.3:
            kept = {key: code for key, code in twin.items() if rng.random() < 0.5}
            marks = np.zeros(table.code_limit, np.uint8)
            marks[list(kept.values())] = 1
            table.recycle(marks)
            twin = kept
        assert table.live_count == len(twin)
    assert table.code_limit <= 100


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([3, None, 3, -(2**63)], pa.int64()),
        ([0.0, -0.0, float("nan"), float("nan"), None], pa.float64()),
        (["a", "", None, "a"], pa.string()),
        ([True, False, None], pa.bool_()),
    ],
)
def test_interner_codes_of_equal_values_and_null(values: list[object], type_: pa.DataType) -> None:
    codes = make_interner(type_, 1).intern(pa.array(values, type_)).tolist()
    for value, code in zip(values, codes, strict=True):
        for other, its in zip(values, codes, strict=True):
            same = value == other or repr(value) == repr(other) == "nan"
            assert (code == its and code >= 0) == (same and value is not None)


def test_composite_key_codes() -> None:
    rng, space = RANDOM(1), KeySpace([pa.int64()] * 3)
    parts = [space.interners[i].intern(pa.array(rng.integers(0, 6, 300))) for i in range(3)]
    codes = space.encode((0, 1, 2), parts, 300, insert=True)
    assert all((one == two).all() for one, two in zip(space.decode((0, 1, 2), codes), parts, strict=True))
    triples = list(zip(*(part.tolist() for part in parts), strict=True))
    assert len({*zip(triples, codes.tolist(), strict=True)}) == len(set(triples)) == len(set(codes.tolist()))
    assert space.encode((0, 1, 2), [part[:1] * 0 + 5 for part in parts], 1, insert=False).size == 1


@pytest.mark.parametrize(
    "type_", [pa.int32(), pa.float64(), pa.bool_(), pa.string(), pa.decimal128(22, 2), pa.date32()]
)
def test_ring_column_append_and_read(type_: pa.DataType) -> None:
    rng, column, capacity = RANDOM(2), make_ring_column(type_, 64), 64
    kept: list[object] = []
    base = 0
    for _ in range(60):
        raw = [None if rng.random() < 0.2 else int(rng.integers(0, 100)) for _ in range(rng.integers(1, 30))]
        values = _as(raw, type_)
        while len(kept) - base + len(values) > capacity:
            if rng.random() < 0.8:
                base = min(len(kept), base + 20)
            else:
                column.resize(2 * capacity, base, len(kept))
                capacity *= 2
        column.append(base, len(kept), values)
        kept += values.to_pylist()
        ids = rng.integers(base, len(kept), 25)
        assert column.take(ids).to_pylist() == [kept[i] for i in ids]


def _as(raw: list[int | None], type_: pa.DataType) -> pa.Array:
    if type_ == pa.bool_():
        return pa.array([None if value is None else value % 2 == 0 for value in raw])
    if type_ == pa.date32():
        return pa.array(raw, pa.int32()).cast(type_)
    return pa.array(raw, pa.int64()).cast(type_)


@pytest.mark.parametrize("seed", range(5))
def test_partitioned_rows_window_expiry(seed: int) -> None:
    rng = RANDOM(seed)
    n, size = 60, int(rng.integers(1, 5))
    parts = rng.integers(0, 3, n).astype(np.int32)
    stored = rng.random(n) < 0.7
    ids = np.where(stored, np.cumsum(stored) - 1, -1)
    dies = np.full(64, FOREVER)
    nothing = [np.full(4, -1, np.int64) for _ in range(2)]
    rings = [np.zeros(64, np.int64) for _ in range(2)]
    counts = np.zeros(4, np.int64)
    for cut in np.split(np.arange(n), [7, 20, 21]):
        rows_window_append(parts[cut], cut * 10, ids[cut], size, counts, *nothing, 63, *rings, dies)
    for i in np.flatnonzero(stored):
        later = [j for j in range(i + 1, n) if parts[j] == parts[i]]
        assert dies[ids[i]] == (later[size - 1] * 10 if len(later) >= size else FOREVER)


def test_row_set_returns_absent_rows() -> None:
    rng, rows, stored, size = RANDOM(3), RowSet(), np.empty((2, 4096), np.int64), 0
    seen: set[tuple[int, int]] = set()
    for _ in range(40):
        ids = rng.integers(0, 20, (2, 15))
        absent = rows.add(ids, stored, size)
        for pair, is_absent in zip(ids.T.tolist(), absent.tolist(), strict=True):
            assert is_absent == (tuple(pair) not in seen)
            seen.add(tuple(pair))
        stored[:, size : size + absent.sum()] = ids[:, absent]
        size += int(absent.sum())


def test_code_set_returns_new_codes() -> None:
    codes = CodeSet()
    assert codes.add(np.array([3, 900, 3], np.int32)).tolist() == [3, 900]
    assert codes.add(np.array([900, 4], np.int32)).tolist() == [4]
    assert codes.has(np.array([-1, 3, 5, 900, 10**6], np.int32)).tolist() == [False, True, False, True, False]
    assert codes.codes().tolist() == [3, 4, 900]


@pytest.mark.parametrize("seed", range(5))
def test_sorted_index_range_lookup(seed: int) -> None:
    rng, index = RANDOM(seed), SortedIndex()
    keys = rng.normal(size=300).round(1)
    keys[rng.random(300) < 0.1] = np.nan
    for part in np.split(np.arange(300), [1, 2, 50, 53, 200]):
        index.add(keys[part], part, lambda rows: rows >= 30)
    born, dies = rng.integers(0, 50, 300), rng.integers(50, 100, 300)
    probe_born, probe_dies = rng.integers(0, 90, 40), np.full(40, 95)
    at = rng.normal(size=40).round(1)
    lows, highs = compute_ranges(at, -0.5, 0.25)
    store = ProbeTarget(-1, 30, 280, born, dies, np.empty(0, np.uint8))
    found = {
        (int(i), int(row))
        for block in index.probe(lows, highs, probe_born, probe_dies, store, ProbeBuffer(64))
        for i, row in zip(block.probe, block.row, strict=True)
    }
    for i in range(40):
        for row in range(30, 280):
            overlap = max(probe_born[i], born[row]) < min(95, dies[row])
            inside = at[i] - 0.5 <= keys[row] <= at[i] + 0.25
            if overlap and inside:
                assert (i, row) in found
            if not overlap or np.isnan(keys[row]) or not at[i] - 0.51 <= keys[row] <= at[i] + 0.26:
                assert (i, row) not in found


@pytest.mark.parametrize("seed", range(4))
def test_sorted_index_of_intervals(seed: int) -> None:
    """Rows with a second number: those with a key up to the probe's and a second number from the probe's on."""
    rng, index = RANDOM(seed), SortedIndex()
    keys, seconds = rng.integers(0, 500, 3000).astype(float), rng.integers(0, 500, 3000).astype(float)
    keys[rng.random(3000) < 0.05] = np.nan
    seconds[rng.random(3000) < 0.05] = np.nan
    for part in np.split(np.arange(3000), [1, 2, 50, 700, 2900]):
        index.add(keys[part], part, lambda rows: rows >= 30, seconds[part])
    zeros, ends = np.zeros(3000, np.int64), np.full(3000, 9)
    highs, least = rng.integers(-1, 501, 60).astype(float), rng.integers(300, 502, 60).astype(float)
    store = ProbeTarget(-1, 30, 2950, zeros, ends, np.empty(0, np.uint8))
    lows = np.full(60, -np.inf)
    blocks = index.probe(lows, highs, zeros[:60], ends[:60], store, ProbeBuffer(64), least)
    found = [(i, row) for block in blocks for i, row in zip(block.probe.tolist(), block.row.tolist(), strict=True)]
    wanted = (keys <= highs[:, np.newaxis]) & (seconds >= least[:, np.newaxis])
    assert sorted(found) == [(i, row) for i, row in np.argwhere(wanted).tolist() if 30 <= row < 2950]


@pytest.mark.parametrize("seed", range(4))
def test_equal_pairs_in_blocks(seed: int) -> None:
    rng = RANDOM(seed)
    left, right = (rng.integers(0, 6, rng.integers(0, 40)).astype(np.int32) for _ in range(2))
    blocks = find_equal_pairs(left, right, 7)
    found = [pair for one, two in blocks for pair in zip(one.tolist(), two.tolist(), strict=True)]
    wanted = [(i, j) for i, code in enumerate(left) for j, other in enumerate(right) if code == other]
    assert sorted(found) == wanted


@pytest.mark.parametrize("classes", [1, 3])
def test_bloom_filter_false_positives(classes: int) -> None:
    rng, keys = RANDOM(classes), 5_000
    added, other = (
        [np.arange(first, first + keys, dtype=np.int32), *(rng.integers(0, 9, (classes - 1, keys)).astype(np.int32))]
        for first in (0, keys)
    )
    demanded = BloomFilter(SHIPPED, keys)
    assert not demanded.has(added).any()
    assert demanded.false_positives == 0
    demanded.add(added)
    assert demanded.has(added).all()
    twin = np.zeros(demanded.nbytes, np.uint8)
    kernels.bloom_add(np.stack(added), twin, bloom.HASHES)
    assert demanded.false_positives == pytest.approx(np.unpackbits(twin).mean() ** bloom.HASHES)
    assert demanded.has(other).mean() == pytest.approx(demanded.false_positives, abs=0.005)
    assert demanded.has_room_for(keys)
    assert not BloomFilter(SHIPPED).has_room_for(keys)


@pytest.mark.parametrize("claims", [0, 1, 2, 3, 4, 9, 64, 65, 130])
def test_interest_codes_of_tuples(claims: int) -> None:
    rng = RANDOM(claims)
    interest = Interest([GroupWindows({"a": 9})] * (2 * claims + 1))
    for _ in range(3):
        some = [(3 << 2 * place + 1, rng.random(40) < 0.5) for place in range(claims)]
        codes = interest.encode_rows(1, some, 40)
        wanted = [1 | sum(parties for parties, passing in some if passing[row]) for row in range(40)]
        assert [interest.sets[code] for code in codes] == wanted


def test_interest_codes_of_combinations() -> None:
    rng = RANDOM(4)
    ids, ring = rng.integers(100, 164, 50), rng.integers(0, 3, 64).astype(np.uint8)
    meets = rng.integers(0, 3, (3, 3)).astype(np.int32)
    codes = rng.integers(0, 3, 50).astype(np.int32)
    narrowed = codes.copy()
    intersect_codes(ring, ids, meets, narrowed)
    assert (narrowed == meets[codes, ring[ids & 63]]).all()
    born, reach, dies = rng.integers(0, 30, 64), np.array([0, 7, FOREVER]), rng.integers(10, 40, 50)
    born[5] = FOREVER - 3
    cut = dies.copy()
    clip_expirations(born, ids, reach, codes, cut)
    assert (cut == np.minimum(dies, compute_ends(born[ids & 63], reach[codes]))).all()
    end = np.empty(50, np.int64)
    compute_window_ends(born[:50], reach, codes, end)
    assert (end == compute_ends(born[:50], reach[codes])).all()


@pytest.mark.parametrize(
    ("times", "after", "so"), [([], 3, True), ([3, 3, 4], 3, True), ([3], 4, False), ([4, 3], 0, False)]
)
def test_ascending_times(times: list[int], after: int, so: bool) -> None:
    assert is_ascending(np.array(times, np.int64), after) is so


def test_remove_newest_rows_from_hash_chains() -> None:
    codes = RANDOM(6).integers(-1, 4, 40).astype(np.int32)
    head, following = np.full(4, NONE, np.int64), np.full(64, NONE, np.int64)
    chain_append(codes[:25], 0, 63, head, following)
    before = head.copy(), following[:25].copy()
    chain_append(codes[25:], 25, 63, head, following)
    chain_retract(codes[25:], 25, 63, head, following)
    assert (head == before[0]).all()
    assert (following[:25] == before[1]).all()


@pytest.mark.parametrize("first", [0, 50])
def test_codes_written_and_chained_in_ring(first: int) -> None:
    codes = RANDOM(7).integers(-1, 4, 30).astype(np.int32)
    ring, head, following = np.full(64, 9, np.int32), np.full(4, NONE, np.int64), np.full(64, NONE, np.int64)
    small = head[:2].copy()
    done = ring_chain_append(codes, 0, first, ring, small, following)
    assert codes[done] >= small.size > codes[:done].max(initial=NONE)
    head[:2] = small
    assert ring_chain_append(codes, done, first, ring, head, following) == codes.size
    naive, links = np.full(4, NONE, np.int64), np.full(64, NONE, np.int64)
    chain_append(codes, first, 63, naive, links)
    assert (head == naive).all()
    assert (following == links).all()
    assert (ring[np.arange(first, first + 30) & 63] == codes).all()


@pytest.mark.parametrize("times", [[], [3], [3, 3, 5], [5, 3, 4], [-(2**63), 2**63 - 1]])
def test_scan_of_times(times: list[int]) -> None:
    oldest, newest, ascending = scan_times(np.array(times, np.int64))
    assert oldest == min(times, default=int(FOREVER))
    assert newest == max(times, default=int(ALWAYS))
    assert ascending is (times == sorted(times))


@pytest.mark.parametrize("length", [0, 7, int(FOREVER)])
def test_times_plus_length_end_at_forever(length: int) -> None:
    times = [-(2**63), -8, 0, 5, 2**63 - 8, 2**63 - 2]
    out = np.empty(6, np.int64)
    add_lifetime(np.array(times), length, out)
    assert out.tolist() == [min(time + length, int(FOREVER)) for time in times]


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.bool_(), pa.decimal128(25, 2)])
def test_ring_column_move(type_: pa.DataType) -> None:
    column = make_ring_column(type_, 64)
    values = pa.array([None if n % 5 == 4 else n % 7 for n in range(60)]).cast(type_)
    column.append(0, 0, values)
    kept = np.flatnonzero(RANDOM(3).random(60) < 0.6)
    column = column.move(kept, 60)
    column.append(60, 60 + kept.size, values.slice(0, 20))
    assert column.take(np.arange(60, 80 + kept.size)).equals(
        pa.concat_arrays([values.take(pa.array(kept)), values.slice(0, 20)])
    )


@pytest.mark.parametrize("codes", [1, 3, 300])
def test_code_ring_uses_smallest_type(codes: int) -> None:
    rng, ring, kept, base = RANDOM(codes), CodeRing(), [], 0
    for turn in range(40):
        new = rng.integers(codes, size=rng.integers(0, 9)).astype(np.int32) if turn > 3 else np.full(4, 2, np.int32)
        ring.write(base, len(kept), new, 64, wide=codes > 256 and turn > 3)
        kept += new.tolist()
        base = max(base, len(kept) - int(rng.integers(0, 50)))
        if turn % 7 == 6:
            alive = np.arange(base, len(kept))[::2]
            ring.move(alive, len(kept))
            base, kept = len(kept), kept + [kept[row] for row in alive]
        ids = np.arange(base, len(kept))
        assert ring.take(ids).tolist() == kept[base:]
        if turn == 3:
            assert ring.nbytes == 1
    ring.resize(128, base, len(kept))
    assert ring.take(np.arange(base, len(kept))).tolist() == kept[base:]


@pytest.mark.parametrize("rows", [0, 7, 70_000])
def test_alloc_helpers_match_numpy(rows: int) -> None:
    values = RANDOM(rows).integers(0, 99, (3, rows))
    places = np.flatnonzero(values[0] < 60)
    assert (gather(values, places) == values[:, places]).all()
    assert (gather(values[1], places) == values[1][places]).all()
    assert (copy_array(values[2]) == values[2]).all()
    for axis in (0, -1):
        assert (concat_arrays([values, values], axis) == np.concatenate([values, values], axis)).all()
    assert allocate(rows, np.int32).shape == (rows,)


@pytest.mark.parametrize("groups", [0, 3])
def test_select_and_count_combinations_by_age(groups: int) -> None:
    rng = np.random.default_rng(groups)
    age, windows = rng.integers(0, 30, 200), np.array([5, 6, 20])
    codes = rng.integers(0, 1 + groups, 200 if groups else 0).astype(np.int32)
    of = codes.tolist() if groups else [0] * 200
    has = rng.random(1 + groups) < 0.5
    out = np.empty(200, np.int64)
    chosen = out[: select_by_age(age, 20, codes, has, out)].tolist()
    assert chosen == [i for i in range(200) if age[i] < 20 and (not groups or has[of[i]])]
    tally = np.zeros((1 + groups, 4), np.int64)
    count_slices(age, codes, windows, tally)
    twin = Counter((of[i], sum(window <= age[i] for window in windows)) for i in range(200))
    assert {place: count for place, count in np.ndenumerate(tally) if count} == twin


@pytest.mark.parametrize("groups", [3, 20])
def test_meet_and_count_combinations_by_bits(groups: int) -> None:
    rng = np.random.default_rng(groups)
    places = [set(np.flatnonzero(rng.random(groups) < 0.5).tolist()) for _ in range(5)]
    sets = np.packbits([[group in each for group in range(groups)] for each in places], axis=1, bitorder="little")
    ring, ids, first = rng.integers(0, 5, 16).astype(np.int32), rng.integers(0, 99, 200), rng.integers(0, 5, 200)
    bits = sets[first]
    intersect_bits(ring, ids, sets, bits)
    met = [places[one] & places[ring[other & 15]] for one, other in zip(first.tolist(), ids.tolist(), strict=True)]
    assert [set(np.flatnonzero(np.unpackbits(row, bitorder="little")).tolist()) for row in bits] == met
    age, windows = (
        rng.integers(0, 30, 200),
        [sorted({int(w) for w in rng.integers(1, 25, n % 4)}) for n in range(groups)],
    )
    firsts = np.cumsum([0, *(len(each) + 1 for each in windows)])
    ends = np.array([end for each in windows for end in (*each, 2**63 - 1)])
    counts = np.zeros(ends.size, np.int64)
    count_by_group(age, bits, ends, firsts, counts)
    twin = Counter(
        (group, sum(end <= a for end in windows[group]))
        for a, each in zip(age.tolist(), met, strict=True)
        for group in each
    )
    assert counts.sum() == twin.total()
    assert all(counts[firsts[group] + place] == count for (group, place), count in twin.items())


@pytest.mark.parametrize("seed", range(5))
def test_number_map_equals_dict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers, twin = NumberMap(SMALLEST if seed % 2 else SHIPPED), dict[int, int]()
    for _ in range(60):
        new = np.setdiff1d(rng.integers(-200, 200, rng.integers(0, 30)), list(twin))
        rows = rng.integers(0, 1000, new.size)
        numbers.put(new, rows)
        twin |= dict(zip(new.tolist(), rows.tolist(), strict=True))
        old = np.unique(rng.integers(-200, 200, rng.integers(0, 30)))
        assert numbers.pop(old).tolist() == [twin.pop(number, NONE) for number in old.tolist()]
        assert len(numbers) == len(twin)
