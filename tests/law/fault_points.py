"""Fault points: every numpy and Arrow function and every compiled kernel that the engine's modules call.

`install` puts counting wrappers into all modules of the engine, for as long as a `pytest.MonkeyPatch` lives. While
`Faults` is armed it counts the calls, and raises at the one it was told.
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

APART = ("cli", "demo", "lab", "spark", "testing", "web")
"""Packages that are no part of the embedded engine."""
LIBRARIES = (np, pa, pc)


class Faults:
    """Counts calls while it is armed; the call of a number raises."""

    def __init__(self) -> None:
        self.calls = 0
        self.raised: BaseException | None = None
        self._armed = False
        self._at = -1
        self._error: BaseException = MemoryError()

    @contextmanager
    def armed(self, at: int = -1, error: BaseException | None = None) -> Iterator[None]:
        """Count calls from 0 on, and raise an error at call number `at`."""
        self.calls, self.raised, self._at = 0, None, at
        self._error = error or MemoryError("injected")
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def count(self) -> None:
        if not self._armed:
            return
        self.calls += 1
        if self.calls - 1 == self._at:
            self.raised = self._error
            raise self._error


class _Function:
    """A function with a fault point before it."""

    def __init__(self, function: Any, faults: Faults) -> None:
        self._function = function
        self._faults = faults

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._faults.count()
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return _Function(found, self._faults) if callable(found) else found


class _Library:
    """A library whose functions have fault points; its classes are left as they are."""

    def __init__(self, library: ModuleType, faults: Faults) -> None:
        self._library = library
        self._faults = faults
        self._wrapped: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if isinstance(found, type | ModuleType) or not callable(found):
            return found
        if name not in self._wrapped:
            self._wrapped[name] = _Function(found, self._faults)
        return self._wrapped[name]


def install(patch: pytest.MonkeyPatch) -> Faults:
    """Put fault points into the modules of the engine. Modules with kernels of their own call them compiled."""
    faults = Faults()
    libraries = [(library, _Library(library, faults)) for library in LIBRARIES]
    kernels: dict[int, _Function] = {}
    for module in _modules():
        if _defines_kernels(module):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, Dispatcher):
                patch.setattr(module, name, kernels.setdefault(id(value), _Function(value, faults)))
            for library, wrapped in libraries:
                if value is library:
                    patch.setattr(module, name, wrapped)
    return faults


def _modules() -> list[ModuleType]:
    rooms = [found for found in pkgutil.iter_modules(penstock.__path__, "penstock.") if _inside(found.name)]
    for room in rooms:
        module = importlib.import_module(room.name)
        for found in pkgutil.iter_modules(module.__path__, f"{room.name}.") if room.ispkg else ():
            importlib.import_module(found.name)
    names = [name for name in sys.modules if name.startswith("penstock.") and _inside(name)]
    return [sys.modules[name] for name in names]


def _inside(name: str) -> bool:
    return name.split(".")[1] not in APART


def _defines_kernels(module: ModuleType) -> bool:
    own = (value for value in vars(module).values() if isinstance(value, Dispatcher))
    return any(value.py_func.__module__ == module.__name__ for value in own)
