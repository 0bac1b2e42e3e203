"""The route of tuples through an eddy: over the windows (SteMs) of all other streams, the cheapest next one first.

Law: a route visits every other stream once. What a step costs is its fan-out, the rows it makes of one; of two steps
that are possible the one with the smaller fan-out goes first, so that a tuple without partners leaves early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.plan.physical import Key

EddyRoute = tuple[str, ...]

FanOut = Callable[[str, Key], float]
"""The rows that one row makes at a SteM, when it comes with a code in each class of a key."""


def choose_route(origin: str, classes: Mapping[str, frozenset[int]], fan_out: FanOut) -> EddyRoute:
    """The route of tuples that come in at `origin`, which is its first stop; `classes` are those of every stream."""
    route, known = [origin], classes[origin]
    while len(route) < len(classes):
        rest = [alias for alias in classes if alias not in route]
        chosen = min(rest, key=lambda alias: fan_out(alias, tuple(sorted(known & classes[alias]))))
        route.append(chosen)
        known |= classes[chosen]
    return tuple(route)
