"""The guard of an engine: one call at a time, and no call after a call that failed half-way.

Law: a call that raises has either changed nothing that results depend on, or every later call raises ENGINE_BROKEN.

A call checks its arguments first, then changes the engine inside `change`. An exception of any class that leaves
`change` marks the engine as broken. After a change has begun, an exception outside of `change` does so too, unless it
is one of the errors that refuse a call. Before a change has begun, no exception marks the engine.

Calls of other threads wait. A call from inside a call of the same thread, by a callback such as a user-defined
aggregate or a clock, is refused, unless it only reads what a running push does not change.

Warnings are emitted after the call: a filter that makes them errors does not break the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from threading import RLock
from types import TracebackType
from typing import Any, TypeVar
from warnings import warn

from penstock.errors import DataError, InternalError, PenstockWarning, QueryError, ResourceError, UnsupportedError

REFUSAL_ERRORS = (QueryError, DataError, UnsupportedError, ResourceError)
"""The errors that refuse a call: the caller can correct it."""

T = TypeVar("T")


OuterCall = tuple[str, bool, bool]
"""The state of the call around a call."""


class _Change:
    """The block in which an engine changes."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._guard._mark_broken(error)


class Guard:
    """Serialises the calls of one engine and keeps the exception that broke it."""

    def __init__(self, *, warns: bool = True) -> None:
        self.warns = warns
        """Whether warnings are emitted."""
        self._warnings: list[str] = []
        self._lock = RLock()
        self._running_call = ""
        """The name of the call that runs now; empty if none does."""
        self._nesting_allowed = False
        """Whether the running call may call methods of the engine."""
        self._change_begun = False
        """Whether the running call has begun to change something."""
        self._broken: tuple[str, BaseException] | None = None
        self.when_broken: Callable[[], object] = lambda: None
        """Called when the engine breaks."""
        self.changes = 0
        """How many changes have begun."""
        self._change = _Change(self)
        self.closed = False
        """Whether the engine has freed its state, so that only what it returned before can be read."""

    @contextmanager
    def enter(self, name: str, *, nests: bool = False, always: bool = False) -> Iterator[None]:
        """Run a call. `nests`: it may also be called by a callback; `always`: also after the engine broke."""
        before = self.begin_call(name, nests=nests, always=always)
        try:
            yield
        except BaseException as error:
            self.record_error(error)
            raise
        finally:
            self.end_call(before)

    def begin_call(self, name: str, *, nests: bool, always: bool) -> OuterCall:
        """Begin a call, see `enter`: every call ends with `end_call`, and before that with `record_error` if it raises.

        Returns what `end_call` needs.
        """
        self._lock.acquire()
        if self._running_call and not (nests or self._nesting_allowed):
            self._lock.release()
            raise _make_reentrant_error(name, self._running_call)
        if self._broken is not None and not always:
            self._lock.release()
            self.require_intact()
        before = self._running_call, self._nesting_allowed, self._change_begun
        self._running_call, self._nesting_allowed, self._change_begun = name, False, False
        return before

    def record_error(self, error: BaseException) -> None:
        """The running call raised an error."""
        if self._change_begun and not isinstance(error, REFUSAL_ERRORS):
            self._mark_broken(error)

    def end_call(self, before: OuterCall) -> None:
        """The running call has ended."""
        self._running_call, self._nesting_allowed, begun = before
        self._change_begun = begun or (bool(self._running_call) and self._change_begun)
        self._lock.release()

    def change(self) -> _Change:
        """Change the engine: an exception that leaves this block breaks it."""
        self._change_begun = True
        self.changes += 1
        return self._change

    def complete_change(self) -> None:
        """The change of the running call is complete: an exception from here on does not break the engine."""
        self._change_begun = False

    @contextmanager
    def allow_nesting(self) -> Iterator[None]:
        """Let the running call use the engine's public methods."""
        before, self._nesting_allowed = self._nesting_allowed, True
        try:
            yield
        finally:
            self._nesting_allowed = before

    def warn(self, message: str) -> None:
        """Emit a `PenstockWarning` when the running call has returned."""
        if self.warns:
            self._warnings.append(message)

    def emit_warnings(self) -> None:
        """Emit the warnings of a call that has returned; the caller of `Engine` is their place."""
        if self._warnings and not self._running_call:
            pending, self._warnings = self._warnings, []
            for message in pending:
                warn(message, PenstockWarning, stacklevel=3)

    def require_open(self, name: str) -> None:
        """Refuse a call of an engine after the end of its `with` block."""
        if self.closed:
            message = f"{name} was called after the `with` block of the engine, which freed it; create another Engine"
            raise QueryError("ENGINE_CLOSED", message, call=name)

    @property
    def broken(self) -> bool:
        """Whether a call failed half-way, so that the engine must not be used."""
        return self._broken is not None

    def require_intact(self) -> None:
        """Refuse to use an engine after a call that failed half-way."""
        if self._broken is None:
            return
        name, cause = self._broken
        message = (
            f"{name} failed half-way with {type(cause).__name__}: {cause}; the engine's state is not reliable. "
            "Restore the last snapshot with Engine.restore and push again the data that came after it"
        )
        raise InternalError("ENGINE_BROKEN", message, call=name) from cause

    def _mark_broken(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = self._running_call, error
            self.when_broken()


def _make_reentrant_error(name: str, running: str) -> QueryError:
    message = (
        f"{name} was called by a callback while {running} runs in the same engine; call it after {running} has returned"
    )
    return QueryError("REENTRANT_CALL", message, call=name, running=running)


def guard_calls(
    nests: Collection[str], always: Collection[str], before: Mapping[str, Callable[[Any], None]] | None = None
) -> Callable[[type[T]], type[T]]:
    """A class decorator: every public method enters the guard `_guard` of its object.

    `nests` and `always` are the methods for which `Guard.enter` takes these options. `before`: by method, a function of
    the object that is called before the method enters the guard.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and isfunction(method):
                first = None if before is None else before.get(name)
                setattr(cls, name, _guard_method(method, first, nests=name in nests, always=name in always))
        return cls

    return decorate


def _guard_method(
    method: Callable[..., Any], first: Callable[[Any], None] | None, *, nests: bool, always: bool
) -> Callable[..., Any]:
    name = method.__name__

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if first is not None:
            first(self)
        guard: Guard = self._guard
        before = guard.begin_call(name, nests=nests, always=always)
        try:
            if not always:
                guard.require_open(name)
            result = method(self, *args, **kwargs)
        except BaseException as error:
            guard.record_error(error)
            raise
        finally:
            guard.end_call(before)
        guard.emit_warnings()
        return result

    return call
