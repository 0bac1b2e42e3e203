"""Time in the graph: registers, idle operators, and what enables them (Enabling Time-Stamps on demand).

The register of an input is the frontier of its arc. An operator idles if it holds rows that it may not process yet,
because its lowest register is too low. The search for an enabler goes back along the lowest registers. The first
operator on the way that has work raises them by running. If there is none, the source at the end may know from its
clock that no row before some time will come. That promise is an ETS: `Buffer.advance` writes it to the registers at the
ends of the ETS arcs, past every operator that does not merge by time. It is made only if it lets the idle operator
continue. Registers only rise, and an operator that merges passes a value on when it has processed all rows up to it: a
register is active while its value is above that, and no value is passed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.graph.buffers import Reader
from penstock.graph.graph import Node
from penstock.ops import FrontierBypass


def list_reached(node: Node) -> Iterator[str]:
    """The operators that can have work after a step of this one: its successors, and those behind a bypass."""
    for after in node.successors:
        yield after.id
        if isinstance(after.operator, FrontierBypass):
            yield from list_reached(after)


def can_idle(node: Node) -> bool:
    """Whether the operator can wait for a time that a source with a clock knows."""
    if not node.readers:
        return node.enabling is not None
    return not isinstance(node.operator, FrontierBypass) and _has_clocked_source(node.predecessors)


def _has_clocked_source(nodes: Sequence[Node]) -> bool:
    """Whether one of the nodes, or of those upstream, has a clock. Each is visited once, by however many paths."""
    seen, waiting = set(nodes), list(nodes)
    while waiting:
        node = waiting.pop()
        if node.enabling is not None:
            return True
        waiting.extend(each for each in node.predecessors if each not in seen)
        seen.update(node.predecessors)
    return False


def find_awaited_time(node: Node) -> int | None:
    """The time of the first row that the operator holds or can read, None if there is none."""
    times = [time for reader in node.readers if (time := reader.next_time()) is not None]
    if node.holding is not None and (time := node.holding.next_timer()) is not None:
        times.append(time)
    return min(times, default=None)


def find_holding_source(node: Node) -> Node | None:
    """The source whose frontier lets rows of the operator's other inputs wait; None if no row waits for another input.

    It is at the end of the lowest registers.
    """
    if len(node.readers) < 2:
        return None
    lowest = min(node.readers, key=_get_frontier)
    times = [reader.next_time() for reader in node.readers if reader is not lowest]
    if not any(time is not None and time >= lowest.frontier for time in times):
        return None
    source = node.producers[lowest]
    while source.readers:
        source = source.producers[min(source.readers, key=_get_frontier)]
    return source


def find_enabler(node: Node) -> Node | None:
    """For an operator without work: the operator that enables it to continue, None if it does not idle."""
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
