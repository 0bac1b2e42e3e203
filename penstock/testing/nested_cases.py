"""Random cases whose streams have arrays, maps and structs, and whose queries pass them on and read parts of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Case, Push, Step
from penstock.testing.fitting import find_fitting_case
from penstock.testing.generate import random_case

NESTED = pa.schema([
    ("list", pa.list_(pa.int64())),
    ("texts", pa.list_(pa.string())),
    ("point", pa.struct([("p", pa.int64()), ("q", pa.struct([("r", pa.string()), ("l", pa.list_(pa.float64()))]))])),
    ("map", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip
WHOLE = ("list", "texts", "point", "map", "point.q", "ARRAY[{0}.x, {0}.y]", "NAMED_STRUCT('a', {0}.s, 'b', {0}.list)")
PARTS = (
    "list[0]", "list[{0}.x]", "ELEMENT_AT({0}.list, -1)", "point.p", "texts[1]", "point.q.r", "point.q.l[0]",
    "CARDINALITY({0}.list)", "ARRAY_CONTAINS({0}.list, {0}.y)",
)  # fmt: skip
MAP_PARTS = ("map['a']", "ELEMENT_AT({0}.map, {0}.s)", "SIZE({0}.map)")


def random_nested_case(seed: int, *, rows: int = 12, limit: int = 1200, **knobs: Any) -> Case:
    """A case whose streams have the columns `NESTED`; other knobs are those of `random_case`."""

    def draw(rng: random.Random, number: int, rows: int) -> Case:
        base = random_case(number, sources=2, rows=rows, tables=False, limit=None, **knobs)
        streams = tuple(_extend_stream(stream) for stream in base.declarations)
        steps = tuple(_extend_step(rng, step) for step in base.steps)
        return replace(base, declarations=streams, steps=steps, query=NestedWriter(rng, streams).write_query(), plan="")

    return find_fitting_case(seed, "nested", draw, rows=rows, limit=limit)


def _extend_stream(stream: Stream) -> Stream:
    return replace(stream, schema=pa.schema([*stream.schema, *NESTED]))


def _extend_step(rng: random.Random, step: Step) -> Step:
    if not isinstance(step, Push):
        return step
    batches = {}
    for name, batch in step.batches.items():
        extended = batch
        for field in NESTED:
            values = [_draw(rng, field.type) for _ in range(batch.num_rows)]
            extended = extended.append_column(field, pa.array(values, field.type))
        batches[name] = extended
    return Push(batches)


def _draw(rng: random.Random, kind: pa.DataType) -> Any:
    if rng.random() < 0.15:
        return None
    if pt.is_list(kind):
        return [_draw(rng, kind.value_type) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if pt.is_map(kind):
        return [(key, _draw(rng, kind.item_type)) for key in rng.sample("abk", rng.randint(0, 3))]
    if pt.is_struct(kind):
        return {field.name: _draw(rng, field.type) for field in kind}
    if pt.is_string(kind):
        return rng.choice(("", "a", "k1", "é" * 9))
    return rng.randint(0, 3) if pt.is_integer(kind) else rng.choice((0.5, 1.0, -2.0))


class NestedWriter:
    """Writes query texts over streams with nested columns."""

    def __init__(self, rng: random.Random, streams: tuple[Stream, ...]) -> None:
        self.rng = rng
        self.left, self.right = rng.choice(streams), rng.choice(streams)
        self.parts = (*PARTS, *MAP_PARTS) if rng.random() < 0.4 else PARTS

    def write_query(self) -> str:
        how = self.rng.choice(("", "", " EMIT CHANGES", " EMIT CHANGES", "DSTREAM", "RSTREAM"))
        text = self.rng.choice(
            (
                self._write_join,
                self._write_join,
                self._write_outer_join,
                self._write_groups,
                self._write_frames,
                self._write_subquery,
                self._write_union,
                self._write_exists,
                self._write_windows,
            )
        )()
        return f"{how} ({text})" if how.endswith("STREAM") else text + how

    def _write_part(self, alias: str) -> str:
        part = self.rng.choice(self.parts)
        return part.format(alias) if part[0].isupper() else f"{alias}.{part.format(alias)}"

    def _write_whole(self, alias: str) -> str:
        whole = self.rng.choice(WHOLE)
        return whole.format(alias) if whole[0].isupper() else f"{alias}.{whole}"

    def _write_items(self, *aliases: str) -> str:
        items = [f"{aliases[0]}.id"]
        for alias in aliases:
            items += [self._write_whole(alias) for _ in range(self.rng.randint(1, 2))]
            items += [self._write_part(alias) for _ in range(self.rng.randint(0, 2))]
        return ", ".join(f"{item} AS c{place}" for place, item in enumerate(items))

    def _write_source(self, stream: Stream, alias: str) -> str:
        unit = " SECONDS" if pt.is_timestamp(stream.time_type) else ""
        windows = ("[NOW]", "[ROWS 3]", "[PARTITION BY x ROWS 1]", *(f"[RANGE {n}{unit}]" for n in (2, 5, 9)), "")
        return f"{stream.name} {self.rng.choice(windows)} AS {alias}"

    def _write_where(self, alias: str) -> str:
        tests = (
            "",
            "",
            "{0}.list[0] > 0",
            "{0}.point.q IS NOT NULL",
            "ARRAY_CONTAINS({0}.list, 1)",
            "{0}.texts IS NULL",
        )
        test = self.rng.choice(tests)
        return f" WHERE {test.format(alias)}" if test else ""

    def _write_condition(self) -> str:
        return self.rng.choice(
            ("a.x = b.x", "a.x = b.y", "a.list[0] = b.x", "a.point.p = b.point.p", "a.texts[0] = b.point.q.r")
        )

    def _write_join(self) -> str:
        sources = f"{self._write_source(self.left, 'a')} JOIN {self._write_source(self.right, 'b')}"
        return (
            f"SELECT {self._write_items('a', 'b')} FROM {sources} ON {self._write_condition()}{self._write_where('a')}"
        )

    def _write_outer_join(self) -> str:
        kind = self.rng.choice(("LEFT", "RIGHT", "FULL"))
        sources = f"{self._write_source(self.left, 'a')} {kind} JOIN {self._write_source(self.right, 'b')}"
        return f"SELECT {self._write_items('a', 'b')} FROM {sources} ON {self._write_condition()}"

    def _write_groups(self) -> str:
        key, value = self._write_part("a"), self._write_part("a")
        calls = f"COUNT(*) AS n, COUNT({self._write_whole('a')}) AS m, MAX({value}) AS v"
        return f"SELECT {key} AS k, {calls} FROM {self._write_source(self.left, 'a')} GROUP BY {key}"

    def _write_frames(self) -> str:
        over = f"OVER (PARTITION BY {self._write_part('a')} ORDER BY a.{self.left.time}"
        call = self.rng.choice(
            (
                f"LAG({self._write_whole('a')}) {over})",
                f"LEAD({self._write_whole('a')}, 2) {over})",
                f"FIRST_VALUE({self._write_whole('a')}) {over} ROWS 2 PRECEDING)",
                f"LAST_VALUE({self._write_whole('a')}) {over} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
            )
        )
        return f"SELECT {self._write_items('a')}, {call} AS f FROM {self.left.name} AS a{self._write_where('a')}"

    def _write_subquery(self) -> str:
        inner = f"SELECT a.x AS x, {self._write_whole('a')} AS w, {self._write_part('a')} AS v"
        rows = f"({inner} FROM {self._write_source(self.left, 'a')}{self._write_where('a')}) AS t"
        return f"SELECT t.x, t.w, t.v, b.list FROM {rows} JOIN {self._write_source(self.right, 'b')} ON t.x = b.x"

    def _write_union(self) -> str:
        whole = self.rng.choice(("list", "point", "map", "ARRAY[{0}.x]"))
        sides = []
        for stream, alias in ((self.left, "a"), (self.right, "b")):
            item = whole.format(alias) if whole[0].isupper() else f"{alias}.{whole}"
            sides.append(f"SELECT {item} AS w FROM {self._write_source(stream, alias)}{self._write_where(alias)}")
        return " UNION ALL ".join(sides)

    def _write_exists(self) -> str:
        inner = f"SELECT 1 AS one FROM {self._write_source(self.right, 'b')} WHERE a.x = b.list[0]"
        how = self.rng.choice(("EXISTS", "NOT EXISTS"))
        return f"SELECT {self._write_items('a')} FROM {self._write_source(self.left, 'a')} WHERE {how} ({inner})"

    def _write_windows(self) -> str:
        size = "INTERVAL '4' SECONDS" if pt.is_timestamp(self.left.time_type) else "4"
        rows = f"{self.rng.choice(('TUMBLE', 'SESSION'))}({self.left.name}, {self.left.time}, {size}) AS a"
        return f"SELECT window_start, {self._write_items('a')} FROM {rows}"
