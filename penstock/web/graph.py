"""The picture of a query graph: boxes and arcs of a status, restricted to one query or collapsed where they are many.

Pure functions. A box stands for one operator, or for several that were collapsed; its `members` are their places in
the status, so that a reader adds up their figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine import ArcStatus, EngineStatus, OperatorStatus
from penstock.errors import QueryError
from penstock.web.layout import Layout, Size, lay_out


@dataclass(frozen=True)
class PictureLimits:
    """What a picture may have: a page is small and its boxes can be chosen, a file can be large."""

    boxes: int = 60
    """Above this number of operators, those over the same streams are drawn as one box."""
    width: float = 260.0
    """The widest box."""


PAGE = PictureLimits()
FILE = PictureLimits(400, 420.0)
MOST_SINKS = 6
"""An operator with more queries has one box for all of them."""
_CHARACTER = 7.4
_NARROWEST = 120.0
_NARROWEST_WITH_FIGURES = 206.0
"""Figures such as "980 rows, 65 kB, 40 wait" fit into it, and so do two bars with their names."""
_LINE, _PADDING = 16.0, 14.0
_SHORT_KINDS = ("source", "table", "query")
"""Boxes of these kinds have a title and a line; others have one more line for figures, and a line for each input.

An inner join has one more for two bars: how much of it is demanded, and how complete it is."""
_LONGEST_END = 30


@dataclass(frozen=True)
class Box:
    """A box. `members` are places of operators, `queries` names of queries."""

    id: str
    kind: str
    title: str
    members: tuple[int, ...] = ()
    queries: tuple[str, ...] = ()
    count: int = 1
    notes: tuple[str, ...] = ()
    """Its inputs with their windows; for a source, where rows come from; for a query, where its results go."""
    inner: bool = False
    """Whether it is a join below another one, which keeps its rows as a state."""


@dataclass(frozen=True)
class Line:
    """An arc between two boxes."""

    source: str
    target: str
    ets: bool = False


@dataclass(frozen=True)
class GraphPicture:
    """Boxes and lines with their places."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    layout: Layout = field(repr=False)
    sizes: Mapping[str, Size] = field(repr=False)


def build_graph(
    status: EngineStatus,
    query: str | None = None,
    sinks: Mapping[str, str] | None = None,
    *,
    limits: PictureLimits = PAGE,
) -> GraphPicture:
    """The picture of a status, or of one query of it. `sinks` name the sinks of queries.

    On a page boxes of inner joins have room for two bars.
    """
    operators, arcs, names = list(status.operators), list(status.arcs), {each.name: each for each in status.queries}
    if query is not None:
        if query not in names:
            raise QueryError("UNKNOWN_QUERY", f"there is no query {query}", query=query)
        kept = _find_upstream(names[query].operator, arcs)
        operators = [each for each in operators if each.id in kept]
        arcs = [arc for arc in arcs if arc.source in kept and arc.target in kept]
        names = {query: names[query]}
    places = {each.id: place for place, each in enumerate(status.operators)}
    owner = {each.id: each.id for each in operators}
    notes = defaultdict[str, list[str]](list)
    for arc in arcs:
        notes[arc.target] += [arc.label] if arc.label else []
    read = {each.name: f"← {shorten_end(each.source)}" for each in status.streams if each.source is not None}
    notes |= {each.id: [read[each.title]] for each in operators if each.kind == "source" and each.title in read}
    boxes = {
        each.id: Box(
            each.id,
            each.kind,
            each.title,
            (places[each.id],),
            notes=tuple(notes[each.id]),
            inner=limits is PAGE and each.kind == "join" and each.scope not in (None, each.id),
        )
        for each in operators
    }
    if len(operators) > limits.boxes:
        boxes, owner = _collapse(operators, arcs, places)
    lines: dict[tuple[str, str], Line] = {}
    for arc in arcs:
        ends = owner[arc.source], owner[arc.target]
        if ends[0] != ends[1]:
            lines.setdefault(ends, Line(*ends, arc.ets))
    drawn = list(lines.values())
    readers = defaultdict[str, list[str]](list)
    for each in names.values():
        if not each.derived:
            readers[owner[each.operator]].append(each.name)
    for box, found in readers.items():
        for sink in _make_sinks(box, found, sinks or {}):
            boxes[sink.id] = sink
            drawn.append(Line(box, sink.id))
    sizes = {box.id: _measure(box, limits.width) for box in boxes.values()}
    layout = lay_out(sizes, [(line.source, line.target) for line in drawn])
    return GraphPicture(tuple(boxes.values()), tuple(drawn), layout, sizes)


def _make_sinks(box: str, queries: Sequence[str], sinks: Mapping[str, str]) -> Iterable[Box]:
    if len(queries) > MOST_SINKS:
        yield Box(f"queries of {box}", "query", f"{len(queries):,} queries", queries=tuple(queries), count=len(queries))
        return
    for name in queries:
        notes = (f"→ {shorten_end(sinks[name])}",) if name in sinks else ()
        yield Box(f"query {name}", "query", name, queries=(name,), notes=notes)


def shorten_end(text: str) -> str:
    """Where rows come from or go, with the last part of a long path: "parquet files in …/alarms"."""
    if len(text) <= _LONGEST_END or "/" not in text:
        return text
    before = text[: text.index("/")].rpartition(" ")
    return f"{before[0]}{before[1]}…/{text.rstrip('/').rpartition('/')[2]}"


def _measure(box: Box, widest: float) -> Size:
    longest = max(len(box.title), *(len(note) - 2 for note in (*box.notes, "")))
    is_short = box.kind in _SHORT_KINDS
    narrowest = _NARROWEST if is_short else _NARROWEST_WITH_FIGURES
    width = min(widest, max(narrowest, longest * _CHARACTER + 24))
    lines = (2 if is_short else 3 + box.inner) + len(box.notes)
    return Size(width, lines * _LINE + _PADDING)


def _find_upstream(last: str, arcs: Sequence[ArcStatus]) -> set[str]:
    before = defaultdict[str, list[str]](list)
    for arc in arcs:
        before[arc.target].append(arc.source)
    found, todo = {last}, [last]
    while todo:
        for source in before[todo.pop()]:
            if source not in found:
                found.add(source)
                todo.append(source)
    return found


def _collapse(
    operators: Sequence[OperatorStatus], arcs: Sequence[ArcStatus], places: Mapping[str, int]
) -> tuple[dict[str, Box], dict[str, str]]:
    """One box for all connected operators over the same sources; sources and tables stay."""
    inner = {each.id for each in operators if each.kind not in ("source", "table")}
    leader = {each.id: each.id for each in operators}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for arc in arcs:
        if arc.source in inner and arc.target in inner:
            leader[find(arc.source)] = find(arc.target)
    reads = defaultdict[str, set[str]](set)
    for arc in arcs:
        if arc.target in inner and arc.source not in inner:
            reads[find(arc.target)].add(arc.source)
    groups = defaultdict[tuple[str, ...], list[OperatorStatus]](list)
    for each in operators:
        if each.id in inner:
            groups[tuple(sorted(reads[find(each.id)]))].append(each)
    boxes = {
        each.id: Box(each.id, each.kind, each.title, (places[each.id],)) for each in operators if each.id not in inner
    }
    owner = {name: name for name in boxes}
    for sources, found in groups.items():
        name = "group " + ", ".join(sources)
        title = f"{len(found):,} operators" if len(found) > 1 else found[0].title
        kind = found[0].kind if len(found) == 1 else "group"
        boxes[name] = Box(name, kind, title, tuple(places[each.id] for each in found), count=len(found))
        owner.update({each.id: name for each in found})
    return boxes, owner
