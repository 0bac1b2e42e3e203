"""A join that queries share, in a snapshot.

It is saved in the aliases and join classes of the first query that shares it: that query creates it on restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from penstock.join import JoinOperator, Member, StartPoint, StatePolicy
from penstock.ops import Changes
from penstock.plan import JoinPart, rename_terms


def dump_join(join: JoinOperator, first: Member, part: JoinPart) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """A join as plain values and tables, in the aliases of the query that creates it on restore."""
    own = {theirs: mine for mine, theirs in first.renaming.items()}
    saved = join.dump(first.need.scope)
    groups = saved.filter_groups
    members = [member for member in join.shared_join.members if member.need.scope == first.need.scope]
    values = {
        "done": saved.done,
        **({} if saved.complete == saved.done else {"complete": saved.complete}),
        "unread": {own[alias]: rows for alias, rows in saved.unread.items()},
        "filter_groups": [
            {
                "numbers": {own[alias]: number for alias, number in group.start.first_numbers},
                "drained": group.start.drained_until,
                "missing_until": group.missing_until,
            }
            for group in groups
        ],
        "members": {member.name: groups.index(member.filter_group) for member in members},
        "complete_since": {member.name: member.complete_since for member in join.shared_join.members},
        "interest": saved.sets,
        "kept_after": {own[alias]: times for alias, times in saved.column_gaps.items()},
        "slicing": join.shared_join.slicing,
        "policies": [
            {"node": sorted(own[alias] for alias in node), "policy": asdict(policy)}
            for node, policy in join.tree.node_policies.items()
            if node <= own.keys()
        ],
        "drivers": [
            {"node": sorted(own[alias] for alias in node), "driver": sorted(own[alias] for alias in driver)}
            for node, driver in join.tree.drivers.items()
            if node <= own.keys()
        ],
    }
    classes = _rename_classes(join, first, part)
    tables = {own[alias]: _select_columns(table, classes) for alias, table in saved.tables.items()}
    return values, tables


def _rename_classes(join: JoinOperator, first: Member, part: JoinPart) -> dict[str, str]:
    """The columns of join classes that the query has as well, with the names it has for them."""
    mine = {rename_terms(class_, first.renaming): class_.id for class_ in part.graph.classes}
    own = set(first.renaming.values())
    classes = {}
    for class_ in join.tree.plan.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in own)
        if bound in mine:
            classes[f"_term{class_.id}"] = f"_term{mine[bound]}"
    return classes


def _select_columns(table: pa.Table, classes: Mapping[str, str]) -> pa.Table:
    kept = table.select([name for name in table.column_names if name in classes or not name.startswith("_term")])
    return kept.rename_columns([classes.get(name, name) for name in kept.column_names])


def restore_join(
    join: JoinOperator, values: Mapping[str, Any], tables: Mapping[str, pa.Table], relations: Mapping[str, Changes]
) -> None:
    """Restore a join from a dump, after all of its queries were added to it.

    `relations` are the current rows of the relations among its inputs, by alias.
    """
    for each in values.get("drivers", ()):
        join.tree.drivers[frozenset(each["node"])] = frozenset(each["driver"])
    for each in values["policies"]:
        join.tree.set_policy(StatePolicy(**each["policy"]), frozenset(each["node"]))
    groups = values["filter_groups"]
    starts = [StartPoint(tuple(sorted(group["numbers"].items())), group["drained"]) for group in groups]
    missing_until = [group["missing_until"] for group in groups]
    join.shared_join.assign_filter_groups(starts, missing_until, values["members"], values["complete_since"])
    gaps, done = values["kept_after"], values["done"]
    complete = values.get("complete", done)
    join.restore(tables, gaps, values["unread"], done, complete, values["interest"], relations)
    join.reslice(values["slicing"])
