"""Steps of merging subqueries, replaced by broken ones; random queries with subqueries must detect each."""

from __future__ import annotations

from typing import Any

from sharing_mutants import Mutant

from penstock.plan import merged_subqueries
from penstock.plan.merged_subqueries import _Merge


def _keep_names(self: Any) -> dict[str, dict[str, str]]:
    return {outer: {each.alias: each.alias for each in inner.sources} for outer, inner in self.merged.items()}


MERGE_MUTANTS = (
    Mutant(_Merge, "_list_conditions", lambda _self: (), (1, 6)),
    Mutant(_Merge, "_names", property(_keep_names), (1, 7)),
    Mutant(merged_subqueries, "_is_plain", lambda _inner: True, (6, 42)),
)
"""Detected by `test_law_merged.check_merged`."""
