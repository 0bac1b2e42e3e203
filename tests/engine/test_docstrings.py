"""Every public method of the embedded API has types and an example that runs."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine import engine, inputs, reading, subscriptions, tuning


def make_engine() -> ps.Engine:
    """The engine `eng` of the examples; see penstock/engine/reading.py."""
    eng = ps.Engine()
    for name in "AB":
        eng.stream(name, {"ts": "bigint", "x": "bigint"}, time="ts")
    eng.query("pairs", "SELECT A.x FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x")
    return eng


def list_examples(*modules: ModuleType) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder()
    found = [test for module in modules for test in finder.find(module, module.__name__)]
    return [test for test in found if test.examples]


EXAMPLES = list_examples(engine, reading, tuning, inputs, subscriptions)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.removeprefix("penstock."))
def test_example_runs(example: doctest.DocTest) -> None:
    example.globs.update(ps=ps, pa=pa, eng=make_engine())
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append)
    assert not result.failed, "".join(report)


def iter_public(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield name, member


@pytest.mark.parametrize("name", [name for name, _ in iter_public(ps.Engine)])
def test_method_of_engine_has_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(ps.Engine, name)) or "")


def test_methods_of_engine_are_annotated() -> None:
    untyped = []
    for name, member in iter_public(ps.Engine):
        signature = inspect.signature(member.fget if isinstance(member, property) else member)
        values = [each for each in signature.parameters.values() if each.name != "self"]
        if any(each.annotation is each.empty for each in values) or signature.return_annotation is signature.empty:
            untyped.append(name)
    assert not untyped


def test_all_names_of_the_package() -> None:
    assert sorted(ps.__all__, key=str.casefold) == sorted(set(ps.__all__), key=str.casefold)
    for name in ps.__all__:
        assert getattr(ps, name) is not None
    assert set(ps.__all__) <= set(dir(ps))
