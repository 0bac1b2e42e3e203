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
from penstock.ops.protocol import Plain


def reached_by(node: Node) -> Iterator[str]:
    """The operators that what a step of this one writes can set going: those behind, and those time goes past."""
    for after in node.successors:
        yield after.id
        if isinstance(after.operator, Plain):
            yield from reached_by(after)


def may_idle(node: Node) -> bool:
    """Whether the operator can come to wait for a time that a source can tell."""
    if not node.readers:
        return node.enabling is not None
    return not isinstance(node.operator, Plain) and any(map(_can_be_told, node.predecessors))


def _can_be_told(node: Node) -> bool:
    return node.enabling is not None or any(map(_can_be_told, node.predecessors))


def awaited(node: Node) -> int | None:
    """The first time at which the operator has something to do, None if it has nothing."""
    times = [time for reader in node.readers if (time := reader.next_time()) is not None]
    if node.holding is not None and (time := node.holding.awaits()) is not None:
        times.append(time)
    return min(times, default=None)


def enabler(node: Node) -> Node | None:
    """For an operator that has no more: if it idles, what could run to let it go on."""
    time = awaited(node)
    return None if time is None else _upstream(node, time)


def _upstream(node: Node, time: int) -> Node | None:
    if not node.readers:
        return node if node.enabling is not None and node.enabling.enables(time) else None
    reader = min(node.readers, key=_register)
    if reader.frontier > time:
        return None
    producer = node.producers[reader]
    return producer if producer.operator.more() else _upstream(producer, time)


def _register(reader: Reader) -> int:
    return reader.frontier
