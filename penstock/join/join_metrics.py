"""The metrics of a join tree, and the lines that `explain` adds to the nodes of its plan."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.join.eddy import EddyNode
from penstock.join.leaf_node import LeafNode
from penstock.join.node import JoinNode, TreeNode
from penstock.join.tree import JoinTree
from penstock.plan import Properties, rename_leaves


def collect_metrics(tree: JoinTree, names: Mapping[str, str], now: int) -> dict[str, object]:
    """What the nodes over the aliases `names` have read, hold and have built, in those names."""
    stores = {names[alias]: store for alias, store in tree.stores.items() if alias in names}
    visible = (part for part in tree.walk_nodes() if names.keys() >= set(part.plan.aliases))
    parts = {str(rename_leaves(part.plan.tree, names)): part for part in visible}
    nodes = {name: part for name, part in parts.items() if isinstance(part, JoinNode)}
    states = {name: node.state for name, node in nodes.items() if node.state is not None}
    gates = {name: node.gate for name, node in nodes.items() if node.gate is not None}
    return {
        "rows_in": {alias: store.tuples_read for alias, store in stores.items()},
        "window_rows": {alias: len(store) for alias, store in stores.items()},
        "state_rows": {name: len(state) for name, state in states.items()},
        "built": {name: node.built for name, node in nodes.items()},
        "completed": {name: node.completed for name, node in nodes.items() if node.completed},
        "live_rows": {name: nodes[name].count_living(now) for name in states},
        "resumed": {name: node.resumed for name, node in nodes.items()},
        "suppressed": {name: dict(part.suppressed) for name, part in parts.items()},
        "probes": {name: part.probes for name, part in parts.items()},
        "sought": {name: part.sought for name, part in parts.items() if isinstance(part, LeafNode)},
        "demanded_rows": {
            name: len(part.demanded)
            for name, part in parts.items()
            if isinstance(part, LeafNode) and part.demanded is not None
        },
        "changes": {name: part.changes for name, part in parts.items() if part.changes or name in nodes},
        "compared": {name: node.pair.compared for name, node in nodes.items()},
        "checked": {name: node.checked for name, node in nodes.items()},
        "drivers": _name_drivers(tree, names),
        "tested": {name: gate.tested for name, gate in gates.items()},
        "entered": {name: gate.entered for name, gate in gates.items()},
        "demanded_keys": {name: len(gate) for name, gate in gates.items() if gate.closed},
        **_collect_routing(tree.root, names),
        "false_positives": {name: rate for name, gate in gates.items() if (rate := gate.false_positives)},
        "incomplete": [
            name for name, node in nodes.items() if node.state is not None and node.state.complete_keys is not None
        ],
        "bytes": sum(store.nbytes for store in stores.values())
        + sum(state.nbytes for state in states.values())
        + sum(gate.nbytes for gate in gates.values()),
    }


def _collect_routing(root: TreeNode | EddyNode, names: Mapping[str, str]) -> dict[str, object]:
    """The metrics of an eddy: the routes of the last batch, and the rows built on them."""
    if not isinstance(root, EddyNode):
        return {}
    return {
        "routes": {names[origin]: [names[alias] for alias in route] for origin, route in root.routes.items()},
        "routed": {names[origin]: rows for origin, rows in root.built.items()},
        "tested": {names[alias]: gate.tested for alias, gate in root.gates.items()},
        "entered": {names[alias]: gate.entered for alias, gate in root.gates.items()},
        "demanded_keys": {names[alias]: len(gate) for alias, gate in root.gates.items() if gate.closed},
    }


def describe_nodes(tree: JoinTree, names: Mapping[str, str]) -> dict[str, Properties]:
    """The lines of every node, by its tree text in the aliases `names`."""
    visible = (part for part in tree.walk_nodes() if names.keys() >= set(part.plan.aliases))
    drivers = _name_drivers(tree, names)
    found = {
        name: _describe_node(part, drivers.get(name), root=part is tree.root)
        for part in visible
        if (name := str(rename_leaves(part.plan.tree, names)))
    }
    if isinstance(tree.root, EddyNode):
        found[str(rename_leaves(tree.root.plan.tree, names))] = _describe_eddy(tree.root, names)
    return found


def _name_drivers(tree: JoinTree, names: Mapping[str, str]) -> dict[str, str]:
    """By gated node, the node whose rows demand its rows."""
    visible = (part for part in tree.walk_nodes() if names.keys() >= set(part.plan.aliases))
    return {
        str(rename_leaves(node.lazy.plan.tree, names)): str(rename_leaves(node.driver.plan.tree, names))
        for node in visible
        if isinstance(node, JoinNode) and node.lazy.gate is not None
    }


def _describe_node(part: TreeNode, driver: str | None, *, root: bool) -> Properties:
    held = _describe_suppressed(part.suppressed)
    if not isinstance(part, JoinNode):
        return held
    counts = {"built": part.built, "completed": part.completed - part.resumed, "resumed": part.resumed}
    rows = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    state = () if root else (("state", _describe_state(part, driver)),)
    return (*state, *((("rows", rows),) if rows else ()), *held)


def _describe_state(node: JoinNode, driver: str | None) -> str:
    if node.state is None:
        return "keeps no rows, looks them up"
    lacks = "" if node.complete else ", not complete yet"
    if node.gate is None or not node.gate.closed:
        return f"keeps its rows{lacks}"
    return f"keeps its rows of {node.gate.describe()} that {driver} demands{lacks}"


def _describe_suppressed(suppressed: Mapping[str, int]) -> Properties:
    """Suppressed rows, by the type of their MNS."""
    kinds = ", ".join(
        f"{count:,} {'∅' if kind == 'empty' else kind}" for kind, count in sorted(suppressed.items()) if count
    )
    return (("put off", kinds),) if kinds else ()


def _describe_eddy(eddy: EddyNode, names: Mapping[str, str]) -> Properties:
    ways = {names[origin]: " → ".join(names[alias] for alias in route) for origin, route in eddy.routes.items()}
    routes = tuple((f"route of {origin}", way) for origin, way in ways.items())
    built = sum(eddy.built.values())
    rows = (("rows", f"{built:,} built on the way"),) if built else ()
    closed = ", ".join(names[alias] for alias, gate in eddy.gates.items() if gate.closed)
    demand = f"; demand of {closed}" if closed else ""
    return (("state", f"keeps no rows, routes tuples{demand}"), *routes, *rows)
