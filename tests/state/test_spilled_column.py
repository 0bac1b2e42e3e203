"""Columns with rows on disk: what is read, and how much of a file is mapped at a time."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.lab.meters import read_status_kib
from penstock.state import SpilledColumn, make_ring_column
from penstock.state.spilled_column import SegmentFile

ROWS, WIDTH = 20_000, 1000


def make_file(folder: Path) -> SegmentFile:
    """About 20 MB: 305 blocks of 64 KiB."""
    return SegmentFile(folder / "0.arrow", pa.array([f"{number:0{WIDTH}d}" for number in range(ROWS)]))


def name_files(folder: Path) -> Callable[[], Path]:
    numbers = count()
    return lambda: folder / f"{next(numbers)}.arrow"


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_read_in_any_order(seed: int, tmp_path: Path) -> None:
    """From three files and from memory, each row any number of times; some rows were renumbered."""
    rng, new_file = np.random.default_rng(seed), name_files(tmp_path)
    column = SpilledColumn.wrap(make_ring_column(pa.string(), 64), pa.string(), 64)
    values = [f"row {number}" * (number % 7) for number in range(60)]
    column.append(0, 0, pa.array(values))
    for until in (13, 30, 41):
        segment = column.prepare(0, until, new_file)
        assert segment is not None
        column.adopt(segment, 60)
    kept = np.flatnonzero(rng.random(60) < 0.8)
    column = column.move(kept, 60)
    for size in (1, 5, 200):
        places = rng.integers(0, kept.size, size)
        assert column.take(places + 60).to_pylist() == [values[kept[place]] for place in places]


def test_little_of_a_file_is_read_at_a_time(tmp_path: Path) -> None:
    file = make_file(tmp_path)
    spread, near = np.arange(0, ROWS, 10), np.arange(3000, 5000)
    for places, least, most in ((spread, 15, 40), (near, 1, 4), (spread[:1], 1, 1)):
        parts = file.take(places)
        assert least <= len(parts) <= most
        assert pa.concat_arrays(parts).cast(pa.int64()).to_pylist() == places.tolist()


def test_one_row_maps_little_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file written at once had pages of 2 MiB in the system's cache, which are mapped as a whole."""
    if read_status_kib("RssFile") is None:
        pytest.skip("the system does not tell which pages are mapped")
    file = make_file(tmp_path)
    file.take(np.array([0]))
    monkeypatch.delattr(mmap, "MADV_DONTNEED")  # pages stay mapped
    before = read_status_kib("RssFile")
    file.take(np.array([ROWS // 2]))
    after = read_status_kib("RssFile")
    assert before is not None
    assert after is not None
    assert after - before < 1024
