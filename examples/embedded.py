"""Watch a cold store in this process: two streams, a query added while data flows, and a restart.

Run it with: python examples/embedded.py
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pyarrow as pa

import penstock as ps

START = datetime(2026, 3, 1, 8)
TIME = pa.timestamp("us")


def make_engine() -> ps.Engine:
    eng = ps.Engine()
    eng.stream("temperature", {"ts": "timestamp", "room": "int", "celsius": "double"}, time="ts")
    eng.stream("reader", {"ts": "timestamp", "room": "int", "tag": "string"}, time="ts")
    eng.query(
        "warm_goods",
        """SELECT r.tag, r.room, t.celsius
           FROM reader [RANGE 5 MINUTES] AS r, temperature [RANGE 30 SECONDS] AS t
           WHERE r.room = t.room AND t.celsius > 8""",
    )
    return eng


def make_minute(minute: int) -> dict[str, pa.Table]:
    """The rows of one minute: a temperature per room every 30 seconds, and one tag that was read.

    Room 1 warms up by two degrees a minute.
    """
    begin = START + timedelta(minutes=minute)
    times = [begin, begin, begin + timedelta(seconds=30), begin + timedelta(seconds=30)]
    celsius = [4.0 + 2 * minute, 5.0, 4.5 + 2 * minute, 5.5]
    temperature = {"ts": pa.array(times, TIME), "room": pa.array([1, 2, 1, 2], pa.int32()), "celsius": celsius}
    reader = {
        "ts": pa.array([begin + timedelta(seconds=10)], TIME),
        "room": pa.array([1 + minute % 2], pa.int32()),
        "tag": [f"box-{minute}"],
    }
    return {"temperature": pa.table(temperature), "reader": pa.table(reader)}


def show(results: Mapping[str, pa.Table]) -> None:
    for name, table in results.items():
        for row in table.to_pylist():
            time = row.pop("_ts")
            print(f"{time:%H:%M:%S}  {name:<11}", *(f"{column}={value}" for column, value in row.items()))


def main() -> None:
    eng = make_engine()
    for minute in range(4):
        show(eng.push(make_minute(minute)))

    print("-- from now on also: the mean temperature of each room, every minute")
    eng.query(
        "climate",
        "SELECT room, AVG(celsius) AS mean FROM temperature [RANGE 1 MINUTES SLIDE 1 MINUTES] GROUP BY room",
    )
    show(eng.push(make_minute(4)))

    print("-- a snapshot continues in another engine")
    eng = ps.Engine.restore(eng.snapshot())
    show(eng.push(make_minute(5)))
    show(eng.flush())


if __name__ == "__main__":
    main()
