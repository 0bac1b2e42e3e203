"""Time in the graph: registers, idle operators, and who can help them (Enabling Time-Stamps on demand).

The register of an input is the frontier of its arc. An operator idles if it has something to do but may not, because
its lowest register is not far enough. Then one goes back along the lowest registers: the first operator on the way that
has more will raise them by working; if there is none, the source at the end may know from its clock that no tuple
before some time will come. That promise is an ETS: `Buffer.advance` writes it to the registers at the ends of the ETS
arcs, past every operator that does not merge by time. It is only made if it lets the idle operator go on, so it is
never made in vain. Registers only rise, and an operator that merges has passed a value on when it has worked up to it:
a register is active while its value is above that, and no value passes twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.graph.buffers import Reader
from penstock.graph.graph import Node
from penstock.ops.protocol import FrontierBypass


def list_reached(node: Node) -> Iterator[str]:
    """The operators that what a step of this one writes can set going: those behind, and those time goes past."""
    for after in node.successors:
        yield after.id
        if isinstance(after.operator, FrontierBypass):
            yield from list_reached(after)


def can_idle(node: Node) -> bool:
    """Whether the operator can come to wait for a time that a source can tell."""
    if not node.readers:
        return node.enabling is not None
    return not isinstance(node.operator, FrontierBypass) and any(map(_has_clocked_source, node.predecessors))


def _has_clocked_source(node: Node) -> bool:
    return node.enabling is not None or any(map(_has_clocked_source, node.predecessors))


def find_awaited_time(node: Node) -> int | None:
    """The first time at which the operator has something to do, None if it has nothing."""
    times = [time for reader in node.readers if (time := reader.next_time()) is not None]
    if node.holding is not None and (time := node.holding.next_timer()) is not None:
        times.append(time)
    return min(times, default=None)


def find_enabler(node: Node) -> Node | None:
    """For an operator that has no more: if it idles, what could run to let it go on."""
    time = find_awaited_time(node)
    return None if time is None else _find_upstream_enabler(node, time)


def _find_upstream_enabler(node: Node, time: int) -> Node | None:
    if not node.readers:
        return node if node.enabling is not None and node.enabling.can_advance_to(time) else None
    reader = min(node.readers, key=_get_frontier)
    if reader.frontier > time:
        return None
    producer = node.producers[reader]
    return producer if producer.operator.has_work() else _find_upstream_enabler(producer, time)


def _get_frontier(reader: Reader) -> int:
    return reader.frontier
