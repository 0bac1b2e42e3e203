"""What the parts of a join tree keep and did, in words: the lines that `explain` adds to a plan that runs."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ops.eddy import EddyNode
from penstock.ops.join_node import JoinNode, TreeNode
from penstock.ops.join_tree import JoinTree
from penstock.plan.explain import Properties


def notes(tree: JoinTree) -> dict[str, Properties]:
    """The lines of every part, by its tree text."""
    found = {str(part.plan.tree): _part(part, root=part is tree.root) for part in tree.parts()}
    if isinstance(tree.root, EddyNode):
        found[str(tree.root.plan.tree)] = _eddy(tree.root)
    return found


def _part(part: TreeNode, *, root: bool) -> Properties:
    held = _held(part.held)
    if not isinstance(part, JoinNode):
        return held
    counts = {"built": part.built, "completed": part.completed - part.resumed, "resumed": part.resumed}
    rows = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    state = () if root else (("state", _state(part)),)
    return (*state, *((("rows", rows),) if rows else ()), *held)


def _state(node: JoinNode) -> str:
    if node.state is None:
        return "keeps no rows, looks them up"
    lacks = "" if node.complete else ", not complete yet"
    if node.gate is None or not node.gate.shut:
        return f"keeps its rows{lacks}"
    return f"keeps its rows of {len(node.gate):,} demanded keys{lacks}"


def _held(held: Mapping[str, int]) -> Properties:
    """Rows put off, by the type of their MNS."""
    kinds = ", ".join(f"{count:,} {'∅' if kind == 'empty' else kind}" for kind, count in sorted(held.items()) if count)
    return (("put off", kinds),) if kinds else ()


def _eddy(eddy: EddyNode) -> Properties:
    routes = tuple((f"route of {origin}", " → ".join(route)) for origin, route in eddy.routes.items())
    built = sum(eddy.built.values())
    rows = (("rows", f"{built:,} built on the way"),) if built else ()
    demand = "; demand of every stream" if eddy.gates else ""
    return (("state", f"keeps no rows, routes tuples{demand}"), *routes, *rows)
