"""Random cases with functions over frames: OVER (PARTITION BY ... ORDER BY time ROWS or RANGE ...)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Case
from penstock.testing.fitting import find_fitting_case
from penstock.testing.generate import random_case

KEYS = ("x", "y", "s", "b", "v")
NUMBERS = ("x", "y", "z", "id")
FUNCTIONS = (
    "COUNT", "SUM", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE", "LAG", "LEAD",
)  # fmt: skip


def random_frames_case(seed: int, *, rows: int = 20, limit: int = 1500, **knobs: Any) -> Case:
    """A case whose query has functions over frames; other knobs are those of `random_case`."""

    def draw(rng: random.Random, number: int, rows: int) -> Case:
        base = random_case(number, sources=2, rows=rows, limit=None, **knobs)
        return replace(base, query=FrameWriter(rng, base.declarations, tuple(base.tables)).write_query(), plan="")

    return find_fitting_case(seed, "frames", draw, rows=rows, limit=limit)


class FrameWriter:
    """Writes query texts over the streams and tables of a generated case."""

    def __init__(self, rng: random.Random, streams: Sequence[Stream], tables: Sequence[str]) -> None:
        self.rng, self.tables = rng, tables
        self.stream = rng.choice(streams)
        self.other = rng.choice(streams)
        self.unit = "SECONDS" if pt.is_timestamp(self.stream.time_type) else None
        self.ahead = rng.choice((None, "ROWS", "ROWS", "RANGE"))
        """What frames count that may end behind their row."""
        self.keys: list[str] = []
        """How these are divided, if they count rows."""

    def write_query(self) -> str:
        rng = self.rng
        text = self._write_body()
        how = rng.choice(("", "", "", " EMIT CHANGES", "DSTREAM", "RSTREAM"))
        return f"{how} ({text})" if how.endswith("STREAM") else text + how

    def _write_body(self) -> str:
        rng, drawn = self.rng, self.rng.random()
        if drawn < 0.45:
            return self._write_select(self._write_from(), rng.randint(1, 3))
        inner = self._write_select(self._write_from(), 2, f"{self._time} AS {self.stream.time}, a.x AS k", ())
        if drawn < 0.65:
            test = rng.choice(("f0 > 1", "f1 IS NOT NULL", "k = 1 OR f0 < f1", "f0 IS NULL"))
            return f"SELECT k, f0, f1 FROM ({inner}) AS t WHERE {test}"
        if drawn < 0.8 and not self.ahead:  # over rows that have frames already
            outer = self._write_call("t", ("k", "f0", "f1"), ("k",), ("k", "f1"))
            return f"SELECT k, f0, {outer} AS g FROM ({inner}) AS t"
        if drawn < 0.85:
            return f"SELECT DISTINCT f0, f1 FROM ({inner}) AS t"
        if drawn < 0.9:
            return f"SELECT k, COUNT(*) AS n, MAX(f0) AS m FROM ({inner}) AS t GROUP BY k"
        if drawn < 0.95:
            call = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY f0 DESC)"
            return f"SELECT k, f0 FROM ({inner}) AS t QUALIFY {call} <= 2"
        window = rng.choice(("[NOW]", "[ROWS 2]", f"[RANGE {self._write_amount(3)}]"))
        return f"SELECT t.k, t.f0, o.id FROM ({inner}) AS t JOIN {self.other.name} {window} AS o ON t.k = o.x"

    @property
    def _time(self) -> str:
        return f"a.{self.stream.time}"

    def _write_from(self) -> str:
        """The rows below the frames: a stream, a filtered one, one with a table, or a subquery."""
        rng, name = self.rng, self.stream.name
        where = rng.choice(("", "", " WHERE a.x > 0", " WHERE a.y <> 1", " WHERE a.id % 2 = 0 OR a.x IS NULL"))
        drawn = rng.random()
        if drawn < 0.15 and self.tables:
            return f"{name} AS a JOIN {rng.choice(self.tables)} AS t0 ON a.x = t0.x{where}"
        if drawn < 0.3:
            return f"(SELECT * FROM {name} AS s WHERE s.y >= 0) AS a{where}"
        return f"{name}{rng.choice(('', ' [UNBOUNDED]'))} AS a{where}"

    def _write_select(
        self, source: str, count: int, shown: str = "a.id", more: Sequence[str] = ("a.v", "a.s", "a.d")
    ) -> str:
        rng = self.rng
        numbers = tuple(f"a.{name}" for name in NUMBERS)
        keys = tuple(f"a.{name}" for name in KEYS)
        self.keys = self._draw_keys(keys)
        calls = [self._write_call("a", numbers, keys, (*numbers, *more)) for _ in range(count)]
        items = [f"{self._wrap(call)} AS f{place}" for place, call in enumerate(calls)]
        named = ""
        if rng.random() < 0.2:
            calls.append("COUNT(*) OVER w")
            items.append(f"COUNT(*) OVER w AS f{count}")
            named = f" WINDOW w AS ({self._write_window('a', keys)})"
        number = [call for call in calls if call.startswith(("COUNT", "SUM", "AVG"))]
        qualify = f" QUALIFY {rng.choice(number)} > 1" if number and rng.random() < 0.2 else ""
        return f"SELECT {', '.join([shown, *items])} FROM {source}{named}{qualify}"

    def _wrap(self, call: str) -> str:
        """A call in an expression, if it is a number."""
        if call.startswith(("COUNT", "SUM")) and self.rng.random() < 0.2:
            return self.rng.choice((f"{call} * 2", f"COALESCE({call}, -1)", f"CASE WHEN {call} > 2 THEN 1 ELSE 0 END"))
        return call

    def _write_call(self, alias: str, numbers: Sequence[str], keys: Sequence[str], values: Sequence[str]) -> str:
        rng = self.rng
        number, value = rng.choice(numbers), rng.choice(values)
        kind = rng.choice(FUNCTIONS)
        if kind == "LEAD" and self.ahead != "ROWS":
            kind = "LAG"
        if kind in ("LAG", "LEAD"):
            default = rng.choice(("", "", ", 1", f", 2, {value}", f", {rng.randint(0, 3)}, NULL"))
            by = self._write_partition(self._draw_keys(keys) if kind == "LAG" else self.keys)
            return f"{kind}({value}{default}) OVER ({by}ORDER BY {alias}.{self.stream.time})"
        argument = {
            "COUNT": rng.choice(("*", value, f"DISTINCT {value}")),
            "SUM": number,
            "AVG": number,
            "NTH_VALUE": f"{value}, {rng.randint(1, 3)}",
        }.get(kind, value)
        if kind == "SUM" and rng.random() < 0.2:
            return f"SUM({number}) FILTER (WHERE {number} > 1) OVER ({self._write_window(alias, keys)})"
        return f"{kind}({argument}) OVER ({self._write_window(alias, keys)})"

    def _draw_keys(self, keys: Sequence[str]) -> list[str]:
        return self.rng.sample(list(keys), min(self.rng.choice((0, 1, 1, 1, 2)), len(keys)))

    def _write_partition(self, chosen: Sequence[str]) -> str:
        return f"PARTITION BY {', '.join(chosen)} " if chosen else ""

    def _write_window(self, alias: str, keys: Sequence[str]) -> str:
        time = f"{alias}.{self.stream.time}"
        if self.ahead and self.rng.random() < 0.5:
            chosen = self.keys if self.ahead == "ROWS" else self._draw_keys(keys)
            return f"{self._write_partition(chosen)}ORDER BY {time}{self._write_frame_ahead(self.ahead)}"
        return f"{self._write_partition(self._draw_keys(keys))}ORDER BY {time}{self._write_frame()}"

    def _write_frame_ahead(self, unit: str) -> str:
        """A frame that ends behind its row."""
        rng = self.rng
        end = rng.randint(1, 3)
        start = rng.choice((None, *range(-end, 5)))
        first = "UNBOUNDED PRECEDING" if start is None else self._write_bound(start, unit)
        return f" {unit} BETWEEN {first} AND {self._write_bound(-end, unit)}"

    def _write_bound(self, distance: int, unit: str) -> str:
        """A distance before the row, or, if it is negative, behind it."""
        if not distance:
            return "CURRENT ROW"
        side = "PRECEDING" if distance > 0 else "FOLLOWING"
        if unit == "ROWS" or self.unit is None:
            return f"{abs(distance)} {side}"
        return self.rng.choice(
            (f"INTERVAL '{abs(distance)}' SECOND {side}", f"INTERVAL {abs(distance)} SECONDS {side}")
        )

    def _write_frame(self) -> str:
        rng = self.rng
        unit = rng.choice(("ROWS", "RANGE", "RANGE"))
        end = rng.choice((0, 0, 0, 0, 1, 2))
        start = end + rng.randint(0, 6)
        drawn = rng.random()
        if drawn < 0.15:
            return ""
        if drawn < 0.3:
            return f" {unit} BETWEEN UNBOUNDED PRECEDING AND {self._write_bound(end, unit)}"
        if drawn < 0.4 and start:
            return f" {unit} {self._write_bound(start, unit)}"
        return f" {unit} BETWEEN {self._write_bound(start, unit)} AND {self._write_bound(end, unit)}"

    def _write_amount(self, number: int) -> str:
        return f"{number} {self.unit}" if self.unit else f"{number}"
