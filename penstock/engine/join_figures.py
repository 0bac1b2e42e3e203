"""The figures of a query over its joins: as they are for one join, added up for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from penstock.engine.parts import JoinQueryPart

_OF_JOIN = ("window_rows", "state_rows", "built", "completed", "unprobed", "bytes", "waiting")
"""Figures of a join; one that a query reads several times counts once."""
_OF_QUERY = ("living", "held_back", "stale")
"""Figures of a query's place in a join."""


def add_up_joins(parts: Sequence[JoinQueryPart], figures: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """The figures of several joins, by the same keys as those of one."""
    found = list(zip(parts, figures, strict=True))
    by_join = {id(part.join): each for part, each in sorted(found, key=lambda each: len(each[0].own_aliases))}
    sums = {key: _add_up([each[key] for each in by_join.values()]) for key in _OF_JOIN}
    sums |= {key: _add_up([each[key] for each in figures]) for key in _OF_QUERY}
    return {**sums, "completeness": estimate_completeness(parts, figures)}


def estimate_completeness(parts: Sequence[JoinQueryPart], figures: Sequence[Mapping[str, Any]]) -> float:
    """The estimated fraction of the expected results: a product if joins read joins, else weighted by results."""
    found = [(float(each["completeness"]), int(each["emitted"])) for each in figures]
    if any(part.subqueries.parts for part in parts):
        return prod(share for share, _ in found)
    if any(not share for share, _ in found):
        return min(share for share, _ in found)
    expected = sum(emitted / share for share, emitted in found)
    return (
        sum(emitted for _, emitted in found) / expected if expected else min((share for share, _ in found), default=1.0)
    )


def _add_up(figures: Sequence[Any]) -> Any:
    """The sum of numbers; of mappings, the sum for each key."""
    if not any(isinstance(each, Mapping) for each in figures):
        return sum(figures)
    keys = dict.fromkeys(key for each in figures for key in each)
    return {key: _add_up([each[key] for each in figures if key in each]) for key in keys}
