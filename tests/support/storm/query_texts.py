"""The query texts of a storm: joins that can be shared, joins of some of the streams, and operators above joins."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from storm.streams import StormScale

PLAIN, OTHER = "plain", "other"


@dataclass(frozen=True)
class QueryText:
    """A query's text and what a run needs to know about it.

    `joins`: the aliases of each join, in the order of the text. `kind`: "plain" is a SELECT of one join, whose rows do
    not depend on other rows. `derives`: it makes a stream of its name; `reads`: the derived streams it reads.
    """

    text: str
    joins: tuple[tuple[str, ...], ...]
    streams: frozenset[str]
    kind: str
    is_derived: bool = False
    reads: frozenset[str] = frozenset()

    @property
    def is_istream(self) -> bool:
        return not self.text.startswith(("DSTREAM", "RSTREAM"))


@dataclass(frozen=True)
class FromItem:
    """One FROM item."""

    alias: str
    stream: str
    window: str

    @property
    def text(self) -> str:
        return f"{self.stream}{self.window} AS {self.alias}"


class QueryWriter:
    """Writes texts over the streams of one storm. Queries of its family share a join if they can."""

    def __init__(
        self, rng: random.Random, names: Sequence[str], scale: StormScale, *, table: bool, sharing: bool = False
    ) -> None:
        """`sharing`: all queries are joins over the same streams or some of them, often with the same ROWS windows."""
        self.rng, self.names, self.scale = rng, list(names), scale
        self.has_table, self.sharing = table and not (sharing and rng.random() < 0.8), sharing
        self.is_chain = rng.random() < 0.3
        counted = rng.choice((0, 0.5, 1)) if sharing else rng.choice((0, 0, 0.5))
        self.row_counted = {name: self._draw_rows_window() for name in names if rng.random() < counted}
        self.shared_streams = self.sample_streams(rng.randint(2, len(names)))
        self.numbers = 0

    def write(self) -> QueryText:
        rng = self.rng
        kinds = ["family"] * 5 + ["join"] * 3
        if not self.sharing:
            kinds += ["group", "slide", "distinct", "union", "except", "sequence"]
        match rng.choice(kinds):
            case "family":
                return self.draw_join(self.shared_streams)
            case "join":
                return self.draw_join(self.sample_streams(rng.randint(1, len(self.names))))
            case "group":
                return self.draw_group(slide=False)
            case "slide":
                return self.draw_group(slide=True)
            case "distinct":
                return self.draw_distinct()
            case "sequence":
                return self.draw_sequence()
            case operator:
                return self.draw_set_operation("UNION ALL" if operator == "union" else "EXCEPT")

    def sample_streams(self, count: int) -> list[str]:
        """Neighbouring streams, each linked to the next."""
        if not self.is_chain:
            return self.rng.sample(self.names, count)
        first = self.rng.randint(0, len(self.names) - count)
        return self.names[first : first + count]

    # ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_rows_window(self) -> str:
        count = self.rng.choice((1, 2, 3, 5))
        if self.rng.random() < 0.5:
            return f" [PARTITION BY {self.rng.choice(('x', 'x', 's', 'x, y'))} ROWS {min(count, 3)}]"
        return f" [ROWS {count * max(1, self.scale.keys // 4)}]"

    def draw_length(self) -> int:
        return max(1, round(self.scale.window * self.rng.choice((0.1, 0.25, 0.5, 0.5, 1, 1))))

    def draw_window(self, stream: str, length: int, *, uniform: bool) -> str:
        if stream in self.row_counted and self.rng.random() < (0.95 if self.sharing else 0.8):
            return self.row_counted[stream]
        if uniform or self.rng.random() < 0.5:
            return f" [RANGE {self.scale.duration(length)}]"
        kinds = ["range"] * 5 + ["now", "rows"] + (["unbounded"] if self.scale.rows < 100 else [])
        match self.rng.choice(kinds):
            case "range":
                return f" [RANGE {self.scale.duration(self.draw_length())}]"
            case "now":
                return " [NOW]"
            case "rows":
                return self._draw_rows_window()
        return " [UNBOUNDED]"

    # ── joins ────────────────────────────────────────────────────────────────────────────────────────────────────

    def draw_items(self, streams: Sequence[str]) -> list[FromItem]:
        rng, length = self.rng, self.draw_length()
        uniform = rng.random() < (0.8 if self.sharing else 0.6)
        spelled = rng.choice(("", "x", "_2"))
        found = []
        for place, stream in enumerate(streams):
            again = str(place) if stream in streams[:place] else ""
            found.append(
                FromItem(f"{stream.lower()}{again}{spelled}", stream, self.draw_window(stream, length, uniform=uniform))
            )
        return found

    def build_links(self, items: Sequence[FromItem]) -> list[str]:
        """Equalities that connect the items."""
        names = [item.alias for item in items]
        if self.is_chain:
            places = [self.names.index(item.stream) for item in items]
            columns = ["xy"[min(a, b) % 2] for a, b in itertools.pairwise(places)]
        else:
            columns = ["x"] * (len(names) - 1)
        return [f"{a}.{c} = {b}.{c}" for a, b, c in zip(names, names[1:], columns, strict=False)]

    def draw_filters(self, names: Sequence[str], chance: float = 0.3) -> list[str]:
        rng = self.rng
        conditions = ("x <> 1", "y > 0", "id % 3 <> 0", "s IN ('one', 'two')", "v IS NOT NULL", "v > 2.5", "y IS NULL")
        return [f"{name}.{rng.choice(conditions)}" for name in names if rng.random() < chance]

    def draw_residuals(self, names: Sequence[str]) -> list[str]:
        rng = self.rng
        if len(names) < 2 or rng.random() < (0.9 if self.sharing else 0.7):
            return []
        a, b = rng.sample(list(names), 2)
        return [rng.choice((f"{a}.ts <= {b}.ts", f"{a}.id % 2 = {b}.id % 2", f"ABS({a}.y - {b}.y) <= 2",
                            f"{a}.v + {b}.v > 3", f"({a}.s = {b}.s OR {a}.y > {b}.y)"))]  # fmt: skip

    def draw_from_where(self, items: Sequence[FromItem]) -> str:
        """FROM and WHERE."""
        rng = self.rng
        names = [item.alias for item in items]
        listed = [item.text for item in items]
        where = [*self.build_links(items), *self.draw_filters(names), *self.draw_residuals(names)]
        if self.has_table and rng.random() < 0.3:
            listed.append("T AS t")
            where.append(f"{rng.choice(names)}.x = t.x")
        rng.shuffle(where)
        rng.shuffle(listed)
        return f"FROM {', '.join(listed)}" + (f" WHERE {' AND '.join(where)}" if where else "")

    def draw_join(self, streams: Sequence[str], emit: str | None = None) -> QueryText:
        rng = self.rng
        if len(streams) == 1 and rng.random() < 0.5:
            streams = [*streams, streams[0]]
        items = self.draw_items(streams)
        clause = self.draw_from_where(items)
        names = [item.alias for item in items]
        shown = [f"{name}.id" for name in names] if rng.random() < 0.8 else []
        shown += rng.sample([f"{n}.{c}" for n in names for c in ("ts", "x", "y", "s", "v")], rng.randint(1, 3))
        if rng.random() < 0.3:
            shown.append(rng.choice((f"{names[0]}.y + {names[-1]}.y", f"COALESCE({names[0]}.s, {names[-1]}.s)",
                                     f"{names[0]}.v * 2 - {names[-1]}.v", f"{names[-1]}.y IS NULL")))  # fmt: skip
        rng.shuffle(shown)
        text = f"SELECT {', '.join(f'{each} AS c{i}' for i, each in enumerate(shown))} {clause}"
        kinds = ["", "", "", "", "", "", "DSTREAM"] + (["RSTREAM"] if self.scale.rows < 200 else [])
        how = rng.choice(kinds) if emit is None else emit
        return self._make_text(f"{how} ({text})" if how else text, [items], PLAIN if how != "RSTREAM" else OTHER)

    def _make_text(self, text: str, selects: Sequence[Sequence[FromItem]], kind: str = OTHER) -> QueryText:
        tables = (" t" if "T AS t" in text else "").split()
        joins = tuple((*(item.alias for item in items), *tables) for items in selects)
        streams = frozenset(item.stream for items in selects for item in items)
        return QueryText(text, joins, streams, kind)

    # ── above joins ──────────────────────────────────────────────────────────────────────────────────────────────

    def draw_few_items(self, most: int) -> list[FromItem]:
        """FROM items for queries that report every change."""
        return self.draw_items(self.sample_streams(self.rng.randint(1, min(most, len(self.names)))))

    def draw_without_table(self, items: Sequence[FromItem]) -> str:
        table, self.has_table = self.has_table, False
        clause = self.draw_from_where(items)
        self.has_table = table
        return clause

    def draw_group(self, *, slide: bool) -> QueryText:
        rng = self.rng
        items = self.draw_few_items(2 if self.scale.rows < 1000 else 1)
        if slide:
            length = self.draw_length()
            times = (
                self.scale.duration(length),
                self.scale.duration(rng.choice((1, 2, max(1, length // 3), length + 1))),
            )
            items[0] = FromItem(items[0].alias, items[0].stream, f" [RANGE {times[0]} SLIDE {times[1]}]")
        first, last = items[0].alias, items[-1].alias
        key = rng.choice((f"{first}.x", f"{first}.s", f"{last}.y", f"{first}.x, {last}.s"))
        calls = ("COUNT(*)", f"SUM({last}.y)", f"MIN({last}.id)", f"MAX({first}.v)", f"AVG({last}.v)", f"SUM({last}.v)",
                 f"COUNT(DISTINCT {last}.s)", f"COUNT({first}.y)", f"MAX({last}.s)")  # fmt: skip
        shown = [*key.split(", "), *rng.sample(calls, rng.randint(1, 3))]
        grouping = f" GROUP BY {key}"
        if rng.random() < 0.15:
            shown, grouping = shown[len(key.split(", ")) :], ""
        having = rng.choice(("", "", "", " HAVING COUNT(*) > 1", f" HAVING MIN({last}.y) < 3"))
        listed = ", ".join(f"{each} AS c{i}" for i, each in enumerate(shown))
        text = f"SELECT {listed} {self.draw_without_table(items)}{grouping}{having}"
        how = rng.choice(("", "", "", "DSTREAM", "RSTREAM" if self.scale.rows < 100 else ""))
        return self._make_text(f"{how} ({text})" if how else text, [items])

    def draw_distinct(self) -> QueryText:
        items = self.draw_few_items(2)
        column = self.rng.choice(("x", "s", "y"))
        shown = f"{items[0].alias}.{column} AS c0, {items[-1].alias}.s AS c1"
        text = f"SELECT DISTINCT {shown} {self.draw_without_table(items)}"
        return self._make_text(text, [items])

    def draw_set_operation(self, operator: str) -> QueryText:
        """UNION ALL or EXCEPT of two or three SELECTs with the same columns."""
        sides, selects = [], []
        for _ in range(self.rng.choice((2, 2, 3))):
            items = self.draw_few_items(2 if self.scale.rows < 1000 else 1)
            word = self.rng.choice(("", "", "DISTINCT "))
            name = items[-1].alias
            sides.append(f"(SELECT {word}{name}.x AS c0, {name}.s AS c1 {self.draw_without_table(items)})")
            selects.append(items)
        return self._make_text(f" {operator} ".join(sides), selects)

    def draw_sequence(self) -> QueryText:
        rng = self.rng
        streams = rng.sample(self.names, rng.randint(2, min(3, len(self.names))))
        length = self.draw_length()
        spans = (f" [RANGE {self.scale.duration(length)}]",) * 3 + (("",) if self.scale.rows < 500 else ())
        items = [FromItem(f"{stream.lower()}q", stream, rng.choice(spans)) for stream in streams]
        names = [item.alias for item in items]
        where = [f"{a}.x = {b}.x" for a, b in itertools.pairwise(names)] + self.draw_filters(names, 0.2)
        if rng.random() < 0.3:
            where.append(f"{names[0]}.y <= {names[-1]}.y")
        mode = rng.choice(("RECENT", "CHRONICLE"))
        shown = ", ".join(f"{name}.id AS c{i}" for i, name in enumerate(names))
        text = f"SELECT {shown} FROM SEQ({', '.join(item.text for item in items)}) MODE {mode}"
        found = self._make_text(f"{text} WHERE {' AND '.join(where)}", [items])
        return QueryText(found.text, (), found.streams, OTHER)

    def draw_derived(self, name: str) -> tuple[QueryText, list[QueryText]]:
        """A derived stream and queries that read it."""
        items = self.draw_items(self.sample_streams(min(2, len(self.names))))
        one, last = items[0].alias, items[-1].alias
        text = f"SELECT {one}.x AS x, {last}.y AS y, {one}.id AS id, {last}.s AS s {self.draw_without_table(items)}"
        made = self._make_text(text, [items], PLAIN)
        made = QueryText(made.text, made.joins, made.streams, PLAIN, is_derived=True)
        length = self.scale.duration(self.draw_length())
        other = self.rng.choice(self.names)
        readers = [
            (f"SELECT d.id AS a, o.id AS b FROM {name} [RANGE {length}] AS d, {other} [RANGE {length}] AS o "
             "WHERE d.x = o.x", (("d", "o"),), {other}, PLAIN),
            (f"SELECT d.x, COUNT(*) AS n, MAX(d.y) AS m FROM {name} [RANGE {length}] AS d GROUP BY d.x", (("d",),),
             set(), OTHER),
            (f"SELECT d.id AS c0, d.s AS c1 FROM {name} [NOW] AS d WHERE d.y > 0", (("d",),), set(), PLAIN),
        ]  # fmt: skip
        chosen = self.rng.sample(readers, self.rng.randint(1, 2))
        return made, [
            QueryText(t, joins, made.streams | own, kind, reads=frozenset({name})) for t, joins, own, kind in chosen
        ]
