"""Plans as text and as mermaid diagrams: what a leaf keeps, what a node matches on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from penstock.cql.bound import Window
from penstock.cql.catalog import Stream
from penstock.expr.sql import to_sql
from penstock.plan.physical import JoinPlan, LeafPlan, NodePlan, Part

_UNITS = (("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000), ("seconds", 1_000_000),
          ("milliseconds", 1_000), ("microseconds", 1))  # fmt: skip


@dataclass(frozen=True)
class Description:
    """A node of the picture: a title, its properties and its children."""

    title: str
    properties: tuple[tuple[str, str], ...]
    children: tuple[Description, ...] = ()


def describe(
    plan: JoinPlan, notes: Mapping[str, str], allowances: Mapping[str, str] = MappingProxyType({})
) -> Description:
    """The picture of a plan. `notes` and `allowances` add a line to the parts they name, by their tree text."""
    return _describe(plan.root, plan, notes, allowances)


def _describe(part: Part, plan: JoinPlan, notes: Mapping[str, str], allowances: Mapping[str, str]) -> Description:
    name = str(part.tree)
    known = (("state", notes), ("probes", allowances))
    note = tuple((what, texts[name]) for what, texts in known if name in texts)
    if isinstance(part, LeafPlan):
        return Description(_leaf_title(part), (*_leaf_properties(part), *note))
    equal = " and ".join(_equality(id_, part, plan) for id_ in part.key)
    where = " AND ".join(to_sql(expr) for expr in part.residuals)
    title = f"join {part.tree}"
    properties = (("on", equal or "nothing (cross product)"), *((("where", where),) if where else ()))
    children = tuple(_describe(child, plan, notes, allowances) for child in (part.left, part.right))
    return Description(title, (*properties, *note), children)


def _leaf_title(leaf: LeafPlan) -> str:
    relation = leaf.source.relation
    name = relation.name if relation.name == leaf.alias else f"{relation.name} AS {leaf.alias}"
    if not isinstance(relation, Stream) or leaf.source.window is None:
        return f"table {name}"
    return f"stream {name} {window_text(leaf.source.window, relation.time_type)}"


def _leaf_properties(leaf: LeafPlan) -> Iterator[tuple[str, str]]:
    if leaf.filters:
        yield "filter", " AND ".join(to_sql(expr) for expr in leaf.filters)
    if leaf.columns:
        yield "keeps", ", ".join(leaf.columns)


def _equality(class_id: int, node: NodePlan, plan: JoinPlan) -> str:
    """A class as seen from a node: one term of each side."""
    terms = dict(plan.classes[class_id].terms)
    sides = (next(terms[alias] for alias in side.aliases if alias in terms) for side in (node.left, node.right))
    return " = ".join(to_sql(term) for term in sides)


def window_text(window: Window, time_type: pa.DataType) -> str:
    """A window in CQL."""
    if window.kind in ("now", "unbounded"):
        return f"[{window.kind.upper()}]"
    if window.kind == "rows":
        partition = f"PARTITION BY {', '.join(window.partition)} " if window.partition else ""
        return f"[{partition}ROWS {window.size}]"
    slide = f" SLIDE {duration_text(window.slide, time_type)}" if window.slide is not None else ""
    return f"[RANGE {duration_text(window.size or 0, time_type)}{slide}]"


def duration_text(amount: int, time_type: pa.DataType) -> str:
    """A duration in the largest unit that divides it; plain ticks for integer time."""
    if not pa.types.is_timestamp(time_type):
        return str(amount)
    unit, size = next((unit, size) for unit, size in _UNITS if amount % size == 0)
    return f"{amount // size} {unit if amount != size else unit[:-1]}"


def as_text(node: Description) -> str:
    return "\n".join(_lines(node, "", ""))


def _lines(node: Description, first: str, rest: str) -> Iterator[str]:
    yield first + node.title
    inner = rest + ("│  " if node.children else "   ")
    for name, value in node.properties:
        yield f"{inner}{name}: {value}"
    for child in node.children:
        last = child is node.children[-1]
        yield from _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def as_mermaid(node: Description) -> str:
    lines = ["flowchart BT"]
    _mermaid(node, "n", lines)
    return "\n".join(lines)


def _mermaid(node: Description, id_: str, lines: list[str]) -> None:
    text = "<br/>".join([node.title, *(f"{name}: {value}" for name, value in node.properties)])
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<br/>", "\0").replace("<", "&lt;")
    lines.append(f'    {id_}["{escaped.replace(">", "&gt;").replace(chr(0), "<br/>")}"]')
    for place, child in enumerate(node.children):
        _mermaid(child, f"{id_}{place}", lines)
        lines.append(f"    {id_}{place} --> {id_}")
