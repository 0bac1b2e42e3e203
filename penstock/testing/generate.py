"""Random cases from a seed: streams, tables, a query, a plan and the steps that feed it.

The same seed and knobs give the same case on every machine. A knob that is None is drawn from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.arrivals import COLUMN_TYPES, Arrival, ArrivalTiming, ValueGenerator, build_steps, draw_arrivals
from penstock.testing.case import Case
from penstock.testing.combinations import TooManyRows
from penstock.testing.oracle import expected
from penstock.testing.query_text import SHAPES, UNITS, WINDOWS, FromItem, random_plan, random_text, random_window

NAMES = ("A", "B", "C", "D", "E", "F")
EMITS = ("", "", "", "", "ISTREAM", "DSTREAM", "DSTREAM", "RSTREAM")
ATTEMPTS = 16
VARIATIONS = 3  # attempts to avoid an empty answer
NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01 in microseconds


@dataclass(frozen=True)
class Knobs:
    """The limits and features of a case. None: drawn from the seed."""

    sources: int | None = None  # FROM items, 1 to 6
    shape: str | Sequence[str] | None = None  # one or some of SHAPES
    windows: Sequence[str] | None = None  # the kinds allowed, of WINDOWS
    emit: str | None = None  # "" (the default, ISTREAM), "ISTREAM", "DSTREAM" or "RSTREAM"
    rows: int = 40  # the largest number of rows of a stream
    full: bool = False  # every stream has all of its rows; otherwise some have few or none
    domain: int | None = None  # distinct values of each join column
    span: int | None = None  # the longest RANGE, in ticks
    nulls: float | None = None  # the share of NULLs
    offset: int | None = None  # added to 64-bit integers: negative, or large enough for overflows
    timestamps: bool | None = None  # timestamp or integer time columns
    late: bool | None = None  # some rows arrive late
    tables: bool | None = None  # static tables among the sources
    limit: int | None = 3000  # the largest number of rows of the expected answer; None: not checked


def random_case(seed: int, **knobs: Any) -> Case:
    """A case from a seed; `knobs` are the fields of `Knobs`.

    >>> case = random_case(7, sources=3, shape="chain")
    >>> case.query == random_case(7, sources=3, shape="chain").query
    True
    """
    chosen, variation = Knobs(**knobs), 0
    for _ in range(ATTEMPTS):
        case = _CaseGenerator(seed, chosen, variation).build_case()
        if chosen.limit is None:
            return case
        try:
            answer = expected(case.query, case.accepted, case.tables, case.times, limit=chosen.limit)
        except TooManyRows:
            chosen = replace(chosen, rows=max(1, chosen.rows * 2 // 3))
        else:
            if answer.num_rows or variation == VARIATIONS:
                vars(case)["expected"] = answer  # fills the cached property
                return case
            variation += 1
    raise ValueError(f"seed {seed}: the answer stays above {chosen.limit} rows after {ATTEMPTS} attempts")


def another_query(case: Case, seed: int) -> str:
    """The text of another query over the streams of a generated case, with one to three sources."""
    rng = random.Random(f"penstock another {seed}")
    streams = rng.choices(case.declarations, k=rng.randint(1, 3))
    unit = "SECONDS" if pt.is_timestamp(streams[0].time_type) else None
    items = [
        FromItem(alias, stream.name, stream.time, random_window(rng, rng.choice(("range", "rows", "now")), 4, unit))
        for alias, stream in zip(("P", "Q", "R"), streams, strict=False)
    ]
    return random_text(rng, items, rng.choice(("shared", "chain")), "", None)


class _CaseGenerator:
    """Builds one case. Query and data have separate generators, so that the query does not depend on the rows."""

    def __init__(self, seed: int, knobs: Knobs, variation: int) -> None:
        self.seed, self.knobs, self.name = seed, knobs, f"penstock {seed}.{variation}"
        self.rng = random.Random(self.name)
        rng = self.rng
        self.count = knobs.sources or rng.choice((1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6))
        shapes = (knobs.shape,) if isinstance(knobs.shape, str) else knobs.shape or SHAPES
        self.shape = rng.choice([s for s in shapes if s != "cross" or self.count <= 3] or SHAPES[:6])
        timestamps = rng.random() < 0.5 if knobs.timestamps is None else knobs.timestamps
        self.unit = rng.choice(list(UNITS)) if timestamps else None
        tick = 1 if self.unit is None else max(UNITS[self.unit], 1_000_000)
        late = (rng.random() < 0.1) if knobs.late is None else knobs.late
        start = rng.choice((0, 100, -7)) if self.unit is None else NEW_YEAR
        self.timing = ArrivalTiming(tick, start, 0.15 if late else 0.0, rng.choice((0.0, 0.0, 0.0, 0.05)))
        self.domain = knobs.domain or rng.choice((1, 2, 3, 4, 6, 10, 30) if self.count < 4 else (2, 2, 3, 4))
        nulls = rng.choice((0.0, 0.0, 0.05, 0.2)) if knobs.nulls is None else knobs.nulls
        offset = rng.choice((0, 0, 0, 0, 0, 0, 0, 0, -1, -2, 2**62)) if knobs.offset is None else knobs.offset
        self.values = ValueGenerator(self.domain, nulls, offset, rng.choice((0.0, 0.1)))

    def build_case(self) -> Case:
        items = self.draw_sources()
        text = self.draw_query(items)
        plan = random_plan(self.rng, [item.alias for item in items])
        streams = self.draw_streams(items)
        data = random.Random(f"{self.name} data")
        tables = {item.relation: self.draw_table(data) for item in items if item.time is None}
        flow = {stream.name: self.draw_flow(data, stream) for stream in streams}
        return Case(self.seed, streams, tables, text, plan, build_steps(data, streams, flow, self.timing))

    def draw_sources(self) -> list[FromItem]:
        """The FROM items: mostly one stream each, sometimes the same stream twice or a static table."""
        rng, found = self.rng, list[FromItem]()
        tables = rng.random() < 0.2 if self.knobs.tables is None else self.knobs.tables
        again = rng.choice((0.0, 0.0, 0.0, 0.3, 0.6))
        time = rng.choice(("ts", "ts", "at", "clock"))
        for i in range(self.count):
            alias = NAMES[i]
            known = [item for item in found if item.time is not None]
            if known and tables and rng.random() < 0.4:
                found.append(FromItem(alias, f"t{i}", None))
            elif known and rng.random() < again:
                found.append(FromItem(alias, rng.choice(known).relation, time))
            else:
                found.append(FromItem(alias, f"s{i}", time))
        names = [item.relation for item in found]
        plain = rng.random() < 0.3  # without aliases if possible
        return [
            replace(item, alias=item.relation) if plain and names.count(item.relation) == 1 else item for item in found
        ]

    def draw_query(self, items: list[FromItem]) -> str:
        """The text of the query; draws the window of every stream."""
        rng = self.rng
        span = self.knobs.span or max(2, rng.choice((5, 10, 20, self.knobs.rows)))
        kinds = self.knobs.windows or WINDOWS
        weights = [{"range": 5 + self.count, "rows": 2, "partition": 2}.get(kind, 1) for kind in kinds]
        shorthand = "range" in kinds and rng.random() < 0.1
        for i, item in enumerate(items):
            if item.time is not None and not shorthand:
                kind = rng.choices(kinds, weights)[0]
                items[i] = replace(item, window=random_window(rng, kind, span, self.unit))
        emit = rng.choice(EMITS) if self.knobs.emit is None else self.knobs.emit
        return random_text(rng, items, self.shape, emit, (span, self.unit) if shorthand else None)

    def draw_streams(self, items: list[FromItem]) -> tuple[Stream, ...]:
        rng, found = self.rng, dict[str, Stream]()
        for item in items:
            if item.time is not None and item.relation not in found:
                columns = {**COLUMN_TYPES, item.time: pa.int64() if self.unit is None else pa.timestamp("us")}
                order = rng.sample(list(columns), len(columns))
                lateness = self.timing.tick * rng.choice((0, 0, 1, 3, 10))
                schema = pa.schema([(name, columns[name]) for name in order])
                found[item.relation] = Stream(item.relation, schema, item.time, lateness)
        return tuple(rng.sample(list(found.values()), len(found)))

    def draw_flow(self, rng: random.Random, stream: Stream) -> list[Arrival]:
        most = self.knobs.rows
        count = most if self.knobs.full else rng.choices((0, rng.randint(0, most), most), (1, 9, 20))[0]
        rows = self.values.draw_rows(rng, [name for name in stream.schema.names if name != stream.time], count)
        return draw_arrivals(rng, stream, rows, self.timing)

    def draw_table(self, rng: random.Random) -> pa.Table:
        rows = self.values.draw_rows(rng, list(COLUMN_TYPES), rng.choice((0, 1, 2 * self.domain, 10)))
        return pa.Table.from_pylist(rows, schema=pa.schema(list(COLUMN_TYPES.items())))
