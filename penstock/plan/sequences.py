"""FROM SEQ(...) as steps: which conditions each step tests, and which columns it passes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.cql import Select, SeqMode
from penstock.expr import Call, Expr, find_aliases
from penstock.plan.query import Outputs, SequencePart, SequenceStep


def plan_sequence(select: Select, mode: SeqMode, outputs: Outputs, ranks: Mapping[str, int]) -> SequencePart:
    """The steps of a sequence, from left to right. `ranks` orders streams by their declaration, for ties in time."""
    steps = [_plan_step(select, place, mode, ranks) for place in range(1, len(select.sources))]
    steps[-1] = replace(steps[-1], outputs=outputs)
    names = [source.alias for source in select.sources]
    for place in range(len(steps) - 2, -1, -1):
        seen = set(names[: place + 2])
        carried = tuple(column for column in steps[place + 1].needed_columns if column.alias in seen)
        steps[place] = replace(steps[place], carried_columns=carried)
    filters = tuple(_find_filters(select, name) for name in names)
    return SequencePart(mode, select.sources, filters, tuple(steps))


def _plan_step(select: Select, place: int, mode: SeqMode, ranks: Mapping[str, int]) -> SequenceStep:
    """The step that pairs the item at `place` with those before it."""
    left, right = select.sources[place - 1], select.sources[place]
    seen = {source.alias for source in select.sources[: place + 1]}
    tested = [term for term in select.where if _is_tested_at(find_aliases(term), right.alias, seen)]
    keys = [(term, _match_key(term, right.alias)) for term in tested]
    order = ranks[left.relation.name] - ranks[right.relation.name]
    return SequenceStep(
        mode == "recent",
        (order > 0) - (order < 0),
        tuple(sides for _, sides in keys if sides is not None),
        tuple(term for term, sides in keys if sides is None),
        None,
    )


def _is_tested_at(used: frozenset[str], name: str, seen: set[str]) -> bool:
    """Whether the step that adds `name` is the first one with all aliases of a condition, `used`."""
    return name in used and len(used) > 1 and used <= seen


def _find_filters(select: Select, name: str) -> tuple[Expr, ...]:
    """The conditions over one item; constant conditions belong to the first one."""
    used = {frozenset((name,)), frozenset()} if name == select.sources[0].alias else {frozenset((name,))}
    return tuple(term for term in select.where if find_aliases(term) in used)


def _match_key(term: Expr, name: str) -> tuple[Expr, Expr] | None:
    """The sides of an equality between the item `name` and earlier ones."""
    if not (isinstance(term, Call) and term.op == "="):
        return None
    one, two = term.args
    for left, right in ((one, two), (two, one)):
        if find_aliases(right) == {name} and find_aliases(left) and name not in find_aliases(left):
            return left, right
    return None
