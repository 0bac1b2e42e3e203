"""The route of tuples through an eddy: over the windows (SteMs) of all other streams, the cheapest one first.

Law: a route visits every other stream once. The cost of a step is its fan-out, the number of rows that it makes of one
row. Of two possible steps the one with the smaller fan-out comes first, so that a tuple without partners is dropped
early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.plan.physical import Key

EddyRoute = tuple[str, ...]

FanOut = Callable[[str, Key], float]
"""The number of rows that one row makes at a SteM, if it has a code in each class of a key."""


def choose_route(origin: str, classes: Mapping[str, frozenset[int]], fan_out: FanOut) -> EddyRoute:
    """The route of tuples of `origin`, which is its first stop; `classes` has the classes of every stream."""
    route, known = [origin], classes[origin]
    while len(route) < len(classes):
        remaining = [alias for alias in classes if alias not in route]
        chosen = min(remaining, key=lambda alias: fan_out(alias, tuple(sorted(known & classes[alias]))))
        route.append(chosen)
        known |= classes[chosen]
    return tuple(route)
