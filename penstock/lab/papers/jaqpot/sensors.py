"""Readings like those of the sensors in the Intel Berkeley Research Lab: a seeded generator, and a loader.

54 motes have a reading about every 31 seconds: temperature, humidity, light, voltage. The generator has the schema and
the timing of the original (epochs that all motes share, lost readings, a drift by time of day) and a share of bad
readings: wrong temperatures from low batteries, missing fields, and motes that do not exist.

The loader reads the original text file: one reading per line with date, time, epoch, mote, temperature, humidity,
light and voltage, separated by blanks. Lines may lack fields at their end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SCHEMA = pa.schema([
    ("ts", pa.timestamp("us")),
    ("epoch", pa.int64()),
    ("moteid", pa.int64()),
    ("temperature", pa.float64()),
    ("humidity", pa.float64()),
    ("light", pa.float64()),
    ("voltage", pa.float64()),
])  # fmt: skip
MOTES = 54
PERIOD = 31.0
_START = np.datetime64("2004-02-28T00:00:00", "us")
_DAY = 86_400.0


@dataclass(frozen=True)
class SensorLab:
    """The parameters of generated readings. `gaps` is the share of lost readings, `dirt` the share of bad ones."""

    seed: int = 1
    motes: int = MOTES
    period: float = PERIOD
    gaps: float = 0.2
    dirt: float = 0.02

    def generate_readings(self, seconds: float) -> pa.Table:
        """The readings of the first seconds, sorted by time."""
        rng = np.random.default_rng(self.seed)
        epochs = max(1, round(seconds / self.period))
        epoch, mote = (part.ravel() for part in np.meshgrid(np.arange(epochs), np.arange(1, self.motes + 1)))
        kept = rng.random(epoch.size) >= self.gaps
        epoch, mote = epoch[kept], mote[kept]
        at = (epoch + rng.uniform(0, 1, epoch.size)) * self.period
        order = np.argsort(at, kind="stable")
        epoch, mote, at = epoch[order], mote[order], at[order]
        return self._add_dirt(rng, self._generate_clean(rng, epoch, mote, at))

    def _generate_clean(
        self, rng: np.random.Generator, epoch: NDArray[np.int64], mote: NDArray[np.int64], at: NDArray[np.float64]
    ) -> pa.Table:
        """Temperature depends on the time of day and the mote; humidity falls and voltage rises with it."""
        phase = 2 * np.pi * (at / _DAY - 0.35)
        place = np.sin(1.7 * mote)
        temperature = 21 + 3 * np.sin(phase) + 1.5 * place + rng.normal(0, 0.3, at.size)
        humidity = 40 - 1.8 * (temperature - 21) + 2 * np.cos(2.3 * mote) + rng.normal(0, 0.5, at.size)
        light = np.maximum(0, 400 * np.sin(phase) + 120 * (1 + place)) * rng.uniform(0.9, 1.1, at.size)
        voltage = 2.75 - 0.012 * at / _DAY + 0.004 * (temperature - 21) + rng.normal(0, 0.004, at.size)
        times = _START + (at * 1e6).astype("timedelta64[us]")
        return pa.table([times, epoch, mote, temperature, humidity, light, voltage], schema=SCHEMA)

    def _add_dirt(self, rng: np.random.Generator, readings: pa.Table) -> pa.Table:
        """Replace some readings; a third each has a low battery, missing fields, or a mote that does not exist."""
        rows = readings.num_rows
        kind = np.where(rng.random(rows) < self.dirt, rng.integers(1, 4, rows), 0)
        columns = {name: readings.column(name).to_numpy() for name in ("moteid", "temperature", "humidity", "voltage")}
        low_battery = kind == 1
        columns["temperature"] = np.where(low_battery, 122.153, columns["temperature"])
        columns["humidity"] = np.where(low_battery, -4.0, columns["humidity"])
        columns["voltage"] = np.where(low_battery, 2.0, columns["voltage"])
        columns["moteid"] = np.where(kind == 3, rng.integers(1000, 65_536, rows), columns["moteid"])
        for name, column in columns.items():
            missing = kind == 2 if name in ("humidity", "voltage") else np.zeros(rows, np.bool_)
            place = readings.schema.get_field_index(name)
            readings = readings.set_column(place, SCHEMA.field(name), pa.array(column, mask=missing))
        return readings


def clean_readings(readings: pa.Table, motes: int = MOTES) -> pa.Table:
    """Drop readings with a missing, negative or impossible value, and those of a mote that does not exist."""
    good = pc.and_(pc.less_equal(readings.column("moteid"), motes), pc.less(readings.column("temperature"), 100))
    for name in ("moteid", "temperature", "humidity", "light", "voltage"):
        good = pc.and_(good, pc.greater_equal(readings.column(name), 0))
    return readings.filter(pc.fill_null(good, False))


def load_readings(path: str | Path) -> pa.Table:
    """Load the original file, sorted by time. Lines without date, time, epoch or mote are skipped."""
    rows: list[tuple[object, ...]] = []
    with Path(path).open() as lines:
        for line in lines:
            fields = line.split()
            if len(fields) >= 4:
                moment = np.datetime64(f"{fields[0]}T{fields[1]}", "us")
                values = [float(field) for field in fields[4:8]]
                rows.append((moment, int(fields[2]), int(fields[3]), *values, *[None] * (4 - len(values))))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA).sort_by("ts")


def split_groups(readings: pa.Table, names: str, motes: int = MOTES) -> dict[str, pa.Table]:
    """Divide the readings into groups of neighbouring motes, one stream for each name."""
    each = -(-motes // len(names))
    group = pc.divide(pc.subtract(readings.column("moteid"), 1), each)
    return {name: readings.filter(pc.equal(group, number)) for number, name in enumerate(names)}
