"""Readings like those of the Intel lab: the intervals of the generator, and the format of the original data."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from penstock.lab.papers.jaqpot.sensors import (
    MOTES,
    PERIOD,
    SCHEMA,
    SensorLab,
    clean_readings,
    load_readings,
    split_groups,
)

HOUR = 3600


def test_readings_are_seeded() -> None:
    assert SensorLab(seed=4).generate_readings(HOUR).equals(SensorLab(seed=4).generate_readings(HOUR))
    assert not SensorLab(seed=4).generate_readings(HOUR).equals(SensorLab(seed=5).generate_readings(HOUR))


def test_schema_and_interval() -> None:
    readings = SensorLab(gaps=0, dirt=0).generate_readings(HOUR)
    assert readings.schema == SCHEMA
    epochs = round(HOUR / PERIOD)
    assert readings.num_rows == MOTES * epochs
    times = readings.column("ts").to_numpy().astype(np.int64)
    assert (np.diff(times) >= 0).all()
    one = readings.column("moteid").to_numpy() == 7
    assert np.diff(times[one]).mean() / 1e6 == pytest.approx(PERIOD, rel=0.02)
    assert clean_readings(readings).num_rows == readings.num_rows
    humidity, temperature = (readings.column(name).to_numpy() for name in ("humidity", "temperature"))
    assert np.corrcoef(humidity, temperature)[0, 1] < -0.5


def test_missing_and_dirty_readings() -> None:
    readings = SensorLab(gaps=0.3, dirt=0.1).generate_readings(4 * HOUR)
    whole = MOTES * round(4 * HOUR / PERIOD)
    assert readings.num_rows == pytest.approx(0.7 * whole, rel=0.03)
    assert readings.column("humidity").null_count > 0
    assert max(readings.column("moteid").to_pylist()) > MOTES
    assert max(readings.column("temperature").to_pylist()) > 100
    clean = clean_readings(readings)
    assert clean.num_rows == pytest.approx(0.9 * readings.num_rows, rel=0.03)
    assert clean.column("humidity").null_count == 0


ORIGINAL = """\
2004-03-31 03:38:16.5 3 2 122.153 -3.91901 11.04 2.03397
2004-03-31 03:38:15.757551 2 1 19.9884 37.0933 45.08 2.69964
2004-02-28 00:59:16.02785 3 1 19.3024 38.4629 45.08
2004-02-28 01:00

2004-02-28 01:03:16.33393 11 54
"""


def test_load_original_format(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text(ORIGINAL)
    readings = load_readings(path)
    assert readings.schema == SCHEMA
    assert [row["moteid"] for row in readings.to_pylist()] == [1, 54, 1, 2]
    first = readings.to_pylist()[0]
    assert first["ts"] == datetime(2004, 2, 28, 0, 59, 16, 27850)
    assert (first["temperature"], first["voltage"]) == (19.3024, None)
    assert clean_readings(readings).column("epoch").to_pylist() == [2]


def test_load_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("")
    assert load_readings(path).num_rows == 0


def test_groups_partition_motes() -> None:
    readings = clean_readings(SensorLab().generate_readings(HOUR))
    parts = split_groups(readings, "ABCDE")
    assert sum(part.num_rows for part in parts.values()) == readings.num_rows
    assert set(parts["A"].column("moteid").to_pylist()) == set(range(1, 12))
