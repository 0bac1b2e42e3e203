"""Fault points: every numpy and Arrow function and every compiled kernel that the engine's modules call.

`install_fault_points` wraps them in all modules of the engine for the lifetime of a `pytest.MonkeyPatch`. An armed
`FaultInjector` counts the calls and raises at one of them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numba.core.dispatcher import Dispatcher

import penstock

OTHER_PACKAGES = ("cli", "demo", "lab", "spark", "testing", "web")
"""Packages outside the embedded engine."""
LIBRARIES = (np, pa, pc)


class FaultInjector:
    """Counts calls while armed; the call with a given number raises."""

    def __init__(self) -> None:
        self.calls = 0
        self.raised: BaseException | None = None
        self._armed = False
        self._fail_at = -1
        self._error: BaseException = MemoryError()

    @contextmanager
    def arm(self, at: int = -1, error: BaseException | None = None) -> Iterator[None]:
        """Count calls from 0 on, and raise an error at call number `at`."""
        self.calls, self.raised, self._fail_at = 0, None, at
        self._error = error or MemoryError("injected")
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def count_call(self) -> None:
        if not self._armed:
            return
        self.calls += 1
        if self.calls - 1 == self._fail_at:
            self.raised = self._error
            raise self._error


class _FaultyFunction:
    """A function with a fault point before it."""

    def __init__(self, function: Any, faults: FaultInjector) -> None:
        self._function = function
        self._faults = faults

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._faults.count_call()
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return _FaultyFunction(found, self._faults) if callable(found) else found


class _FaultyLibrary:
    """A library whose functions have fault points; its classes are unchanged."""

    def __init__(self, library: ModuleType, faults: FaultInjector) -> None:
        self._library = library
        self._faults = faults
        self._wrapped: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if isinstance(found, type | ModuleType) or not callable(found):
            return found
        if name not in self._wrapped:
            self._wrapped[name] = _FaultyFunction(found, self._faults)
        return self._wrapped[name]


def install_fault_points(patch: pytest.MonkeyPatch) -> FaultInjector:
    """Put fault points into the modules of the engine, except those that define kernels: compiled code calls them."""
    faults = FaultInjector()
    libraries = [(library, _FaultyLibrary(library, faults)) for library in LIBRARIES]
    kernels: dict[int, _FaultyFunction] = {}
    for module in _load_engine_modules():
        if _defines_kernels(module):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, Dispatcher):
                patch.setattr(module, name, kernels.setdefault(id(value), _FaultyFunction(value, faults)))
            for library, wrapped in libraries:
                if value is library:
                    patch.setattr(module, name, wrapped)
    return faults


def _load_engine_modules() -> list[ModuleType]:
    rooms = [found for found in pkgutil.iter_modules(penstock.__path__, "penstock.") if _is_engine_module(found.name)]
    for room in rooms:
        module = importlib.import_module(room.name)
        for found in pkgutil.iter_modules(module.__path__, f"{room.name}.") if room.ispkg else ():
            importlib.import_module(found.name)
    names = [name for name in sys.modules if name.startswith("penstock.") and _is_engine_module(name)]
    return [sys.modules[name] for name in names]


def _is_engine_module(name: str) -> bool:
    return name.split(".")[1] not in OTHER_PACKAGES


def _defines_kernels(module: ModuleType) -> bool:
    own = (value for value in vars(module).values() if isinstance(value, Dispatcher))
    return any(value.py_func.__module__ == module.__name__ for value in own)
