"""Errors at named points of the engine: a test says where an error is raised, this module which method that is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.adapt import decision_thread, sampler
from penstock.engine import build
from penstock.join import JoinOperator, JoinTree, Member
from penstock.join.sharing import admission

POINTS: dict[str, tuple[Any, str]] = {
    "bind query": (build, "bind_query"),
    "join step": (JoinTree, "step"),
    "change policy": (JoinOperator, "set_policy"),
    "filter": (admission, "compute_mask"),
    "build results": (Member, "build_inserts"),
    "sample join": (sampler, "sample_join"),
    "decide": (decision_thread, "decide"),
}


def fail_at(point: str, error: BaseException, patch: pytest.MonkeyPatch) -> None:
    """Raise an error in every call at a point."""

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    patch.setattr(*POINTS[point], fail)


def fail_in_filters_with(text: str, error: BaseException, patch: pytest.MonkeyPatch) -> None:
    """Raise an error in filters whose expressions contain a text."""
    owner, name = POINTS["filter"]
    evaluate = getattr(owner, name)

    def fail(exprs: Any, *args: Any) -> Any:
        if text in repr(exprs):
            raise error
        return evaluate(exprs, *args)

    patch.setattr(owner, name, fail)
