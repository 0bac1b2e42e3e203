"""Kafka and PostgreSQL for tests: those of `make services` if they run, else started for the session."""

from __future__ import annotations

import fcntl
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "services.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("penstock_services", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
_FAILED = SCRIPT.FOLDER / "failed.txt"
_USERS = SCRIPT.FOLDER / "for-tests"
"""A folder with a file for each test session that uses services which tests started."""


def require_service(name: str) -> dict[str, Any]:
    """The port and other values of a service. The test is skipped, with the reason, if it cannot be started."""
    if os.environ.get("PENSTOCK_SERVICES") == "off":
        pytest.skip(f"{name} is switched off by PENSTOCK_SERVICES=off")
    SCRIPT.FOLDER.mkdir(parents=True, exist_ok=True)
    with (SCRIPT.FOLDER / "tests-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = SCRIPT.list_running()
        if name not in running:
            known = _read_failure(name)
            reason = known or SCRIPT.start(names=(name,)).get(name)
            if reason is not None:
                if known is None:
                    with _FAILED.open("a") as file:
                        file.write(f"{_get_session()}\t{name}\t{' '.join(reason.split())}\n")
                pytest.skip(f"{name} could not be started: {reason}")
            _USERS.mkdir(exist_ok=True)
            (_USERS / name).write_text(_get_session())
            running = SCRIPT.list_running()
    return dict(running[name])


def restart_service(name: str) -> None:
    """End a service and start it again, with its data and on its port."""
    stop_service(name)
    start_service(name)


def stop_service(name: str) -> None:
    """End a service, and keep its data and its port."""
    SCRIPT.stop((name,), keep=True)


def start_service(name: str) -> None:
    assert not SCRIPT.start(names=(name,))


def stop_own_services() -> None:
    """End the services that this test session started. Called at the end of the session, in the main process."""
    for path in list(_USERS.glob("*")):
        if path.read_text() == _get_session():
            path.unlink()
            SCRIPT.stop((path.name,))
    _FAILED.unlink(missing_ok=True)


def _get_session() -> str:
    """The main process of this test session, which workers are children of."""
    return str(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())


def _read_failure(name: str) -> str | None:
    """Why this session could not start a service earlier: it does not try twice."""
    lines = _FAILED.read_text().splitlines() if _FAILED.exists() else []
    found = (line.split("\t", 2) for line in lines)
    return next((reason for session, known, reason in found if (session, known) == (_get_session(), name)), None)
