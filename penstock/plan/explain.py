"""Plans as text and as mermaid diagrams: the columns that a leaf keeps, and the keys of a join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.cql import Source, Stream, Subquery, View
from penstock.expr import to_sql
from penstock.plan.physical import EddyPlan, JoinPlan, LeafPlan, NodePlan, SubPlan

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ExplainNode:
    """A node of the explained plan: a title, properties and children."""

    title: str
    properties: Properties
    children: tuple[ExplainNode, ...] = ()


def describe_join(
    plan: JoinPlan, notes: Mapping[str, Properties], subqueries: Mapping[str, ExplainNode] = MappingProxyType({})
) -> ExplainNode:
    """The plan of a join. `notes` adds properties to nodes, by their tree text; `subqueries` are by alias."""
    return _describe_node(plan.root, plan, notes, subqueries)


def _describe_node(
    part: SubPlan, plan: JoinPlan, notes: Mapping[str, Properties], subqueries: Mapping[str, ExplainNode]
) -> ExplainNode:
    note = notes.get(str(part.tree), ())
    if isinstance(part, LeafPlan):
        below = (subqueries[part.alias],) if part.alias in subqueries else ()
        return ExplainNode(format_source(part.source), (*_list_leaf_properties(part), *note), below)
    where = " AND ".join(to_sql(expr) for expr in part.residuals)
    parts: tuple[SubPlan, ...]
    if isinstance(part, EddyPlan):
        classes = (" = ".join(to_sql(term) for _, term in class_.terms) for class_ in plan.classes)
        equal, title, parts = " and ".join(classes), f"eddy {part.tree}", part.leaves
    else:
        equal = " and ".join(_format_equality(id_, part, plan) for id_ in part.key)
        title, parts = f"join {part.tree}", (part.left, part.right)
    properties = (("on", equal or "nothing (cross product)"), *((("where", where),) if where else ()))
    children = tuple(_describe_node(child, plan, notes, subqueries) for child in parts)
    return ExplainNode(title, (*properties, *note), children)


def format_source(source: Source) -> str:
    """A FROM item: its kind, its name and its window."""
    relation = source.relation
    name = relation.name if relation.name == source.alias else f"{relation.name} AS {source.alias}"
    if isinstance(relation, View):
        return f"view {name}"
    if isinstance(relation, Subquery):
        return f"query {name}"
    if not isinstance(relation, Stream):
        return f"table {name}"
    return f"stream {name} {source.window.text(relation.time_type)}"


def _list_leaf_properties(leaf: LeafPlan) -> Iterator[tuple[str, str]]:
    if leaf.filters:
        yield "filter", " AND ".join(to_sql(expr) for expr in leaf.filters)
    if leaf.columns:
        yield "keeps", ", ".join(leaf.columns)


def _format_equality(class_id: int, node: NodePlan, plan: JoinPlan) -> str:
    """The equality that a node tests for a class: one term of each side."""
    terms = dict(plan.classes[class_id].terms)
    sides = (next(terms[alias] for alias in side.aliases if alias in terms) for side in (node.left, node.right))
    return " = ".join(to_sql(term) for term in sides)


def as_text(node: ExplainNode) -> str:
    return "\n".join(_format_lines(node, "", ""))


def _format_lines(node: ExplainNode, first: str, indent: str) -> Iterator[str]:
    yield first + node.title
    inner = indent + ("│  " if node.children else "   ")
    for name, value in node.properties:
        yield f"{inner}{name}: {value}"
    for child in node.children:
        last = child is node.children[-1]
        yield from _format_lines(child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "))


def as_mermaid(node: ExplainNode) -> str:
    lines = ["flowchart BT"]
    _add_mermaid_lines(node, "n", lines)
    return "\n".join(lines)


def _add_mermaid_lines(node: ExplainNode, id_: str, lines: list[str]) -> None:
    text = "<br/>".join([node.title, *(f"{name}: {value}" for name, value in node.properties)])
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<br/>", "\0").replace("<", "&lt;")
    lines.append(f'    {id_}["{escaped.replace(">", "&gt;").replace(chr(0), "<br/>")}"]')
    for place, child in enumerate(node.children):
        _add_mermaid_lines(child, f"{id_}{place}", lines)
        lines.append(f"    {id_}{place} --> {id_}")
