"""Planner rules against text fixtures: what a rule gets, and what it makes of it.

A fixture file holds cases, divided by lines of `====`. A case has a title, a block of settings and the expected text:

    -- title
    rule: flatten_unions            (or where, plan, sharing, nesting)
    query: SELECT ...
    plan: ((A B) C)                 (optional: the shapes that the caller gives)
    ----
    expected text

To write the expected text anew after a change of the format, run the test with PENSTOCK_WRITE_FIXTURES=1 and read the
difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cql import Catalog, Select, bind_query, bind_script
from penstock.expr import to_sql
from penstock.plan import (
    JoinPart,
    PlanningContext,
    PlanPart,
    as_text,
    describe_query,
    find_nested_renaming,
    find_shared_renaming,
    list_join_parts,
    plan_body,
)
from penstock.plan.join_graph import WHERE_RULES, SortedWhere
from penstock.plan.join_sharing import SHARING_CONDITIONS
from penstock.plan.rules import PLAN_RULES
from penstock.plan.translate import Translation

FIXTURES = Path(__file__).parent / "fixtures"
WRITE = os.environ.get("PENSTOCK_WRITE_FIXTURES") == "1"
DIVIDER, RULE = "\n====\n", "\n----\n"

COLUMNS = "(ts BIGINT, x BIGINT, y BIGINT, v DOUBLE, i INT)"
DECLARATIONS = [
    *(f"CREATE STREAM {name} {COLUMNS} TIMESTAMP BY ts" for name in "ABCDE"),
    "CREATE STREAM reader (ts TIMESTAMP, tag STRING, room INT) TIMESTAMP BY ts",
    "CREATE STREAM gate (ts TIMESTAMP, tag STRING, dock INT) TIMESTAMP BY ts",
    "CREATE TABLE rooms (room INT, name STRING)",
]
TABLE_ROWS = {"rooms": 20}


@dataclass(frozen=True)
class RuleCase:
    """One case of a fixture file."""

    path: Path
    title: str
    settings: tuple[tuple[str, str], ...]
    expected: str

    @classmethod
    def parse(cls, path: Path, text: str) -> RuleCase:
        head, _, expected = text.partition(RULE)
        title, *lines = head.strip().splitlines()
        pairs = (line.partition(": ") for line in lines)
        return cls(path, title.removeprefix("-- "), tuple((name, value) for name, _, value in pairs), expected.strip())

    def __getitem__(self, name: str) -> str:
        return dict(self.settings)[name]

    @property
    def plan(self) -> str | None:
        return dict(self.settings).get("plan")

    def format(self, found: str) -> str:
        lines = [f"-- {self.title}", *(f"{name}: {value}" for name, value in self.settings)]
        return "\n".join(lines) + RULE + found + "\n"


def build_catalog() -> Catalog:
    catalog = Catalog()
    bind_script(";\n".join(DECLARATIONS), catalog)
    return catalog


CATALOG = build_catalog()
RANKS = {name: rank for rank, name in enumerate(CATALOG.relations)}


def make_context(plan: str | None = None) -> PlanningContext:
    return PlanningContext(plan, TABLE_ROWS, RANKS)


def explain(part: PlanPart) -> str:
    return as_text(describe_query(part, {}))


# What each kind of case shows


def show_plan(case: RuleCase) -> str:
    """The plan of a query, after all rules."""
    return explain(plan_body(bind_query(case["query"], CATALOG).body, make_context(case.plan)))


def show_plan_rule(case: RuleCase) -> str:
    """The plan before and after one rule; the rules before it have run."""
    context = make_context(case.plan)
    part = Translation(context.stream_ranks).translate(bind_query(case["query"], CATALOG).body)
    for rule in PLAN_RULES:
        changed = rule(part, context)
        if rule.__name__ == case["rule"]:
            return f"before\n{explain(part)}\nafter\n{explain(changed)}"
        part = changed
    raise AssertionError(f"no rule {case['rule']}")


def show_where(case: RuleCase) -> str:
    """WHERE after each of its rules; a rule that changes nothing is left out."""
    body = bind_query(case["query"], CATALOG).body
    assert isinstance(body, Select)
    where = SortedWhere(tuple(source.alias for source in body.sources), body.where)
    stages = [("WHERE", where)]
    for rule in WHERE_RULES:
        changed = rule(stages[-1][1])
        if changed != stages[-1][1]:
            stages.append((rule.__name__, changed))
    return "\n".join(line for title, stage in stages for line in (title, *_format_where(stage)))


def _format_where(where: SortedWhere) -> Iterator[str]:
    yield from (f"   pending: {to_sql(expr)}" for expr in where.pending)
    yield from (f"   equal: {' = '.join(to_sql(term) for _, term in terms)}" for terms in where.equal_terms)
    yield from (f"   filter of {alias}: {to_sql(expr)}" for alias, expr in where.filters)
    yield from (f"   residual: {to_sql(expr)}" for expr in where.residuals)


def plan_join_part(text: str, plan: str | None = None) -> JoinPart:
    (part,) = list_join_parts(plan_body(bind_query(text, CATALOG).body, make_context(plan)))
    return part


def show_sharing(case: RuleCase) -> str:
    """The host's alias for each of the query's, or the conditions that do not hold under equal aliases."""
    host, part = plan_join_part(case["host"]), plan_join_part(case["query"])
    names = find_shared_renaming(part, host)
    if names is not None:
        return "shared as " + ", ".join(f"{mine} → {other}" for mine, other in names.items())
    same = {alias: alias for alias in part.graph.aliases}
    if part.graph.aliases != host.graph.aliases:
        return "not shared: other FROM items"
    failed = [condition.__name__ for condition in SHARING_CONDITIONS if not condition(part, host, same)]
    return f"not shared: {', '.join(failed) or 'other FROM items'}"


def show_nesting(case: RuleCase) -> str:
    """The host's alias for each of the query's, if a node of the host's tree is the query's join."""
    host, part = plan_join_part(case["host"], case.plan), plan_join_part(case["query"])
    names = find_nested_renaming(part, host, host.plan.tree)
    if names is None:
        return f"not nested in {host.plan.tree}"
    return f"nested in {host.plan.tree} as " + ", ".join(f"{mine} → {other}" for mine, other in names.items())


SHOWS: dict[str, Callable[[RuleCase], str]] = {
    "plan": show_plan,
    "where": show_where,
    "sharing": show_sharing,
    "nesting": show_nesting,
    **{rule.__name__: show_plan_rule for rule in PLAN_RULES},
}


def read_cases() -> list[RuleCase]:
    return [
        RuleCase.parse(path, text)
        for path in sorted(FIXTURES.glob("*.txt"))
        for text in path.read_text().split(DIVIDER)
    ]


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"{case.path.stem}: {case.title}")
def test_rule_fixture(case: RuleCase) -> None:
    found = "\n".join(line.rstrip() for line in SHOWS[case["rule"]](case).splitlines())
    if WRITE:
        case.path.write_text(case.path.read_text().replace(_find_text(case), case.format(found).rstrip("\n")))
        return
    assert found == case.expected


def _find_text(case: RuleCase) -> str:
    """The case as it stands in its file."""
    texts = case.path.read_text().split(DIVIDER)
    return next(text.rstrip("\n") for text in texts if RuleCase.parse(case.path, text).title == case.title)


def test_every_rule_has_a_fixture() -> None:
    assert {case["rule"] for case in read_cases()} == SHOWS.keys()
    titles = [(case.path, case.title) for case in read_cases()]
    assert len(set(titles)) == len(titles)


def _plan_self_join(names: str) -> JoinPart:
    items = ", ".join(f"A [RANGE 5] AS {name}" for name in names)
    equal = " AND ".join(f"{one}.x = {two}.x" for one, two in pairwise(names))
    return plan_join_part(f"SELECT {names[0]}.x FROM {items} WHERE {equal}")


def test_many_items_are_paired_in_their_order() -> None:
    """Nine items of one stream can be paired in 362,880 ways."""
    first, second = "abcdefghi", "rstuvwxyz"
    found = find_shared_renaming(_plan_self_join(second), _plan_self_join(first))
    assert found == dict(zip(second, first, strict=True))
